# Everything happens in .venv. Its stamps are newer than pyproject.toml, or pip runs again.

VENV := .venv
BIN := $(VENV)/bin
ARGS ?=

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: install demo test check chaos mutants clean

install: $(VENV)/.dev

demo: $(VENV)/.runtime
	@$(BIN)/batonbus demo $(ARGS)

test: $(VENV)/.dev
	@echo "make test: all but the faults, three at a time"
	@$(BIN)/python -m pytest -n 3 -m "not faults"
	@echo "make test: the faults, two files at a time"
	@$(BIN)/python -m pytest -n 2 --dist loadfile -m faults

check: $(VENV)/.dev
	@echo "make check: style, types, published schemas"
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/pyright
	@$(BIN)/python -m batonbus_schemas.published --check

chaos mutants: export PYTHONPATH := $(CURDIR)/tests/faults:$(CURDIR)/tests/chaos

chaos: $(VENV)/.dev
	@$(BIN)/python -m chaos $(ARGS)

mutants: $(VENV)/.dev
	@$(BIN)/python -m mutants $(ARGS)

clean:
	@echo "make clean: everything but a bus's own data in .batonbus"
	@rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.made:
	@for python in python3 python3.13 python3.12 python3.11; do \
	  if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "make: $(VENV) with $$($$python --version)"; \
	    $$python -m venv $(VENV) && touch $@; exit; \
	  fi; \
	done; \
	echo "make: Python 3.11 or newer is needed, found $$(python3 --version 2>/dev/null || echo none):" \
	  "install it as python3, python3.13, python3.12 or python3.11" >&2; \
	exit 1

$(VENV)/.runtime: pyproject.toml | $(VENV)/.made
	@echo "make: installing batonbus in $(VENV)"
	@$(BIN)/python -m pip install -qq --editable .
	@$(BIN)/python -m compileall -q schemas bus agents # or the first fourteen processes all do it
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/.made
	@echo "make: installing batonbus and its development tools in $(VENV)"
	@$(BIN)/python -m pip install -qq --upgrade 'pip>=25.1' # the first that knows groups
	@$(BIN)/python -m pip install -qq --editable . --group dev
	@touch $@ $(VENV)/.runtime
