# Two commands do everything on a fresh machine: `make demo` and `make test`.
SHELL := /bin/bash
VENV ?= .venv
EXTRAS ?= dev
PY := $(VENV)/bin/python
export VENV

.PHONY: help demo test lint types test-fast smoke test-slow test-parity device-check bench report clean

help:            ## list the targets
	@grep -E '^[a-z-]+: .*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 16

setup-%:
	@.ci/setup $*

weights: setup-dev
	@$(PY) -m experiments.fetch_weights

demo: weights    ## create the environment, fetch weights, run the main job (under 20 minutes)
	$(PY) -m experiments.lago --preset=demo --run_dir=runs/demo

test: lint types test-fast smoke   ## lint, types, fast tests, smoke presets

lint: setup-dev
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .

types: setup-dev
	$(PY) -m mypy

test-fast: setup-dev
	XLA_FLAGS="--xla_backend_optimization_level=0 $$XLA_FLAGS" $(PY) -m pytest -n 2 --dist loadfile \
		-m "not slow and not parity and not device"

smoke: setup-dev
	rm -rf runs/smoke
	$(PY) -m experiments.lago --preset=smoke --run_dir=runs/smoke/lago
	$(PY) -m experiments.train --preset=smoke --run_dir=runs/smoke/ppo
	$(PY) -m experiments.train --preset=smoke --config.algorithm=sac --run_dir=runs/smoke/sac
	$(PY) -m experiments.train --preset=smoke --config.env=minihack/Room-5x5 --run_dir=runs/smoke/host
	$(PY) -m experiments.train_llm --preset=smoke --run_dir=runs/smoke/llm
	$(PY) -m experiments.complementary --preset=smoke --run_dir=runs/smoke/complementary

test-slow: setup-dev,alfworld weights   ## long tests: kill tests, real weights, MuJoCo comparisons
	$(PY) -m pytest -m "slow and not device and not parity"

test-parity: setup-dev,parity   ## live comparisons with torch
	@$(PY) -m experiments.fetch_weights
	$(PY) -m pytest -n 2 --dist loadfile -m "parity and not device"

device-check: setup-$(EXTRAS)   ## on an accelerator, 5 minutes at most: make device-check EXTRAS=dev,cuda
	@$(PY) -m experiments.fetch_weights
	$(PY) -m pytest -m device
	$(PY) -m benchmarks.ppo --quick
	$(PY) -m benchmarks.prior_scoring --quick

bench: setup-dev,bench,alfworld   ## all benchmarks, tables into benchmarks/results: make bench PUREJAXRL=/path/to/clone
	@$(PY) -m experiments.fetch_weights
	$(PY) -m benchmarks.clevr_env
	$(PY) -m benchmarks.prior_scoring
	$(PY) -m benchmarks.micro
	$(PY) -m benchmarks.ppo $(if $(PUREJAXRL),--purejaxrl=$(PUREJAXRL))
	$(PY) -m benchmarks.sac
	$(PY) -m benchmarks.bridge
	$(PY) -m benchmarks.sampler
	$(PY) -m benchmarks.llm_train
	$(PY) -m benchmarks.bank
	$(PY) -m benchmarks.dual_loop
	$(PY) -m benchmarks.text_tasks
	$(PY) -m benchmarks.report

report: setup-dev    ## regenerate the tables in README.md
	$(PY) -m benchmarks.report

clean:           ## remove the virtual environments, caches of the tools and build folders
	rm -rf $(VENV) .bench .mypy_cache .ruff_cache .pytest_cache build *.egg-info
