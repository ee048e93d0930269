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
# --keep                   leave the slice at the end
# --local=N                N processes here instead
# --retries=N              crashes in a row that are tried again; 3 by default
#
# Needs gcloud, logged in, for a slice. The log is that of the first process. Ends with 0 when the
# run has finished, with 2 for a mistake in the command, with 3 where the run has diverged, with 130
# when it was asked to stop (everything is saved then), else with the code of the last crash.
set -uo pipefail

usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; }
fail() { echo "error: $*" >&2; exit 2; }
say() { echo "tpu_job: $*" >&2; }

name='' zone='' type='' version=tpu-ubuntu2204-base spot=() keep='' count='' retries=3 pause=60
while [ $# -gt 0 ]; do
  case $1 in
    --name=* | --zone=* | --type=* | --version=* | --retries=*) declare "${1:2}" ;;
    --local=*) count=${1#*=} ;;
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

stopped='' pids=()
on_signal() {
  stopped=yes
  [ ${#pids[@]} -eq 0 ] || kill -TERM "${pids[@]}" 2>/dev/null
}
trap on_signal INT TERM HUP

# Waits for a process to its end, which a signal to this script does not cut short; gives its code.
await() {
  while wait "$1"; kill -0 "$1" 2>/dev/null; do :; done
  wait "$1"  # the shell remembers
}

# Runs a command that a signal ends, too.
run() {
  [ -z "$stopped" ] || return 130
  "$@" &
  pids=($!)
  await "${pids[0]}"
  local code=$?
  pids=()
  return "$code"
}

# Both kinds of place have `prepare`, `launch` (the command in every process; 0 when it has
# finished), `preempted` and `clean_up`.
if [ -n "$count" ]; then
  [[ $count =~ ^[1-9][0-9]*$ ]] || fail "--local must be a number from 1, not '$count'"
  python=${PYTHON:-.venv/bin/python}
  logs=$(mktemp -d)
  prepare() { :; }
  preempted() { false; }
  clean_up() { rm -rf "$logs"; }
  launch() {
    local port others code=0 now i started=()
    port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])')
    [ -z "$stopped" ] || return 130
    for ((i = 0; i < count; i++)); do
      others=(--coordinator="localhost:$port" --processes="$count" --process="$i")
      if [ "$i" -eq 0 ]; then
        "$python" "$@" "${others[@]}" &
      else
        "$python" "$@" "${others[@]}" >"$logs/$i" 2>&1 &
      fi
      pids+=($!)
    done
    [ -z "$stopped" ] || on_signal  # it came while they were started
    started=("${pids[@]}")
    for ((i = 0; i < count; i++)); do
      await "${started[$i]}"
      now=$?
      # What a process says of itself tells more than how those end that it has left alone.
      case $code:$now in
        0:* | *:2 | *:3 | *:130) code=$now ;;
      esac
      case $i:$now in
        0:* | *:0 | *:130) ;;
        *) say "process $i ended with code $now:"; tail -n 5 "$logs/$i" >&2 ;;
      esac
    done
    pids=()
    return "$code"
  }
else
  [ -n "$name" ] && [ -n "$zone" ] && [ -n "$type" ] || fail "--name, --zone and --type must be given, or --local=N"
  [[ " $* " == *' --run_dir=gs://'* ]] || fail "--run_dir must be a gs:// path: workers share it"
  command -v gcloud >/dev/null || fail "'gcloud' is not installed; see https://cloud.google.com/sdk"
  vm() { local verb=$1; shift; gcloud compute tpus tpu-vm "$verb" "$@" --zone="$zone"; }
  everywhere() { run vm ssh "$name" --worker=all --command="$1"; }
  # READY, PREEMPTED, …; nothing where there is no slice.
  state() { vm list --filter="name~/$name\$" --format='value(state)'; }
  preempted() { local now; now=$(state) && [ "$now" != READY ]; }
  had=''
  end_old='[ ! -f job.pid ] || kill -TERM "$(cat job.pid)" 2>/dev/null; true'
  clean_up() {
    stopped=''  # what follows must be done
    if [ -n "$keep" ]; then everywhere "$end_old"; else vm delete "$name" --quiet; fi
  }
  prepare() {
    local now archive code
    now=$(state) || return 1
    if [ -n "$now" ] && [ "$now" != READY ]; then
      run vm delete "$name" --quiet || return 1
      now=''
    fi
    if [ -z "$now" ]; then
      until run vm create "$name" --accelerator-type="$type" --version="$version" "${spot[@]}"; do
        # One that there was will come again; one that there never was may be a mistake.
        [ -n "$had" ] && [ -z "$stopped" ] || return 1
        say "no slice to be had; a pause of $pause s"
        run sleep "$pause"
      done
    fi
    had=yes
    [ -z "$(git status --porcelain --untracked-files=no)" ] || say "changes that are not committed are left out"
    archive=$(mktemp --suffix=.tar.gz)
    git archive --format=tar.gz -o "$archive" HEAD &&
      run vm scp "$archive" "$name:job.tar.gz" --worker=all
    code=$?
    rm -f "$archive"
    [ "$code" -eq 0 ] || return 1
    everywhere "$end_old; command -v python3.11 >/dev/null ||
      { sudo apt-get update -qq && sudo apt-get install -y -qq python3.11-venv gcc make; };
      mkdir -p job && tar -xzf job.tar.gz -C job && cd job && .ci/setup tpu" || return 1
  }
  launch() {
    everywhere "echo \$\$ > job.pid; cd job && exec .venv/bin/python $(printf '%q ' "$@") --coordinator=auto"
  }
fi
trap clean_up EXIT

crashes=0
for ((attempt = 1; ; attempt++)); do
  say "attempt $attempt"
  code=1
  if prepare; then
    launch "$@"
    code=$?
    case $code in
      0) say finished; exit 0 ;;
      2) say "the command is mistaken"; exit 2 ;;
      3) say "the run has diverged"; exit 3 ;;
    esac
  fi
  [ -z "$stopped" ] || exit 130
  if [ "$code" -eq 130 ] || preempted; then
    crashes=0
    say "stopped by a preemption"
  else
    crashes=$((crashes + 1))
    say "crash $crashes in a row, code $code"
    [ "$crashes" -le "$retries" ] || exit "$code"
  fi
done
