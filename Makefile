# `make run` and `make test` do all their set-up on a fresh machine: the virtual environment and the pinned packages.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
EXTRAS := video,hub,lite,onnx,plots,ray,trackers,dev
# two busy threads on a loaded machine can be ten times slower than one
export OMP_NUM_THREADS ?= 1

.PHONY: run test test-all lint clean

run: $(STAMP)
	OMP_NUM_THREADS= $(BIN)/primavista run $(ARGS)

test: $(STAMP) lint
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-all: $(STAMP) lint
	$(BIN)/python -m pytest -n 2

lint: $(STAMP)
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
		{ [ "$$(id -u)" = 0 ] && apt-get update -q && apt-get install -qy python3-venv && $(PYTHON) -m venv $(VENV); }
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[$(EXTRAS)]"
	touch $(STAMP)

clean:
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache
