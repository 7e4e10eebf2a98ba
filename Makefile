# The two commands: `make demo` and `make test`. Both need python3 (3.11 or newer, with venv) and make.

PYTHON ?= python3
WORKERS ?= 2
VENV := .venv
SCRIPTS := $(if $(filter Windows_NT,$(OS)),Scripts,bin)
BIN := $(VENV)/$(SCRIPTS)
STAMP := $(VENV)/.set-up
TORCH_STAMP := $(VENV)/.set-up-torch
PIP := $(BIN)/python -m pip --quiet --quiet --disable-pip-version-check

# Compiled Python is kept also where the environment says not to: with PYTHONDONTWRITEBYTECODE, every process that
# a test starts would compile thousands of files of the libraries anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-long test-lowest test-newest check format docs package lock clean
.DELETE_ON_ERROR:

help:
	@echo "make demo    set up .venv, predict trained networks and train thousands of them beside it"
	@echo "make test    set up .venv, check the code and run the tests"
	@echo "make test-long  the tests that make test leaves out for their time"
	@echo "make test-lowest  the tests with the lowest versions of dependencies that pyproject.toml allows"
	@echo "make test-newest  the tests with the newest versions"
	@echo "make check   lint, formatting and types only"
	@echo "make format  rewrite the code in the house format"
	@echo "make docs    build the documentation into site/; any warning is an error"
	@echo "make package  build sdist and wheel into dist/, and try each with the core dependencies alone"
	@echo "make lock    renew the two lock files with the newest versions that pyproject.toml allows"
	@echo "make clean   remove .venv, caches and results"

demo: $(STAMP)
	@echo "== handwritten digits, a critical tanh network: theory at both orders, and 6000 networks trained beside it (a minute)"
	@$(BIN)/python -m finitewidth solve

test: check
	@echo "== running the tests with $(WORKERS) workers"
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal

test-long: $(TORCH_STAMP)
	@echo "== running the tests that take longer with $(WORKERS) workers"
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m long

check: $(TORCH_STAMP)
	@echo "== checking lint (ruff), formatting (ruff) and types (pyright)"
	@$(BIN)/python -m ruff check .
	@$(BIN)/python -m ruff format --check .
	@PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/python -m pyright

format: $(STAMP)
	@$(BIN)/python -m ruff check --fix .
	@$(BIN)/python -m ruff format .

docs: $(STAMP)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

# Each in an environment of its own, so that .venv stays as it is pinned.
test-lowest:
	@echo "== the tests with the lowest versions that pyproject.toml allows"
	@$(PYTHON) -m venv .venv-lowest
	@$(PYTHON) tests/helpers/lowest_versions.py > .venv-lowest/lowest.txt
	@.venv-lowest/$(SCRIPTS)/python -m pip install --quiet --disable-pip-version-check --constraint .venv-lowest/lowest.txt --editable ".[test,torch]"
	@.venv-lowest/$(SCRIPTS)/python -m pytest -q -n $(WORKERS) --dist worksteal

test-newest:
	@echo "== the tests with the newest versions that pyproject.toml allows"
	@$(PYTHON) -m venv .venv-newest
	@.venv-newest/$(SCRIPTS)/python -m pip install --quiet --disable-pip-version-check --upgrade --upgrade-strategy eager --editable ".[test,torch]"
	@.venv-newest/$(SCRIPTS)/python -m pytest -q -n $(WORKERS) --dist worksteal

package:
	@echo "== building sdist and wheel, and trying each in a fresh environment"
	@$(PYTHON) tests/helpers/try_package.py

# A lock is what a fresh resolution installs, so it is made in an environment of its own. What torch adds is a file
# of its own: only the tests need it, and on some systems it is larger than everything else together.
lock:
	@echo "== resolving the newest versions that pyproject.toml allows"
	@rm -rf .venv-lock && $(PYTHON) -m venv .venv-lock
	@.venv-lock/$(SCRIPTS)/python -m pip install --quiet --quiet --disable-pip-version-check --editable ".[test]"
	@.venv-lock/$(SCRIPTS)/python -m pip freeze --exclude finitewidth > requirements.lock.new
	@.venv-lock/$(SCRIPTS)/python -m pip install --quiet --quiet --disable-pip-version-check --editable ".[test,torch]"
	@.venv-lock/$(SCRIPTS)/python -m pip freeze --exclude finitewidth | sed 's/+cpu//' | comm -13 requirements.lock.new - > requirements-torch.lock.new
	@rm -rf .venv-lock && mv requirements.lock.new requirements.lock && mv requirements-torch.lock.new requirements-torch.lock
	@echo "== wrote requirements.lock and requirements-torch.lock ($$(cat requirements*.lock | wc -l) packages); run make test, then commit them"

clean:
	rm -rf $(VENV) .venv-lock .venv-lowest .venv-newest results site build dist .pytest_cache .ruff_cache .hypothesis
	find finitewidth tests -name __pycache__ -type d -prune -exec rm -rf {} +

# An existing .venv is brought up to date, not thrown away; `make clean` starts from nothing.
$(STAMP): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("finitewidth needs Python 3.11 or newer, but $(PYTHON) is " + sys.version.split()[0] + "; use make PYTHON=python3.11 or newer.")'
	@echo "== setting up .venv with the versions pinned in requirements.lock (once; takes a minute or two)"
	@$(PYTHON) -m venv $(VENV) || { echo "$(PYTHON) cannot make a virtual environment; install its venv module (Debian: apt install python3-venv)."; exit 1; }
	@$(PIP) install --no-compile --requirement requirements.lock
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(TORCH_STAMP): $(STAMP) requirements-torch.lock
	@echo "== adding PyTorch, which the tests compare with"
	@$(PIP) install --no-compile --requirement requirements-torch.lock
	@touch $@
