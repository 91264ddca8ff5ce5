# Two commands do everything on a fresh machine:  make demo   and   make test
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# Many small operations across several processes: one thread each is faster than a fight for the cores.
WORKERS ?= 3

.PHONY: help demo test check-long lint types claims bench clean

help:                      ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

# The constraints pin every version exactly; the stamp makes a second call start at once.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "seqlab needs Python 3.11 or newer; say which: make PYTHON=python3.12 ..."; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing seqlab and its pinned dependencies into $(VENV) (once, about two minutes) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt setuptools
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[dev]'
	@touch $@

demo: $(STAMP)             ## train a character model on Shakespeare for about a minute and measure it
	@$(BIN)/seqlab demo

test: $(STAMP) lint types  ## lint, types and all tests
	@$(BIN)/python -m pytest -n $(WORKERS) -m "not long"

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(STAMP)
	@$(BIN)/mypy

claims: $(STAMP)           ## write docs/claims.md anew from the claims
	@$(BIN)/seqlab claims list --markdown > docs/.claims.md && mv docs/.claims.md docs/claims.md

check-long: $(STAMP)       ## the longer trainings
	@$(BIN)/python -m pytest -n 0 -m long

# What the benchmarks compare with, and nothing else needs.
$(VENV)/.peers: $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[bench]'
	@touch $@

bench: $(VENV)/.peers      ## the speed and quality figures of docs/benchmarks.md
	@for b in benchmarks/bench_*.py; do $(BIN)/python $$b || exit 1; done

clean:                     ## remove the virtual environment
	rm -rf $(VENV)
