# `make help` lists the targets.

PYTHON ?= python3
WORKERS ?= 2
PYTEST_ARGS ?=
LOCK_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help venv demo test coverage lint check format lock clean

help: ## List the targets
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 10

venv: $(STAMP) ## Make .venv with the locked packages and autoselect itself, editable

# The build backend comes from the lock too, so nothing is installed that the lock does not name.
$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

demo: $(STAMP) ## Run the search on the embedded example
	$(BIN)/autoselect demo

test: $(STAMP) ## Run the tests (WORKERS=2 PYTEST_ARGS=...)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

coverage: ## The same, and how much of the code they reach; takes 70 % more processor time
	$(MAKE) test PYTEST_ARGS="--cov --cov-report=term $(PYTEST_ARGS)"

lint: $(STAMP) ## Check style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test ## Lint, then test

format: $(STAMP) ## Format the code and apply the safe fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: | $(BIN)/uv ## Write requirements.lock again (LOCK_ARGS=--upgrade takes newer versions)
	UV_PYTHON_DOWNLOADS=never $(BIN)/uv pip compile pyproject.toml \
	    --universal --python-version 3.10 --extra dev --extra legacy-keras \
	    --no-emit-index-url --no-emit-find-links --no-annotate --generate-hashes \
	    --custom-compile-command "make lock" --quiet $(LOCK_ARGS) --output-file requirements.lock

$(BIN)/uv:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv

clean: ## Remove the environment, caches and build results
	rm -rf $(VENV) build dist htmlcov coverage.xml .coverage .coverage.* \
	    .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find autoselect tests experiments docs -name __pycache__ -type d -prune -exec rm -rf {} +
