# Each target makes its own virtual environment in .venv when there is none.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint bench golden clean

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

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) out build dist src/*.egg-info
