# Each target makes its own virtual environment in .venv when there is none.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint bench speed golden viewer clean

demo: $(STAMP)
	$(BIN)/python -m abele run --system m2000 --system bow-2000 --advice --report out/demo examples/digits.py
	@echo "with this installation: $(BIN)/abele view out/demo"

test: $(STAMP)
	@$(MODULES) || echo "$$why: the viewer's tests in a browser are skipped"
	$(BIN)/python -m pytest -n auto
	$(BIN)/python docs/one_program.py > /dev/null

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pyright
	@if $(MODULES); then cd viewer && npm run --silent check && node build.js --check; \
	else echo "$$why: the viewer's sources and its bundle are not checked"; fi

bench: $(STAMP)
	$(BIN)/python -m benchmarks

# How long a person waits for the report in the browser; more than twice a limit is an error.
speed: $(STAMP)
	@if $(MODULES); then $(BIN)/python -m benchmarks viewer --rounds 3; else echo "$$why: the viewer's speed is not measured"; fi

golden: $(STAMP)
	$(BIN)/python -m tests.zoo.golden

# The viewer's script and style sheet from their sources; it is committed, so that nobody else needs Node.
viewer: viewer/node_modules
	cd viewer && npm run --silent check && node build.js

# One that is a link is shared by several working trees, and left as it is.
viewer/node_modules: viewer/package-lock.json
	test -L $@ || (cd viewer && npm ci --silent --no-audit --no-fund)
	touch $@

# What the viewer is built and tested with, where there is Node; else `why` says what is missing, and nobody fails for it.
MODULES = { why="Node is not installed"; command -v npm > /dev/null; } && { why="npm ci failed"; $(MAKE) --no-print-directory viewer/node_modules; }

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) out build dist src/*.egg-info
