# `make help` lists the targets.

PYTHON ?= python3
WORKERS ?= 2
PYTEST_ARGS ?=
LOCK_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-slow coverage studies lint check format lock audit links dist release-check clean

help: ## List the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 15

venv: $(STAMP) ## Make .venv with the locked packages and autoselect itself, editable

# The build backend comes from the lock too, so nothing is installed that the lock does not name. pip may not resolve
# it again: of a package asked for with an extra (coverage[toml]) it takes the newest release, whose hash is not here.
$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(BIN)/python -m pip check
	touch $@

demo: $(STAMP) ## Run the search on the embedded example
	$(BIN)/autoselect demo

# The last -m counts, so that PYTEST_ARGS may choose otherwise.
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

test: $(STAMP) ## Run the tests but the slow ones (WORKERS=2 PYTEST_ARGS=...)
	$(PYTEST) -m "not slow" $(PYTEST_ARGS)

test-slow: $(STAMP) ## Run the slow tests: whole searches of real models and of many small ones
	$(PYTEST) -m slow $(PYTEST_ARGS)

coverage: ## Run all tests and show how much of the code they reach; takes 70 % more processor time
	$(MAKE) test PYTEST_ARGS="-m '' --cov --cov-report=term $(PYTEST_ARGS)"

studies: $(STAMP) ## Run the small pass of all experiments: does each of their commands still run?
	$(BIN)/python experiments/all.py --small

lint: $(STAMP) ## Check style, types, the direction of imports and the prose of the pages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/proselint check --config .proselintrc.json README.md CONTRIBUTING.md $$(git ls-files 'docs/*.md')

check: lint test test-slow ## Lint, then all tests

format: $(STAMP) ## Format the code and apply the safe fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: | $(BIN)/uv ## Write requirements.lock again (LOCK_ARGS=--upgrade takes newer versions)
	UV_PYTHON_DOWNLOADS=never $(BIN)/uv pip compile pyproject.toml \
	    --universal --python-version 3.10 --extra dev --extra legacy-keras \
	    --no-emit-index-url --no-emit-find-links --no-annotate --generate-hashes \
	    --custom-compile-command "make lock" --quiet $(LOCK_ARGS) --output-file requirements.lock

# Strict: a package that cannot be looked up, as without network, is a failure.
audit: | $(BIN)/uv ## Look the locked packages up in PyPI's list of known vulnerabilities
	$(BIN)/uv tool run --from pip-audit==2.10.1 pip-audit --strict --disable-pip --require-hashes -r requirements.lock

links: $(STAMP) ## Write the address of the repository, from pyproject.toml, into the files that link to it
	$(BIN)/python docs/repository.py

dist: $(STAMP) | $(BIN)/uv ## Build wheel and sdist, and write what the lock holds as a CycloneDX SBOM
	$(BIN)/python -m build --no-isolation
	$(BIN)/uv tool run --from cyclonedx-bom==7.5.0 cyclonedx-py requirements requirements.lock \
	    --pyproject pyproject.toml --output-file dist/autoselect.cdx.json

# Pythons that are missing are named and left out.
release-check: $(STAMP) | $(BIN)/uv ## Install the built wheel for each Python that is here, and try demo, search and examples
	$(BIN)/python .ci/release_check.py

$(BIN)/uv:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv

clean: ## Remove the environment, caches and build results
	rm -rf $(VENV) build dist htmlcov coverage.xml .coverage .coverage.* \
	    .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find autoselect tests experiments docs -name __pycache__ -type d -prune -exec rm -rf {} +
