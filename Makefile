# The only entry for people and for CI. `make help` lists what there is.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
CONFIG ?= configs/sample-transformer.yaml

.DEFAULT_GOAL := help
.PHONY: help install train test lint format type check bench gpu-check faults docs clean sample

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(INSTALLED)  ## make .venv with `nmt` in it (needs Python 3.11 or newer)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "nmt needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Set PYTHON=..." >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

train: $(INSTALLED)  ## train the sample model, then show its test BLEU and ten translations
	$(BIN)/nmt train $(CONFIG)

test: $(INSTALLED)  ## run the tests
	$(BIN)/python -m pytest

lint: $(INSTALLED)  ## style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(INSTALLED)  ## put the code into the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

type: $(INSTALLED)  ## types, strict
	$(BIN)/mypy

check: lint type test  ## everything CI asks for

sample: $(INSTALLED)  ## write data/sample/*.tsv again from lexicon, grammar and phrasebook
	$(BIN)/python data/sample/make.py

bench: $(INSTALLED)  ## speed, measured and printed
	$(BIN)/python benchmarks/train.py --sizes small recurrent --rounds 3 --seconds 5 --out build/bench
	$(BIN)/python benchmarks/startup.py

gpu-check:  ## on a machine with a GPU, in four minutes and without installing: training, numbers, speed, memory
	PYTHONPATH=".$${PYTHONPATH:+:$$PYTHONPATH}" $(PYTHON) benchmarks/gpu_check.py

faults: $(INSTALLED)  ## run the tests of docs/faults.md
	$(BIN)/python -m pytest -m fault

docs: $(INSTALLED)  ## write the page and the pictures that are made from code
	$(BIN)/python docs/make_reference.py
	$(BIN)/python docs/make_pictures.py

clean:  ## remove .venv and caches (never runs/ or data/)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache *.egg-info
