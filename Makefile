# Everything a developer runs. `make setup` is implied by every target that needs it.
SHELL := /bin/bash
PYTHON ?= python3.11
BIN := .venv/bin
ARGS ?=

.PHONY: help setup lock demo test check format soak interop docs reference clean

help:  ## this list
	@grep -hE '^[a-z%-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: .venv/.installed  ## the virtual environment with locked dependencies

.venv/.installed: requirements.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "headwater needs Python 3.11 as '$(PYTHON)'; install it or say PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==0.13.8
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps -e .
	@touch $@

lock: setup  ## resolve the dependencies again (hashes, no index address)
	$(BIN)/uv pip compile pyproject.toml --all-extras --group dev --generate-hashes --no-header --no-annotate --python-version 3.11 --quiet -o requirements.lock

test: setup  ## every test that finishes in minutes
	$(BIN)/python -m pytest -m "not soak and not interop" --ignore tests/pipeline --ignore tests/docs $(ARGS)
	$(BIN)/python -m pytest -m "not soak and not interop" tests/pipeline tests/docs $(ARGS)  # with Spark: a process of its own

check: setup  ## format, lint, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup  ## rewrite the sources in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

soak: setup  ## the long tests: kills, histories, fuzzing
	$(BIN)/python -m pytest -m soak $(ARGS)

interop: setup  ## unmodified clients and third-party suites against our broker and a real Kafka
	$(BIN)/python -m pytest -m interop $(ARGS)

bench-%: setup  ## one benchmark, the peer in the same run: bench-broker, bench-pipeline, bench-capture ...
	$(BIN)/python -m bench.$* $(ARGS)

reference: setup  ## write docs/reference/ from the code
	$(BIN)/python docs/generate.py

docs: reference  ## the documentation as a site, in site/
	$(BIN)/properdocs build --quiet --strict

demo: setup  ## the whole system, end to end, on this machine
	$(BIN)/python -m headwater.cli.main demo $(ARGS)

clean:  ## remove what the targets above made
	rm -rf .venv build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
