# make demo    install, prepare small corpora, pretrain, evaluate, write a report: about four minutes on two cores
# make checkpoints    train five small checkpoints to try, after a demo or from nothing
# make test    install if needed, run the gate: the tests of every change
# make test-docs, test-gpu, test-systems, test-scale, test-slow    run the other tests: all pages of the documentation, the
#     simulated CUDA device, every recipe, many processes (random kills, object stores, Ray), what takes long; SHARE=4
#     runs every fourth case
# make test-all    run all tests
# make test-newest    run the tests with the newest packages of the index, on each Python of PYTHONS that is there; SHARE too
# make test-machines    run the tests as other machines would: other kernels, threads, a busy neighbour
# make lint    ruff and mypy
# make pages    regenerate the pages of docs/ that come from the code
# make docs    build the site of docs/ into build/site
# make dist    build the wheel and the source distribution into dist/
# make systems DATA=FOLDER KIND=knowledge    train every system of a kind in its tiny size on raw corpora, next to chance
# make results DATA=FOLDER    the first results of the README, on raw corpora: about thirty minutes on two cores
# make soak    random kills, signals, full disks, damage and bad values for HOURS=1 or SECONDS=60; AREAS=kills,signals SEED=7

VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
HOURS ?= 1
SEED ?= 0
KIND ?= text
PYTHONS ?= 3.11 3.12 3.13 3.14
SHARE ?= 1
SHARED := --share $(SHARE)
PARALLEL := --numprocesses 2 --dist worksteal
GATE := --numprocesses 2 --dist loadfile -m "not (slow or scale or docs or simulator or systems)"
export OMP_NUM_THREADS ?= 2
export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: demo checkpoints results systems soak test test-all test-docs test-gpu test-systems test-scale test-slow test-machines test-newest lint pages docs dist clean

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed, this is " + sys.version.split()[0])'
	$(PYTHON) -m venv "$(VENV)"
	"$(BIN)/python" -m pip install --quiet --upgrade pip
	"$(BIN)/python" -m pip install --quiet --constraint constraints.txt --editable '.[dev,demo]'
	@touch "$(INSTALLED)"

demo: $(INSTALLED)
	"$(BIN)/python" -m pipelines.demo run runs/demo
	@printf '%s\n' '' 'Next, in this shell (docs/quickstart.md):' '  source "$(abspath $(BIN))/activate"' \
		'  python -m pipelines.demo small-files try-quickstart' '  cd try-quickstart' \
		'  workbench prepare text notes.txt --output corpora/text --split held-out=0.1' \
		'Without activating, the commands are $(BIN)/workbench and $(BIN)/python.'

checkpoints: $(INSTALLED)
	"$(BIN)/python" -m pipelines.demo checkpoints runs/demo

test: $(INSTALLED)
	OMP_NUM_THREADS=1 "$(BIN)/python" -m pytest $(GATE) --budget 2

test-all: $(INSTALLED)
	OMP_NUM_THREADS=1 "$(BIN)/python" -m pytest $(PARALLEL)

test-docs test-systems: $(INSTALLED)
	OMP_NUM_THREADS=1 "$(BIN)/python" -m pytest $(PARALLEL) $(SHARED) -m "$(@:test-%=%) and not slow"

test-gpu: $(INSTALLED)
	OMP_NUM_THREADS=1 "$(BIN)/python" -m pytest $(PARALLEL) $(SHARED) -m "simulator and not slow"

test-scale: $(INSTALLED)
	OMP_NUM_THREADS=1 "$(BIN)/python" -m pytest $(SHARED) -m "scale and not slow"

test-slow: $(INSTALLED)
	OMP_NUM_THREADS=1 "$(BIN)/python" -m pytest $(PARALLEL) $(SHARED) -m slow

test-machines: $(INSTALLED)
	"$(BIN)/python" tests/machines.py $(GATE)

test-newest:
	"$(PYTHON)" tests/newest_packages.py --folder build/newest --pythons $(PYTHONS) -- $(SHARED) $(GATE)

soak: $(INSTALLED)
	OMP_NUM_THREADS=1 "$(BIN)/python" -m tests.robustness.soak --seed $(SEED) --output runs/soak \
		$(if $(AREAS),--areas $(AREAS)) $(if $(SECONDS),--seconds $(SECONDS),--hours $(HOURS))

systems: $(INSTALLED)
	"$(BIN)/python" -m benchmarks.tiny_systems --kind $(KIND) --data "$(DATA)" --output runs/systems

results: $(INSTALLED)
	OMP_NUM_THREADS=1 "$(BIN)/python" -m benchmarks.first_results --data "$(or $(DATA),$(error say DATA=FOLDER, the folder of the raw corpora))" --output runs/results

lint: $(INSTALLED)
	"$(BIN)/ruff" check .
	"$(BIN)/ruff" format --check .
	"$(BIN)/mypy"

pages: $(INSTALLED)
	"$(BIN)/python" -m pipelines.reference docs

docs: $(INSTALLED)
	"$(BIN)/zensical" build --strict --clean

dist: $(INSTALLED)
	"$(BIN)/python" -m build

clean:
	rm -rf "$(VENV)" build dist *.egg-info
