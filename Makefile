# Everything runs in an environment of its own, made from pyproject.toml and constraints.txt on first use.
# TORCH is the version of the tests; `make test-oldest` has an environment with the lowest versions that are claimed.
PYTHON ?= python3
VENV ?= .venv
OLDEST ?= .venv-oldest
TORCH ?= 2.13.0
BIN := $(VENV)/bin
# One worker per core; each test process uses one torch thread. The tests of a file share a worker, so that what they
# share is made once, and the longest files come first (tests/conftest.py).
WORKERS ?= auto
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: demo test test-fast test-oldest fuzz lint types bench docs docs-serve dist release clean

# Data and page need no network. An interpreter that has all packages is used as it is; else the environment is made.
NEEDED := import click, filelock, pandas, plotly, pooch, pydantic, rich, sklearn, torch
demo:
	@if $(PYTHON) -c '$(NEEDED)' 2>/dev/null; then PYTHONPATH=src $(PYTHON) -m cmalight demo; \
	else $(MAKE) $(VENV)/ready && $(BIN)/cmalight demo; fi

test: lint types
	$(PYTEST) --cov --cov-report=term-missing:skip-covered
	$(BIN)/coverage report --include="*/cmalight/rules/*.py" --fail-under=100

test-fast: $(VENV)/ready
	$(PYTEST) -m "not slow" -q

# The fast tests with the lowest versions that pyproject.toml claims.
test-oldest: $(OLDEST)/ready
	$(OLDEST)/bin/python -m pytest -n $(WORKERS) --dist loadfile -m "not slow" -q --ignore tests/docs

# Ctrl-C at lines of the optimizers: how many, and which.
CASES ?= 2000
SEED ?= 0
fuzz: $(VENV)/ready
	CMALIGHT_FUZZ_CASES=$(CASES) CMALIGHT_FUZZ_SEED=$(SEED) $(PYTEST) tests/fuzz -q

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/ready
	$(BIN)/mypy

# Strict: a link, an anchor or a reference that leads nowhere ends it. tests/docs builds the same.
docs: $(VENV)/ready
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --nitpicky --builder html docs site

docs-serve: docs
	$(BIN)/python -m http.server --directory site 8000

# What is published, from a clean checkout: sdist and wheel, their metadata checked.
dist: $(VENV)/ready
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*

# The tag of the version in src/cmalight/__init__.py. The tree, the changelog and the citation are checked first, then
# what is published is built and checked, then it is tagged. Pushing the tag publishes.
release: $(VENV)/ready
	@$(BIN)/python tools/release.py
	$(MAKE) dist
	@version=$$($(BIN)/python tools/release.py) && git tag --annotate "v$$version" --message "CMALight $$version" \
	&& echo "tagged v$$version: git push origin v$$version publishes it"

bench: $(VENV)/ready
	for script in benchmarks/bench_*.py; do $(BIN)/python $$script || exit 1; done

clean:
	rm -rf $(VENV) $(OLDEST) .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache dist site

# pip refuses a file whose hash is not in constraints.txt. Torch comes in the build, for the CPU or for CUDA, that this
# machine's index has, with the libraries that the build requires. The last install fails if a pin is missing.
PIP := $(BIN)/python -m pip --quiet
$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed for the pinned tools" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --only-binary :all: --no-deps --require-hashes --requirement constraints.txt
	$(PIP) install --only-binary :all: torch==$(TORCH)
	$(PIP) install --no-index --no-build-isolation --editable ".[dev]"
	touch $@

# uv resolves the lowest versions. UV_TORCH_BACKEND=cpu takes torch for the CPU.
$(OLDEST)/ready: pyproject.toml
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip --quiet install uv
	$(OLDEST)/bin/uv pip install --quiet --python $(OLDEST) --resolution lowest-direct --editable ".[all,test]"
	touch $@
