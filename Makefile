# Two commands matter: `make demo` and `make test`. Both set everything up first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Quix Streams, a peer of `bench-throughput`, wants an older Kafka client than ours.
BENCH_VENV := .venv-bench
BENCH_STAMP := $(BENCH_VENV)/.installed
# PyTorch (5 GB) runs the jobs of `test-training` and of `lab up --job torch`, and is no dependency
# of anything else. `make TRAINING_PYTHON=…` takes a Python that has it already.
TRAINING_VENV := .venv-training
TRAINING_STAMP := $(TRAINING_VENV)/.installed
TRAINING_PYTHON ?= $(TRAINING_VENV)/bin/python
# JAX (0.6 GB) runs the jobs of `lab up --job jax`; `make JAX_PYTHON=…` takes a Python that has it.
JAX_VENV := .venv-training-jax
JAX_STAMP := $(JAX_VENV)/.installed
JAX_LOCK := ops/lab/training/jax.lock
JAX_PYTHON ?= $(JAX_VENV)/bin/python
TRAINING := $(if $(filter $(TRAINING_VENV)/%,$(TRAINING_PYTHON)),$(TRAINING_STAMP))
TRAINING_JAX := $(if $(filter $(JAX_VENV)/%,$(JAX_PYTHON)),$(JAX_STAMP))

# Where the environment forbids it, each of the hundreds of processes of the tests compiles the
# project anew, and each process of pytest rewrites all assertions.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup compiled rewritten demo test test-rdma training training-jax test-training test-training-jax lint unit bench-pipeline bench-accuracy bench-labs bench-collectives bench-scale bench-agent bench-throughput bench-resilience bench-operator soak fuzz fuzz-properties docs dashboards lock vendor charts test-kube clean

help:
	@echo "make demo            set up, start broker, lab and workers, break a link, show the verdict"
	@echo "make test            set up, then lint, types, architecture contracts and all tests"
	@echo "make test-rdma       set up, then real RDMA verbs in a throw-away machine with Soft-RoCE (4 minutes)"
	@echo "make training        an environment with PyTorch, for real training jobs (5 GB to download)"
	@echo "make test-training   real PyTorch jobs with faults, and their diagnoses (makes it; 10 minutes)"
	@echo "make training-jax    an environment with JAX, for \`lab up --job jax\` (0.6 GB)"
	@echo "make test-training-jax  a real JAX job in a lab, with faults, and what is told of them (root; makes it; 5 minutes)"
	@echo "make setup           the environment in $(VENV), Apache Kafka's jars in the user's cache, compiled kernels"
	@echo "make lint            ruff, mypy, import contracts"
	@echo "make unit            the tests that need neither broker nor lab, without the slow ones (minutes)"
	@echo "make bench-accuracy  measure diagnosis and skeletons in the arena (under an hour)"
	@echo "make bench-pipeline  measure the whole pipeline against its bars (about an hour)"
	@echo "make bench-labs      every fault in every kind of lab of this machine (an hour; netns needs root)"
	@echo "make bench-collectives  a real PyTorch job hangs, what is said of it, what that takes (hours; root, make training)"
	@echo "make bench-scale     a cluster of 40,000 RNICs: what it takes, and how that grows (40 minutes)"
	@echo "make bench-agent     memory, CPU and traffic of one agent, its broker up, away and back (15 minutes)"
	@echo "make bench-throughput  results a second from Kafka to windows and anomalies, delay, restart, replay (25 minutes)"
	@echo "make bench-resilience  wrong clocks, absurd records, garbage, kills, floods"
	@echo "make bench-operator  the page: delay, first paint, what its server takes, reports, hostile names"
	@echo "make soak            one agent for an hour, its broker restarted: its memory may not grow"
	@echo "make fuzz            a million mutated probe packets and lines of flow dumps, 10,000 mutated files (minutes)"
	@echo "make fuzz-properties new random examples for every property test, unlike \`make test\` (minutes)"
	@echo "make docs            write docs/reference/ anew: topics, kinds of fault, settings, metrics"
	@echo "make charts          write the chart's examples anew (needs helm)"
	@echo "make test-kube       install, upgrade and roll back the chart on a real API server (needs helm, etcd, kube-apiserver)"
	@echo "make dashboards      write Grafana's dashboards anew (ops/deploy/grafana/*.json)"
	@echo "make vendor          fetch the page's JavaScript libraries anew from npm, at the versions in their list"
	@echo "make lock            resolve pyproject.toml into requirements.lock anew"

COMPILED := schemas/_record_writer.c probers/transports/_datagrams.c $(wildcard probers/transports/_c/*.h)

$(STAMP): requirements.lock pyproject.toml $(COMPILED)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) --version). Try: make PYTHON=python3.11"; exit 3; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@$(BIN)/python -c 'from probers.transports.datagrams import native; print("agent: packets by", "Python: no C compiler, or no headers of Python" if native is None else "C")'
	@touch $@

setup: compiled
	$(BIN)/skeletonhunter broker fetch

compiled: $(STAMP)
	$(BIN)/python -m streams.warm
	$(BIN)/python -m localizer.warm

demo: setup
	$(BIN)/skeletonhunter demo

# pytest rewrites assertions: once here, or else each of its processes does so for all tests. What
# cannot be collected is told by the run itself.
rewritten: $(STAMP)
	-@$(BIN)/python -m pytest -n 0 --collect-only -qq >/dev/null

# mypy takes one processor for a minute; the other sets up meanwhile.
# Four processes: two run integration tests, which wait most of the time, the others compute. One
# that dies is not begun anew: it would come to the same test again.
test: $(STAMP)
	@$(MAKE) --no-print-directory -j 2 lint setup rewritten
	$(BIN)/python -m pytest -n 4 --max-worker-restart 0

# 75: QEMU or Debian's packages cannot be had here, as the line above it says.
test-rdma: $(STAMP)
	@$(BIN)/python -m ops.lab.vm --tests || { [ $$? -eq 75 ] && echo "test-rdma: skipped, see above"; }

$(TRAINING_STAMP):
	$(PYTHON) -m venv $(TRAINING_VENV)
	$(TRAINING_VENV)/bin/python -m pip install --quiet --disable-pip-version-check torch numpy
	@touch $@

training: $(TRAINING)

test-training: $(STAMP) $(TRAINING)
	$(BIN)/python -m tests.training --python $(TRAINING_PYTHON)

$(JAX_STAMP): $(JAX_LOCK)
	$(PYTHON) -m venv $(JAX_VENV)
	$(JAX_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(JAX_LOCK)
	@touch $@

training-jax: $(TRAINING_JAX)

test-training-jax: setup $(TRAINING_JAX)
	SKELETONHUNTER_JAX_PYTHON=$(JAX_PYTHON) $(BIN)/python -m pytest -n 0 -rs tests/training

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Left out: what starts a broker or a lab, and what is slow; `make test` runs them.
unit: $(STAMP)
	@$(MAKE) --no-print-directory -j 2 compiled rewritten
	$(BIN)/python -m pytest -n 2 -m "not slow" \
	  tests/architecture tests/contract tests/property tests/unit

bench-accuracy: setup
	$(BIN)/python -m ops.bench accuracy

bench-pipeline: setup
	$(BIN)/python -m ops.bench pipeline

bench-labs: setup
	$(BIN)/python -m ops.bench labs

bench-collectives: setup $(TRAINING)
	SKELETONHUNTER_JOB_PYTHON=$(TRAINING_PYTHON) $(BIN)/python -m ops.bench collectives

bench-scale: $(STAMP)
	$(BIN)/python -m ops.bench scale

bench-agent: setup
	$(BIN)/python -m ops.bench agent

$(BENCH_STAMP): pyproject.toml
	$(PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	@touch $@

bench-throughput: setup
	@$(MAKE) --no-print-directory $(BENCH_STAMP) || echo "bench-throughput: no Quix Streams to be had, its figures are skipped"
	$(BIN)/python -m ops.bench throughput

bench-resilience: setup
	$(BIN)/python -m ops.bench resilience

bench-operator: setup
	$(BIN)/python -m ops.bench operator

soak: setup
	$(BIN)/python -m ops.bench soak

fuzz: $(STAMP)
	SKELETONHUNTER_FUZZ_PACKETS=1000000 SKELETONHUNTER_FUZZ_LINES=1000000 $(BIN)/python -m pytest -k mutated \
	  --durations=0 tests/unit/probers/transports/test_responder_fuzz.py tests/unit/probers/overlay/test_megaflow.py
	SKELETONHUNTER_FUZZ_FILES=10000 $(BIN)/python -m pytest --durations=0 --timeout 7200 tests/property/test_ops_recording_hostile.py

# `make test` draws the same examples each time; what fails here is kept in .hypothesis and tried first.
fuzz-properties: $(STAMP)
	$(BIN)/python -m pytest --hypothesis-profile new -m hypothesis

docs: $(STAMP)
	$(BIN)/python -m ops.docs

dashboards: $(STAMP)
	$(BIN)/python -m ops.deploy.grafana

lock: $(STAMP)
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --extra ops --extra dev \
	  --no-emit-index-url --no-emit-find-links --no-header pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --no-header $(JAX_LOCK:.lock=.in) -o $(JAX_LOCK)

charts: $(STAMP)
	$(BIN)/python -m ops.deploy.rendering

# No controllers, so no pods: schema, defaults, admission, access.
test-kube: $(STAMP)
	$(BIN)/python -m pytest -n 0 -rs tests/integration/test_kube.py

vendor: $(STAMP)
	$(BIN)/python -m ops.web.vendored

clean:
	rm -rf $(VENV) $(BENCH_VENV) $(TRAINING_VENV) $(JAX_VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
