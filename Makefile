# `make run` and `make test` need Python 3.11-3.13 and nothing else; `make help` lists the rest.
SHELL := /bin/sh
VENV ?= .venv
PY := $(VENV)/bin/python
ARGS ?=
PORT ?= 5000
# The first interpreter that starts, is of a supported version and can make virtual environments.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3 python; do \
  $$p -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null && { echo $$p; break; }; done)
# One stamp per set of dependencies: installing again happens only when pyproject.toml changed.
STAMP := $(VENV)/.installed
STAMP_DEV := $(VENV)/.installed-dev

.PHONY: help run test test-cluster faults fuzz test-slow test-oldest lint bench ui serve repair upload data docs numbers smoke digits compare table0 table1 table2 table3 tables figure sensitivity clean
.DEFAULT_GOAL := help

help:  ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

run: $(STAMP)  ## set up, then run the main job on the default dataset (ARGS="dataset=... model.lam=...")
	$(PY) -m zsl.main $(ARGS)

test: $(STAMP_DEV)  ## set up, then run the quick tests (minutes)
	$(PY) -m pytest -n 2 --dist worksteal $(ARGS)

test-cluster: $(STAMP_DEV)  ## sweeps on a real Slurm on this machine, as root (under ten minutes; ARGS=--install installs it by apt first)
	@$(PY) -c 'import submitit' 2>/dev/null || $(PY) -m pip install --quiet --editable '.[dev,slurm]'
	$(PY) tests/cluster.py $(ARGS)

faults: $(STAMP_DEV)  ## put faults into real runs (half an hour; kinds that need a small disk need root)
	$(PY) tests/faults.py $(ARGS)

test-slow: $(STAMP_DEV)  ## the tests that `make test` leaves out: they take seconds (marked slow) or minutes each (long)
	$(PY) -m pytest -n 2 --dist worksteal -m "slow or long" $(ARGS)

test-oldest:  ## the test suite with the oldest packages that pyproject.toml allows (python3.11; an environment of its own, .venv-oldest)
	python3.11 -m venv .venv-oldest
	.venv-oldest/bin/python tests/oldest.py >.venv-oldest/constraints.txt
	.venv-oldest/bin/python -m pip install --quiet --constraint .venv-oldest/constraints.txt --editable '.[dev]'
	NUMBA_CACHE_DIR=.venv-oldest/numba .venv-oldest/bin/python -m pytest -n 2 --dist worksteal -m 'not long' $(ARGS)

fuzz: $(STAMP_DEV)  ## damage every format at random and read it, in child processes (ARGS="--count 2000 --seed 3")
	$(PY) tests/fuzz.py $(ARGS)

lint: $(STAMP_DEV)  ## ruff, mypy, and known holes of the installed packages where the network allows
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	@$(PY) -m pip_audit --skip-editable --progress-spinner off --timeout 5 >$(VENV)/audit.txt 2>&1 || true
	@if grep -Eq '^Found [0-9]+ known' $(VENV)/audit.txt; then cat $(VENV)/audit.txt; exit 1; \
	elif grep -q 'No known vulnerabilities' $(VENV)/audit.txt && ! grep -q 'could not be audited' $(VENV)/audit.txt; \
	then echo "pip-audit: no known holes"; else echo "pip-audit: not all packages could be asked about (no network?)"; fi

bench: $(STAMP)  ## speed of sparse coding against SPAMS and scikit-learn (SPAMS: pip install -e '.[bench]')
	$(PY) -m zsl.bench $(ARGS)

ui: $(STAMP)  ## compare runs in the MLflow UI (PORT=5000; the next free one is used if it is taken)
	$(PY) -m zsl ui --port $(PORT) $(ARGS)

serve: $(STAMP)  ## answer for a run's model over HTTP (RUN=its folder or its id in the UI, PORT=5000)
	@test -n "$(RUN)" || { echo "say which run: make serve RUN=FOLDER, or the id that its page in the MLflow UI shows." >&2; exit 1; }
	$(PY) -m zsl.predict.server $(RUN) --port $(PORT) $(ARGS)

repair: $(STAMP)  ## mark runs whose process was killed as KILLED
	$(PY) -m zsl.tracking repair $(ARGS)

upload: $(STAMP)  ## send runs to the tracking store that it does not have, made while its server was down
	$(PY) -m zsl.tracking upload $(ARGS)

numbers: $(STAMP)  ## run the commands behind the numbers of README and docs, and say where text and result differ
	$(PY) docs/check_numbers.py $(ARGS)

docs: $(STAMP_DEV)  ## build the documentation as a site in docs/_build
	$(PY) -m sphinx -W --keep-going -q -b html docs docs/_build

smoke: $(STAMP)  ## the pipeline with every solver on simulated data (under a minute)
	$(PY) -m zsl.main experiment=smoke $(ARGS)

digits: $(STAMP)  ## attribute-agnostic accuracy over all 120 choices of three unseen digits
	$(PY) -m zsl.main experiment=digits_splits $(ARGS)
	$(PY) -m zsl.report compare multirun/digits_splits

compare: $(STAMP)  ## every method on ten splits of each data set under one protocol, and their table (an hour or two; ARGS="stage=quick")
	$(PY) -m zsl.report compare --run $(ARGS)

data: $(STAMP)  ## which datasets are here, and how each is obtained
	$(PY) -m zsl.data list $(ARGS)

table1: $(STAMP)  ## the paper's Table 1: runs what data is here for, prints ours beside the paper's (ARGS="data=digits": one)
	$(PY) -m zsl.report table1 --run $(ARGS)

table2: $(STAMP)  ## the paper's Table 2 likewise: baselines re-run, VGG19
	$(PY) -m zsl.report table2 --run $(ARGS)

table3: $(STAMP)  ## the paper's Table 3 likewise: baselines re-run, Inception
	$(PY) -m zsl.report table3 --run $(ARGS)

tables: $(STAMP)  ## table1, table2, table3 and compare: all that is possible with the data that is here, going on where it stopped
	$(PY) -m zsl.report tables --run $(ARGS)

table0: $(STAMP)  ## what table1 was called before: says so
	@$(PY) -m zsl.report table0

figure: $(STAMP)  ## predicted attributes in two dimensions, six panels (ARGS="dataset=...")
	$(PY) -m zsl.report figure --run $(ARGS)

sensitivity: $(STAMP)  ## accuracy against each setting, as curves
	$(PY) -m zsl.report sensitivity --run $(ARGS)

clean:  ## remove caches and the virtual environment (results in multirun/ stay)
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(PY):
	@test -n "$(PYTHON)" || { echo "zsl needs Python 3.11, 3.12 or 3.13 with venv; none was found on PATH. Set PYTHON=/path/to/python." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(STAMP): pyproject.toml | $(PY)
	@echo "installing zsl and its libraries, some minutes, once"
	$(PY) -m pip install --quiet --editable .
	@touch $@

$(STAMP_DEV): pyproject.toml | $(PY)
	@echo "installing zsl, its libraries and the tools for tests, some minutes, once"
	$(PY) -m pip install --quiet --editable '.[dev]'
	@touch $@ $(STAMP)
