# make demo and make test set themselves up; everything else is for working on tokenmill.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SETUP := $(VENV)/.installed
DEMO_SETUP := $(VENV)/.installed-for-demo
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check
# A line for each ten packages, so that one sees a slow network from a broken one.
SHOWN := while read -r word _; do case $$word in \
	Collecting) (( ++found % 10 )) || echo "  $$found packages found" ;; \
	Installing) echo "  copying their files ..." ;; esac; done
SHELL := /bin/bash
.SHELLFLAGS := -eo pipefail -c

.DEFAULT_GOAL := help

.PHONY: help
help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(SETUP): pyproject.toml requirements-dev.txt
	@echo "installing everything that the tests use into $(VENV): 2.5 GB, 3 to 10 minutes ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP_INSTALL) -r requirements-dev.txt | $(SHOWN)
	@$(PIP_INSTALL) --no-deps -e . | $(SHOWN)
	@touch $@ $(DEMO_SETUP)

# Only what the demo runs: no PyTorch, no test tools.
$(DEMO_SETUP): pyproject.toml requirements-dev.txt
	@echo "installing tokenmill and its libraries into $(VENV): 0.5 GB, about a minute ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP_INSTALL) --constraint requirements-dev.txt --editable . fastokens | $(SHOWN)
	@touch $@

.PHONY: demo
demo: $(DEMO_SETUP)  ## the main job on text that every machine has: Python's own library
	$(BIN)/python demo/demo.py

.PHONY: test
test: $(SETUP)  ## every test but the long trials and those that need a cluster
	$(BIN)/python -m pytest -m "not soak and not cluster" -n 2 --dist worksteal

.PHONY: quick
quick: $(SETUP)  ## before each commit, in two minutes: the first tests of every file
	$(BIN)/python -m pytest -m "not soak and not cluster" -n 2 --dist worksteal --first 2

.PHONY: check
check: $(SETUP)  ## format, lint, types, import rules, tests: what CI runs
	$(BIN)/ruff format --check src tests bench demo examples docs/*.py
	$(BIN)/ruff check src tests bench demo examples docs/*.py
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(MAKE) test

.PHONY: wheel
wheel:  ## build sdist and wheel, and run the demo with the wheel in an empty environment
	PYTHON=$(PYTHON) .ci/wheel

.PHONY: pictures
pictures: $(SETUP)  ## take the pictures of pages in docs/images: needs make demo and Chromium
	$(BIN)/python docs/pictures.py

PLOT_FILE := src/tokenmill/reports/page/plot.min.js
.PHONY: charts
charts:  ## bundle the chart library of pages anew: needs npm
	npm install --prefix build/charts @observablehq/plot@0.6.17 d3@7.9.0 esbuild@0.28.2
	echo 'export { barX, dot, lineY, plot, rectY, ruleX, ruleY, text } from "@observablehq/plot";' > build/charts/entry.js
	(echo "/* Observable Plot 0.6.17 and d3 7.9.0, bundled by make charts. Their licences:"; \
		cat build/charts/node_modules/{@observablehq/plot,d3}/LICENSE; echo "*/") > $(PLOT_FILE)
	build/charts/node_modules/.bin/esbuild build/charts/entry.js --bundle --minify --format=iife --global-name=Plot \
		--target=es2020 --charset=utf8 --legal-comments=none >> $(PLOT_FILE)

.PHONY: format
format: $(SETUP)  ## format the code, and mend what lint can mend
	$(BIN)/ruff format src tests bench demo examples docs/*.py
	$(BIN)/ruff check --fix src tests bench demo examples docs/*.py

.PHONY: soak
soak: $(SETUP)  ## long trials: 1,000 kills, a fault at each file-system call, fuzzing, memory over a long run
	$(BIN)/python -m pytest -m "soak and not cluster" --timeout 7200

.PHONY: cluster
cluster: $(SETUP)  ## tests on Slurm, Ray, JAX, Azurite and FUSE: installs them where it may, skips by name the rest
	.ci/cluster --timeout 900

.PHONY: readers
readers:  ## official readers of other projects, in environments of their own, for the tests
	$(PYTHON) -m venv .venv-readers
	.venv-readers/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	.venv-readers/bin/python -m pip install --quiet --disable-pip-version-check megatron-core==0.16.1
	for reader in datatrove==0.10.1 ai2-olmo-core==3.0.0 mosaicml-streaming==0.13.0 litdata==0.2.76; do \
		folder=.venv-readers-$${reader%%==*} && $(PYTHON) -m venv $$folder && \
		$$folder/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 $$reader || exit 1; \
	done
	if command -v python3.12 >/dev/null; then \
		python3.12 -m venv .venv-readers-newest && \
		.venv-readers-newest/bin/python -m pip install --quiet --disable-pip-version-check torch megatron-core==0.19.2; \
	fi

.PHONY: readers-table
readers-table: $(SETUP)  ## compare what the official readers that are installed read, and write the table of the guide
	$(BIN)/python bench/readers.py --write

.PHONY: docs
docs: $(SETUP)  ## the documentation site in site/, every link checked; needs no network
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open site/index.html"

.PHONY: notebook
notebook: $(SETUP)  ## run the notebook in examples/ and keep its outputs
	$(BIN)/python examples/run_notebook.py

.PHONY: clean
clean:  ## remove the environments and the output of demo and examples
	rm -rf $(VENV) .venv-readers .venv-readers-* .venv-cluster .cluster dist site demo/out examples/out
