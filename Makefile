# `make help` lists the targets. Each one sets up what it needs, once, in $(VENV).

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
EXTRAS := all,dev,docs

WORKERS ?= 2
DEMO_THREADS ?= 1
ARGS ?=

# Data sets may lie beside the checkout.
ifndef STEADYRNN_DATA
ifneq ($(wildcard ../shared/data/.),)
export STEADYRNN_DATA := $(abspath ../shared/data)
endif
endif

export MPLBACKEND ?= Agg
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup test demo lint types docs doctest examples bench mutants nightly format clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## create .venv with the pinned versions (done by every target that needs it)

# torch goes first and is pinned in constraints.txt, so that nothing installed later replaces its build.
$(STAMP): pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (once; a few minutes) ..."
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "steadyrnn needs Python 3.11 or newer; set PYTHON=")'
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --upgrade --constraint constraints.txt pip
	@$(PIP) install --constraint constraints.txt torch
	@$(PIP) install --constraint constraints.txt --build-constraint constraints.txt --editable '.[$(EXTRAS)]'
	@$(BIN)/python -m pip --disable-pip-version-check check
	@touch $@

# Workers must collect the same tests in the same order: names and orders that come from a set depend on the seed of hashes.
test: $(STAMP) ## run the tests (ARGS="-k name" passes options to pytest)
	@OMP_NUM_THREADS=1 PYTHONHASHSEED=0 $(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

demo: $(STAMP) ## the main job: train three networks, certify, convert, report (two minutes)
	@OMP_NUM_THREADS=$(DEMO_THREADS) $(BIN)/python examples/demo.py $(ARGS)

lint: $(STAMP) ## check style, formatting and who imports whom
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-cache --no-logo

types: $(STAMP) ## check types: the package strictly, examples and benchmarks loosely
	@$(BIN)/mypy
	@for folder in $(wildcard examples benchmarks); do \
	    $(BIN)/mypy --config-file= --ignore-missing-imports "$$folder" || exit 1; \
	done

docs: $(STAMP) ## build the documentation in docs/_build/html; a warning is an error
	@OMP_NUM_THREADS=1 $(BIN)/sphinx-build -W --keep-going -q -b html -d docs/_build/doctrees docs docs/_build/html
	@echo "Open docs/_build/html/index.html"

doctest: $(STAMP) ## run the examples in docstrings, documentation pages and the README
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest --doctest-modules src tests/test_documented_code.py $(ARGS)

examples: $(STAMP) ## run every program in examples/, shortened
	@for program in $(wildcard examples/*.py); do \
	    echo "-- $$program"; \
	    OMP_NUM_THREADS=$(DEMO_THREADS) STEADYRNN_EXAMPLE_FAST=1 $(BIN)/python "$$program" || exit 1; \
	done

bench: $(STAMP) ## run every program in benchmarks/ (long; keep the machine otherwise idle)
	@for program in $(wildcard benchmarks/bench_*.py); do \
	    echo "-- $$program"; \
	    $(BIN)/python "$$program" $(ARGS) || exit 1; \
	done

mutants: $(STAMP) ## run the mutants (long; for the night)
	@OMP_NUM_THREADS=1 $(BIN)/python -m tests.mutants.run --jobs $(WORKERS) $(ARGS)

nightly: $(STAMP) ## run every table and figure of the papers in its quick form, anew (an hour; for the night)
	@OMP_NUM_THREADS=1 $(BIN)/steadyrnn reproduce --all --quick --again --out build/nightly --jobs $(WORKERS) $(ARGS)

format: $(STAMP) ## reformat and fix what can be fixed
	@$(BIN)/ruff check --fix --exit-zero .
	@$(BIN)/ruff format .

clean: ## remove build outputs and caches (the environment stays; delete it with rm -r .venv)
	@rm -rf build dist docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -not -path './$(VENV)/*' -type d -prune -exec rm -rf {} +
