# make demo    set up, and run the main job end to end
# make test    set up, and run the tests: every law and every promise
# make test-all  the same laws, each repeated many times, and peers' suites
# make check   set up, and run what reads the code: formats, lints, types, layers
# make bench   set up, and print the benchmarks' tables
# make wheel   set up, and build a wheel for glibc 2.28 and newer (manylinux_2_28) into dist
# make conformance   set up, and run peers' test suites natively and under the connector
# make clean   remove what make made
#
# Everything goes into .venv; nothing but PyPI is needed. Another Python: make PYTHON=python3.12 demo

# The first that starts and is new enough (a shim of pyenv may exist and not start).
ifndef PYTHON
PYTHON := $(firstword $(shell for p in python3 python3.13 python3.12 python3.11; do \
              $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && \
                  echo $$p; done) python3)
endif
VENV := .venv
PY := $(VENV)/bin/python
# Where make writes to a terminal, pip shows how far it is.
PIP := $(PY) -m pip --disable-pip-version-check $(if $(MAKE_TERMOUT),,-q)
NATIVE := $(shell find native sds/redirect/vol -type f ! -name '*.md' 2>/dev/null)
PATHS := sds alembic tests benchmarks
# As many workers as tests/conftest.py says; tests of one file share what they set up.
WORKERS := -n auto --dist loadfile --no-loadscope-reorder

.PHONY: demo test test-all check bench conformance build wheel clean
.DELETE_ON_ERROR:

demo: $(VENV)/built
	$(VENV)/bin/sds demo

test: $(VENV)/built $(VENV)/test-tools
	$(PY) -m pytest $(WORKERS)

test-all: $(VENV)/built $(VENV)/test-tools
	SDS_TESTS=all $(PY) -m pytest $(WORKERS) -o timeout=7200

check: $(VENV)/built $(VENV)/test-tools $(VENV)/check-tools
	$(VENV)/bin/ruff format --check $(PATHS)
	$(VENV)/bin/ruff check $(PATHS)
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-cache
	$(VENV)/bin/clang-format --dry-run --Werror $$(git ls-files '*.c' '*.h' '*.cpp')

bench: $(VENV)/built $(VENV)/test-tools
	$(PY) -m benchmarks

conformance: $(VENV)/built $(VENV)/test-tools
	$(PY) -m benchmarks.conformance

build: $(VENV)/built

wheel: $(VENV)/built
	$(PIP) install --group wheel
	rm -rf build/wheel
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(PIP) wheel --no-deps --no-build-isolation -w build/wheel .
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" auditwheel repair --plat manylinux_2_28_$$(uname -m) \
	    --wheel-dir dist build/wheel/*.whl

$(PY):
	@scripts/prerequisites $(PYTHON)
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade 'pip>=25.1'

# Editable: Python is run from the source tree, compiled parts from $(VENV).
$(VENV)/built: $(PY) pyproject.toml CMakeLists.txt $(NATIVE)
	@scripts/prerequisites $(PYTHON)
	$(PIP) install --group build
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(PIP) install --no-build-isolation --editable '.[all]'
	@touch $@

$(VENV)/test-tools: $(PY) pyproject.toml
	$(PIP) install --group test
	@touch $@

$(VENV)/check-tools: $(PY) pyproject.toml
	$(PIP) install --group check
	@touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
