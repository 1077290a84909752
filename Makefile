# Everything runs in an environment of its own, made from pyproject.toml and constraints.txt on first use.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# One worker per core; each test process uses one torch thread. The tests of a file share a worker, so that what they
# share is made once, and the longest files come first (tests/conftest.py).
WORKERS ?= auto
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: demo test test-fast fuzz lint types bench docs docs-serve dist release clean

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

# The tag of the version in src/cmalight/__init__.py. The tree, the changelog and the citation are looked at first, then
# what is published is built and checked, then it is tagged. Pushing the tag publishes.
release: $(VENV)/ready
	@$(BIN)/python tools/release.py
	$(MAKE) dist
	@version=$$($(BIN)/python tools/release.py) && git tag --annotate "v$$version" --message "CMALight $$version" \
	&& echo "tagged v$$version: git push origin v$$version publishes it"

bench: $(VENV)/ready
	for script in benchmarks/bench_*.py; do $(BIN)/python $$script || exit 1; done

clean:
	rm -rf $(VENV) .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache dist site

# pip fetches the pinned versions, torch in the build that this machine's index or PIP_FIND_LINKS has. Then it installs
# from these files alone, and refuses one whose hash is not listed. The last install fails where a pin is missing.
PIP := $(BIN)/python -m pip --quiet
WHEELS := $(VENV)/wheels
$(VENV)/ready: pyproject.toml constraints.txt constraints-cuda.txt
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed for the pinned tools" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	rm -rf $(WHEELS) && mkdir $(WHEELS)
	sed -n 's/ *\\$$//; /==/p' constraints.txt > $(WHEELS)/pins.txt
	$(PIP) download --only-binary :all: --no-deps --dest $(WHEELS) --requirement $(WHEELS)/pins.txt
	$(PIP) install --no-index --find-links $(WHEELS) --no-deps --require-hashes --requirement constraints.txt
	ls $(WHEELS)/torch-*+cpu-*.whl >$(WHEELS)/cpu.txt 2>&1 || $(PIP) install --no-deps --require-hashes --requirement constraints-cuda.txt
	$(PIP) install --no-index --no-build-isolation --editable ".[dev]"
	rm -rf $(WHEELS)
	touch $@
