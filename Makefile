# make demo    install, prepare three small corpora, pretrain, evaluate, write a report
# make test    install if needed, run the tests
# make test-machines    run the tests as other machines would: other kernels, threads, a busy neighbour
# make lint    ruff and mypy

VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
PARALLEL := --numprocesses 2 --dist worksteal
export OMP_NUM_THREADS ?= 2
export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: demo test test-all test-machines lint clean

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed, this is " + sys.version.split()[0])'
	$(PYTHON) -m venv "$(VENV)"
	"$(BIN)/python" -m pip install --quiet --upgrade pip
	"$(BIN)/python" -m pip install --quiet --constraint constraints.txt --editable '.[dev,demo]'
	@touch "$(INSTALLED)"

demo: $(INSTALLED)
	"$(BIN)/python" -m pipelines.demo run runs/demo

test: $(INSTALLED)
	OMP_NUM_THREADS=1 "$(BIN)/python" -m pytest $(PARALLEL) -m "not slow"

test-all: $(INSTALLED)
	OMP_NUM_THREADS=1 "$(BIN)/python" -m pytest $(PARALLEL)

test-machines: $(INSTALLED)
	"$(BIN)/python" tests/machines.py $(PARALLEL) -m "not slow"

lint: $(INSTALLED)
	"$(BIN)/ruff" check .
	"$(BIN)/ruff" format --check .
	"$(BIN)/mypy"

clean:
	rm -rf "$(VENV)" build dist *.egg-info
