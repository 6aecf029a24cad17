# Each target makes its own virtual environment in .venv when there is none.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint bench golden viewer clean

demo: $(STAMP)
	$(BIN)/python -m abele run --system m2000 --system bow-2000 --report out/demo examples/digits.py

test: $(STAMP)
	$(BIN)/python -m pytest -n auto
	$(BIN)/python docs/one_program.py > /dev/null

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pyright

bench: $(STAMP)
	$(BIN)/python -m benchmarks

golden: $(STAMP)
	$(BIN)/python -m tests.zoo.golden

# The viewer's script and style sheet from their sources; it is committed, so that nobody else needs Node.
viewer: viewer/node_modules
	cd viewer && npm run --silent check && node build.js

viewer/node_modules: viewer/package-lock.json
	cd viewer && npm ci --silent --no-audit --no-fund
	touch $@

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) out build dist src/*.egg-info
