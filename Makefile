# Everything runs in an environment of its own, made from pyproject.toml and constraints.txt on first use.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# One worker per core; each test process uses one torch thread (tests/conftest.py).
WORKERS ?= auto
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

.PHONY: demo test test-fast fuzz lint types bench clean

demo: $(VENV)/ready
	$(BIN)/cmalight demo

test: lint types
	$(PYTEST) --cov --cov-report=term-missing:skip-covered
	$(BIN)/coverage report --include="*/cmalight/rules/*.py" --fail-under=100

test-fast: $(VENV)/ready
	$(PYTEST) -m "not slow" -q

# Damaged and hostile files, and interruptions: how many cases of each kind, and which.
CASES ?= 2000
SEED ?= 0
fuzz: $(VENV)/ready
	CMALIGHT_FUZZ_CASES=$(CASES) CMALIGHT_FUZZ_SEED=$(SEED) $(PYTEST) tests/fuzz -q

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/ready
	$(BIN)/mypy

bench: $(VENV)/ready
	for script in benchmarks/bench_*.py; do $(BIN)/python $$script || exit 1; done

clean:
	rm -rf $(VENV) .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache dist

# hatchling is installed first, because the package is built without isolation: with it, pip would fetch an unpinned one.
$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed for the pinned tools" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt hatchling editables
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable ".[dev]"
	touch $@
