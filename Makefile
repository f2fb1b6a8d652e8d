# Targets that run the package first install it into .venv, with the versions and hashes of constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
OUT ?= runs/demo
PYTEST_WORKERS ?= 2

.PHONY: demo test test-lowest check bench docs setup clean help
.DEFAULT_GOAL := help

help:
	@echo "make demo   show what each pooling sees, on embedded data; table and report in $(OUT)"
	@echo "make test   run the tests"
	@echo "make test-lowest   the same with the oldest supported versions, in .venv-lowest"
	@echo "make check  format, lint, types, layout"
	@echo "make bench  measure the operations and poolings on this machine"
	@echo "make docs   rebuild the generated pages and the gallery, then the site in site/"

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11, 5))' || \
	  { echo "isice: expected Python >= 3.11.5, got $$($(PYTHON) --version 2>&1); set PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) (once; PyTorch is large, this takes a few minutes) ..."
	@$(PIP) install --require-hashes --no-deps --requirement constraints.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@$(PIP) check
	@touch $(READY)

demo: $(READY)
	$(BIN)/isice run demo --out $(OUT)

# One process runs a file, so that its fixtures are made once.
test: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(PYTEST_WORKERS) --dist loadfile --no-loadscope-reorder

# The lower bounds of pyproject.toml, in an environment of their own.
test-lowest: .venv-lowest/.ready
	OMP_NUM_THREADS=1 .venv-lowest/bin/python -m pytest -n $(PYTEST_WORKERS) --dist loadfile

.venv-lowest/.ready: pyproject.toml constraints-lowest.txt
	@test -x .venv-lowest/bin/python || $(PYTHON) -m venv .venv-lowest
	@.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check \
	  --constraint constraints-lowest.txt --editable ".[dev]"
	@touch $@

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_layout.py

bench: $(READY)
	$(BIN)/python benchmarks/run.py

docs: $(READY)
	$(BIN)/python docs/build.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) .venv-lowest runs site .pytest_cache .ruff_cache .mypy_cache .hypothesis
