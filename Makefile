# `make run` and `make test` do all their set-up on a fresh machine: the virtual environment and the pinned packages.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check
EXTRAS := train,live,video,heic,hub,lite,mqtt,onnx,plots,ray,sklearn,river,dev,docs
# two busy threads on a loaded machine can be ten times slower than one
export OMP_NUM_THREADS ?= 1

# a worker of the tests takes up to 1.75 GB
PYTEST := -m pytest -n logical --maxprocesses 8 --dist loadgroup

.PHONY: run test test-all test-avalanche coverage lint docs dist web lock sbom programs clean

run: $(STAMP)
	env -u OMP_NUM_THREADS $(BIN)/primavista run $(ARGS)

test: $(STAMP) lint
	$(BIN)/python $(PYTEST) -m "not slow" $(ARGS)

# with ARGS=--no-skips, a test that is skipped for anything but a missing GPU or Avalanche fails it
test-all: $(STAMP) lint programs web
	$(BIN)/python $(PYTEST) $(ARGS)

# the share of src that all tests reach, as docs/images/coverage.svg and as a table; tests of speed and memory may fail
coverage: $(STAMP) programs web
	$(BIN)/python -m coverage erase
	-$(BIN)/python -m coverage run $(PYTEST) $(ARGS)
	$(BIN)/python -m coverage combine -q
	$(BIN)/python tools/coverage_figure.py

# the adapter for Avalanche and benchmarks/peers.py, with the real one, in an environment of its own
# (some minutes, 1.5 GB)
test-avalanche:
	$(PYTHON) benchmarks/peer_environment.py .venv-avalanche
	.venv-avalanche/bin/python -m pytest tests/adapters/test_avalanche.py tests/benchmarks/test_peers.py

lint: $(STAMP)
	$(BIN)/ruff check src tests benchmarks examples tools
	$(BIN)/ruff format --check src tests benchmarks examples tools
	$(BIN)/mypy
	$(BIN)/lint-imports

# the documentation site, in site/; a broken link fails
docs: $(STAMP) web
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# the wheel and the source distribution, in dist/packages
dist: $(STAMP) web
	test -f src/primavista/web/built/worker.js
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist/packages .

# the scripts of the page without a server, in src/primavista/web/built; npm installs what web/package-lock.json names
web: $(STAMP)
	command -v npm >/dev/null || [ "$$(id -u)" != 0 ] || \
		{ apt-get update -q && apt-get install -qy --no-install-recommends nodejs npm; }
	if command -v npm >/dev/null; then $(BIN)/python tools/build_web.py; \
		else echo "Tests of the page without a server will be skipped unless npm is installed"; fi

# the version and the hashes of every file that `make` installs; UPGRADE=NAME takes the newest version of a package
lock: $(STAMP)
	$(BIN)/python tools/lock.py --extras $(EXTRAS) $(addprefix --upgrade ,$(UPGRADE))

# the bill of materials (CycloneDX), in dist/
sbom: $(STAMP)
	$(BIN)/python tools/sbom.py

$(STAMP): pyproject.toml $(wildcard locks/*.txt)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
		{ [ "$$(id -u)" = 0 ] && apt-get update -q && apt-get install -qy python3-venv && $(PYTHON) -m venv $(VENV); }
	$(PIP) --require-hashes --no-deps -r locks/all.txt
	$(PIP) --require-hashes --no-deps -r locks/torch-cpu.txt 2>/dev/null || \
		$(PIP) --require-hashes --no-deps -r locks/torch.txt
	$(PIP) --no-deps --no-build-isolation -e .
	$(BIN)/python -m pip check
	touch $(STAMP)

# what the slow tests need beside Python: a browser, LaTeX, an RTSP server and a broker
PROGRAMS := chromium texlive-latex-base texlive-latex-recommended mosquitto \
	python3-gi gir1.2-gst-rtsp-server-1.0 gstreamer1.0-plugins-good
programs:
	dpkg -s $(PROGRAMS) >/dev/null 2>&1 || if [ "$$(id -u)" = 0 ]; \
		then apt-get update -q && apt-get install -qy --no-install-recommends $(PROGRAMS); \
		else echo "Tests will be skipped unless these are installed: $(PROGRAMS)"; fi

clean:
	rm -rf $(VENV) .venv-avalanche .coverage dist build site .pytest_cache .mypy_cache .ruff_cache web/node_modules src/primavista/web/built
