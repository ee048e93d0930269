#!/usr/bin/env bash
# Runs a command of this repository on every worker of a TPU slice until it has finished, through
# preemptions: the slice is made anew, and the run goes on from its last checkpoint.
#
#   experiments/tpu_job.sh --name=ppo --zone=us-east5-a --type=v5litepod-16 -- \
#       -m experiments.train --preset=cartpole --config.seeds=0,1,2,3 --run_dir=gs://bucket/ppo
#
# or, to try it, in processes on this machine:
#
#   experiments/tpu_job.sh --local=2 -- -m experiments.train --preset=smoke --run_dir=runs/two
#
# --name, --zone, --type   of the slice, as `gcloud compute tpus tpu-vm create` takes them
# --version                its software; tpu-ubuntu2204-base by default
# --spot                   ask for a slice that may be preempted
# --keep                   leave the slice running at the end
# --local=N                N processes here instead
# --retries=N              crashes in a row that are not given up after; 3 by default
#
# Needs gcloud, logged in, for a slice. The log is that of the first process. Ends with 0 when the
# run has finished, with 2 for a mistake in the command, else with the code of the last crash.
set -uo pipefail

usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; }
fail() { echo "error: $*" >&2; exit 2; }
say() { echo "tpu_job: $*" >&2; }

name='' zone='' type='' version=tpu-ubuntu2204-base spot=() keep='' local_processes='' retries=3
while [ $# -gt 0 ]; do
  case $1 in
    --name=* | --zone=* | --type=* | --version=* | --retries=*) declare "${1:2}" ;;
    --local=*) local_processes=${1#*=} ;;
    --spot) spot=(--spot) ;;
    --keep) keep=yes ;;
    --help | -h) usage; exit 0 ;;
    --) shift; break ;;
    *) fail "'$1' is no option; see --help" ;;
  esac
  shift
done
[ $# -gt 0 ] || fail "give the command behind --, as: -- -m experiments.train --run_dir=gs://bucket/run"
[[ " $* " == *' --run_dir='* ]] || fail "the command needs --run_dir, or it could not go on after a preemption"
[[ $retries =~ ^[0-9]+$ ]] || fail "--retries must be a number from 0, not '$retries'"
cd "$(dirname "$0")/.." || exit 1

# Each place has `prepare`, `launch` (the command in every process; 0 when it has finished),
# `preempted` and `clean_up`.
if [ -n "$local_processes" ]; then
  [[ $local_processes =~ ^[1-9][0-9]*$ ]] || fail "--local must be a number from 1, not '$local_processes'"
  python=${PYTHON:-.venv/bin/python}
  pids=()
  prepare() { :; }
  preempted() { false; }
  clean_up() { [ ${#pids[@]} -eq 0 ] || kill "${pids[@]}" 2>/dev/null; }
  launch() {
    local port others=() code=0 now pid i
    port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])')
    pids=()
    for ((i = 0; i < local_processes; i++)); do
      others=(--coordinator="localhost:$port" --processes="$local_processes" --process="$i")
      if [ "$i" -eq 0 ]; then
        "$python" "$@" "${others[@]}" &
      else
        "$python" "$@" "${others[@]}" >/dev/null 2>&1 &
      fi
      pids+=($!)
    done
    for pid in "${pids[@]}"; do
      wait "$pid"
      now=$?
      # One that was asked to stop, or was mistaken, says more than those that it has left alone.
      if [ "$code" -eq 0 ] || [ "$now" -eq 130 ] || [ "$now" -eq 2 ]; then code=$now; fi
    done
    pids=()
    return "$code"
  }
else
  [ -n "$name" ] && [ -n "$zone" ] && [ -n "$type" ] || fail "--name, --zone and --type must be given, or --local=N"
  [[ " $* " == *' --run_dir=gs://'* ]] || fail "--run_dir must be a gs:// path: workers share it"
  command -v gcloud >/dev/null || fail "'gcloud' is not installed; see https://cloud.google.com/sdk"
  vm() { local verb=$1; shift; gcloud compute tpus tpu-vm "$verb" "$name" --zone="$zone" "$@"; }
  everywhere() { vm ssh --worker=all --command="$1"; }
  state() { vm describe --format='value(state)' 2>/dev/null; }
  preempted() { [ "$(state)" != READY ]; }
  clean_up() { [ -n "$keep" ] || vm delete --quiet; }
  prepare() {
    case $(state) in
      READY) ;;
      '') ;;
      *) vm delete --quiet || return ;;
    esac
    if [ "$(state)" != READY ]; then
      until vm create --accelerator-type="$type" --version="$version" "${spot[@]}"; do
        say "no slice to be had; trying again in a minute"
        sleep 60
      done
    fi
    local archive
    archive=$(mktemp --suffix=.tar.gz)
    git archive --format=tar.gz -o "$archive" HEAD || return
    vm scp "$archive" "$name:job.tar.gz" --worker=all || return
    rm -f "$archive"
    everywhere 'mkdir -p job && tar -xzf job.tar.gz -C job && cd job && .ci/setup tpu'
  }
  launch() { everywhere "cd job && .venv/bin/python $(printf '%q ' "$@") --coordinator=auto"; }
fi

stopped=''
trap 'stopped=yes; clean_up' INT TERM
crashes=0
for ((attempt = 1; ; attempt++)); do
  say "attempt $attempt"
  prepare && launch "$@"
  code=$?
  [ -z "$stopped" ] || exit 130
  case $code in
    0) say finished; clean_up; exit 0 ;;
    2) say "the command is mistaken"; clean_up; exit 2 ;;
    130) crashes=0; say "stopped, with everything saved" ;;
    *)
      if preempted; then
        crashes=0
        say preempted
      else
        crashes=$((crashes + 1))
        say "crash $crashes in a row, code $code"
        [ "$crashes" -le "$retries" ] || { clean_up; exit "$code"; }
      fi
      ;;
  esac
done
