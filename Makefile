# make demo   the whole main job on a simulated rack        make test   all quick tests
# make check  lint + types + shell + tests                   make real   tests with real engines (after make real-setup)
# make bench  llmgwctl and its peers, measured              make profile   where the time goes
# make soak   the long counts     make fuzz   mutated outputs through every parser     make screenshots   docs/img
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
WORKERS ?= 2

.PHONY: setup demo test check lint types shell real real-llama real-setup soak bench profile bench-growth fuzz screenshots clean

setup: .venv/.done

.venv/.done: pyproject.toml
	@test -n "$(PYTHON)" || { echo "llmgwctl needs Python 3.11 or newer: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable . --group dev
	@touch $@

demo: setup
	$(BIN)/llmgwctl demo

test: setup
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

shell:
	shellcheck -s sh $$(git ls-files '*.sh' ':!:tests')

check: lint types shell test

real: setup
	$(BIN)/python -m pytest -m real --override-ini addopts='-ra --strict-markers' tests/real

# The one real engine that is quick enough for every landing, where it is built.
real-llama: setup
	LLMGW_REAL_REQUIRED=1 $(BIN)/python -m pytest -m real --override-ini addopts='-ra --strict-markers' tests/real/test_llamacpp.py

bench-growth: setup
	$(BIN)/python tests/bench/growth.py

# make bench CASE=light-1000 HOSTS=100 ROUNDS=1 tries one case; without CASE and HOSTS docs/benchmarks.md is written.
bench: setup
	PYTHONPATH=tests $(BIN)/python -m bench.run $(CASE) $(if $(HOSTS),--hosts $(HOSTS)) $(if $(ROUNDS),--rounds $(ROUNDS))

profile: setup
	PYTHONPATH=tests $(BIN)/python -m bench.profiling $(if $(HOSTS),--hosts $(HOSTS))

soak: setup
	LLMGW_E2E=1 $(BIN)/python -m pytest -m soak --override-ini addopts='-ra --strict-markers'

fuzz: setup
	$(BIN)/python tests/fuzz/run.py

screenshots: setup
	$(BIN)/python tests/browser/screenshots.py

real-setup:
	PYTHON=$(PYTHON) tests/real/setup.sh

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build
