# Two commands for a newcomer: make run, make test. Each sets up what is missing into .venv first.

PYTHON ?=
ARGS ?=
LAB_ARGS ?=
RUNS ?= 500
SEED ?=
# PYTHONPATH stays: CANN's set_env.sh sets it, and MindSpore on Ascend needs what it names.
unexport PYTHONHOME
export PYTHONNOUSERSITE = 1

PY = .venv/bin/python
NOTEBOOKS = notebooks/[0-9]*.ipynb
IS_ROOT = $(filter 0,$(shell id -u))

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup run test test-slow fuzz lint lab notebooks bench clean

help:
	@sed -n 's/^\([a-z-]*\):.*## /make \1	/p' Makefile | expand -t 18

setup:  ## make or update .venv; PYTHON=/path/to/python3.11 chooses the interpreter
	@for python in "$(PYTHON)" python3.11 python3 python3.12 python3.10 python; do \
	  if [ "$$("$$python" -I -c 'import sys; print(sys.version_info >= (3, 8))' 2>/dev/null)" = True ]; then \
	    exec "$$python" -I tools/set_up.py --python "$(PYTHON)"; \
	  fi; \
	done; \
	echo "set-up: Python 3.11 is needed and not on PATH; on Debian or Ubuntu:" \
	  "sudo apt install python3.11 python3.11-venv" >&2; \
	exit 2

run: setup  ## run the notebooks, judge them, write report.html; ARGS="02 --device-target Ascend"
	.venv/bin/msnb run $(ARGS)

test: lint  ## lint, types, fast tests, then every notebook against its outputs
	$(PY) -m pytest -n 2 --dist loadscope -m "not slow"
	$(PY) -m pytest -n 2 --dist loadscope --nbval-lax --nbval-current-env \
	  --nbval-cell-timeout=120 $(NOTEBOOKS)

test-slow: setup  ## the tests that take long: real browser, real set-up, many processes
	$(PY) -m pytest -n 2 --dist loadfile -m "slow and not network" --ignore=tests/test_notebooks.py
	$(PY) -m pytest -n 2 -m slow tests/test_notebooks.py

fuzz: setup  ## 500 random damages to each kind of file; RUNS=100 SEED=7 repeats those of a seed
	@seed="$(SEED)"; seed="$${seed:-$$(date +%s)}"; \
	echo "make fuzz RUNS=$(RUNS) SEED=$$seed repeats this"; \
	MSNB_FUZZ_RUNS="$(RUNS)" MSNB_FUZZ_SEED="$$seed" $(PY) -m pytest -n 2 --timeout=1800 \
	  -k random_damage

lint: setup  ## ruff and mypy
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

lab: setup  ## open JupyterLab on this machine only; LAB_ARGS="--no-browser"
	$(PY) -m jupyterlab --ServerApp.ip=127.0.0.1 --ServerApp.root_dir=. \
	  $(if $(IS_ROOT),--allow-root) $(LAB_ARGS)

notebooks: setup  ## run every notebook and write its outputs back
	$(PY) tools/rewrite_notebooks.py

bench: setup  ## what msnb itself costs, as ratios measured in one run; ARGS="launch" chooses
	$(PY) -m pip install --quiet --no-deps --disable-pip-version-check -r benchmarks/peers.txt
	$(PY) -m benchmarks $(ARGS)

clean:  ## remove runs and caches; .venv stays (rm -r .venv)
	rm -rf runs build dist .pytest_cache .mypy_cache .ruff_cache
	find . -path ./.venv -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
