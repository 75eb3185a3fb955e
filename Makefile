# Attention, Measured. `make help` lists what this does.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# Python 3.11 or newer: PYTHON=... if given, else the first of these that runs
# (one that is there may still refuse to run, as pyenv's shims do).
CANDIDATES := $(or $(PYTHON),python3 python3.13 python3.12 python3.11 python)
COLAB_CANDIDATES := $(or $(PYTHON),python3.13 \
  $(wildcard $(HOME)/.pyenv/versions/3.13*/bin/python3) $(CANDIDATES))
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
# Makes the environment $(1) with the first of $(2) that will do, or says how.
define environment
for p in $(2); do "$$p" -c '$(NEW_ENOUGH)' 2>/dev/null && found=$$p && break; done; \
if [ -z "$${found:-}" ]; then \
  echo "This book needs Python 3.11 or newer. Of $(2), none is."; \
  echo "Install one (https://www.python.org/downloads/), then: make $(MAKECMDGOALS) PYTHON=/path/to/python3"; \
  exit 1; \
fi; \
"$$found" -m venv $(1) || { \
  echo "$$found cannot make a virtual environment: install its venv module (Debian: apt install python3-venv)."; \
  rm -rf $(1); exit 1; }
endef
VENV := .venv
BIN := $(VENV)/bin
COLAB := .venv-colab
LAB := .venv-lab
OTTER := .venv-otter
ORACLES := .venv-oracles
CLUSTER := .venv-cluster
PAGE := _build/html/index.html
# Waiting threads sleep instead of spinning: two runs can share two cores.
export OMP_WAIT_POLICY := PASSIVE
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYDEVD_DISABLE_FILE_VALIDATION := 1
# A test run starts hundreds of processes: each would compile the library again
# where the environment says that compiled modules are not kept.
unexport PYTHONDONTWRITEBYTECODE

# On a terminal, installs and builds show how far they are; into a log they
# write nothing, and pytest writes its dots on one line.
QUIET := $(shell [ -t 2 ] || echo -q)
PYTEST := -m pytest -q $(if $(QUIET),-o console_output_style=classic)
# A worker for each processor; four at most, for one takes up to 1.5 GB.
WORKERS := -n logical --maxprocesses 4

# Tests that cannot or need not run with shapes checked, and other stages' tests.
UNSHAPED := refusal or precision or compiled or kernel
OTHERS := javascript or browser or bank

NBVAL := --nbval --nbval-current-env --nbval-cell-timeout 300 -p no:cacheprovider
NOTEBOOKS := $(sort $(wildcard chapters/[0-9][0-9]_*.ipynb))

.PHONY: help book pdf test test-processors test-colab test-lab test-otter test-oracles models links measure measure-grading evidence notebook pages \
  bank kinds margins messages teach repository screenshots clean check gpu gpu-full \
  lint unit plainest shapes javascript notebooks browser
.NOTPARALLEL:

help:  ## list these targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 22

$(BIN)/python:
	@$(call environment,$(VENV),$(CANDIDATES))

# Dependency groups need pip 25.1.
$(VENV)/pip.stamp: | $(BIN)/python
	@$(BIN)/python -c '$(NEW_ENOUGH)' || { \
	  echo "$(VENV) has Python older than 3.11: type make clean, then this again."; exit 1; }
	$(BIN)/python -m pip install $(QUIET) --upgrade "pip>=25.1"
	@touch $@

# requirements.txt is the lock; the groups in pyproject.toml say who needs what.
$(VENV)/book.stamp: pyproject.toml requirements.txt $(VENV)/pip.stamp
	$(BIN)/python -m pip install $(QUIET) -c requirements.txt --group book
	@touch $@

$(VENV)/test.stamp: pyproject.toml requirements.txt $(VENV)/pip.stamp
	$(BIN)/python -m pip install $(QUIET) -r requirements.txt
	$(BIN)/python -m pip install $(QUIET) --no-deps -e .
	@touch $@ $(VENV)/book.stamp

# Pages that have not changed are not built again. Everything is, if a page came
# or went, if code, configuration or packages have changed, or if the last build
# had a warning: so no page and no warning outlives its cause.
book: $(VENV)/book.stamp  ## build the book (no torch, no Node, no browser), warnings are errors
	@inputs=$$( { ls chapters chapters/*/; find lib Makefile _*.yml *.bib requirements.txt -type f -not -name '*.pyc' -exec cksum {} + | sort; } | cksum); \
	[ "$$inputs" = "$$(cat _build/built-from 2>/dev/null)" ] || rm -rf _build; \
	mkdir -p _build; rm -f _build/built-from; \
	$(BIN)/jupyter-book build . -W -n --keep-going $(QUIET); \
	echo "$$inputs" > _build/built-from
	@echo "Open file://$(CURDIR)/$(PAGE)"

pdf: $(VENV)/test.stamp book  ## print the whole book as one PDF file (needs Chromium)
	@$(BIN)/python -m workshop.book.pdf _build/html _build/pdf/attention_measured.pdf

# In this order: what fails fast comes first.
STAGES := lint unit plainest shapes javascript notebooks book browser
test: $(VENV)/test.stamp  ## prove all of it, from lint to the pages in a browser
	@took=; for stage in $(STAGES); do \
	  began=$$(date +%s); $(MAKE) --no-print-directory $$stage; \
	  took="$${took:+$$took, }$$stage $$(($$(date +%s) - began)) s"; echo "So far: $$took"; \
	done

check: $(VENV)/test.stamp  ## after an edit: lint, and the tests, notebook and page of what changed (SINCE=main)
	@$(BIN)/python -m workshop.book.check "$(or $(SINCE),HEAD)"

# .pre-commit-config.yaml has the same commands.
lint: $(VENV)/test.stamp  ## lint, format and types; JavaScript, workflows and CITATION.cff
	$(BIN)/python -m ruff check
	$(BIN)/python -m ruff format --check
	$(BIN)/python -m workshop.progress mypy -- $(BIN)/python -m mypy
	$(BIN)/oxlint lib
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff
	$(BIN)/zizmor --offline --quiet .github

unit: $(VENV)/test.stamp  ## unit tests that run without a check of shapes
	$(BIN)/python $(PYTEST) $(WORKERS) --dist worksteal -m "($(UNSHAPED)) and not ($(OTHERS))"

# The oldest instructions round and add in another order, as other machines do.
plainest: $(VENV)/test.stamp  ## the quick numeric tests again, with this processor's oldest instructions
	$(BIN)/python -m workshop.book.processors --quick plainest

shapes: $(VENV)/test.stamp  ## the other unit tests, every shape checked at run time
	$(BIN)/python $(PYTEST) $(WORKERS) --dist worksteal -m "not ($(UNSHAPED) or $(OTHERS))" \
	  --jaxtyping-packages=attnbook,workshop,beartype.beartype

javascript: $(VENV)/test.stamp  ## the widgets' JavaScript, in an engine that pip installs
	$(BIN)/python $(PYTEST) -m javascript \
	  $$(grep -rl mark.javascript tests --include='test_*.py')

# One kernel a notebook: loadscope keeps its cells together.
notebooks: $(VENV)/test.stamp  ## every notebook again, its outputs compared
ifneq ($(NOTEBOOKS),)
	OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST) $(WORKERS) --dist loadscope $(NBVAL) $(NOTEBOOKS)
endif

# One page's tests stay together (conftest.py), so one visit serves them all.
# If Chromium stops answering, pytest ends that worker after ten minutes. The
# test counts as failed and runs again; three such ends stop the whole run.
browser: $(VENV)/test.stamp  ## the built pages in Chromium
	$(BIN)/python $(PYTEST) $(WORKERS) --dist loadgroup -m browser -rs \
	  -o faulthandler_exit_on_timeout=true --max-worker-restart 2 \
	  $$(grep -rl mark.browser tests --include='test_*.py')

# torch: TORCH=2.11.0 for Colab's own; the wheel that pip finds otherwise.
test-colab:  ## the notebooks with Colab's versions (Python 3.13 if there is one)
	@[ -x $(COLAB)/bin/python ] || { $(call environment,$(COLAB),$(COLAB_CANDIDATES)); }
	$(COLAB)/bin/python -m pip install $(QUIET) --upgrade "pip>=25.1"
	$(COLAB)/bin/python -m pip install $(QUIET) torch$(addprefix ==,$(TORCH)) \
	  ipython==7.34.0 ipykernel==6.17.1 ipywidgets==7.7.1 anywidget==0.9.21 \
	  numpy==2.1.3 \
	  "setuptools<81" pytest pytest-xdist nbval==0.11.0 -e .
	OMP_NUM_THREADS=1 $(COLAB)/bin/python -m pytest -q -c /dev/null --rootdir . \
	  $(WORKERS) --dist loadscope --nbval-lax --nbval-current-env \
	  --nbval-cell-timeout 300 -p no:cacheprovider $(NOTEBOOKS)

# An environment of its own, without torch: the widgets need none.
test-lab:  ## the widgets live in JupyterLab, in a headless Chromium
	@[ -x $(LAB)/bin/python ] || { $(call environment,$(LAB),$(CANDIDATES)); }
	$(LAB)/bin/python -m pip install $(QUIET) --upgrade "pip>=25.1"
	$(LAB)/bin/python -m pip install $(QUIET) -c requirements.txt jupyterlab==4.6.6 \
	  ipykernel ipywidgets anywidget playwright pytest
	$(LAB)/bin/python -m pip install $(QUIET) --no-deps -e .
	$(LAB)/bin/python -m pytest -q -c /dev/null --rootdir . --noconftest \
	  -p no:cacheprovider tests/live/live_jupyterlab.py

# An environment of its own: otter brings 90 packages, and no reader needs them.
test-otter:  ## otter-grader takes our assignments: right, wrong and empty submissions
	@[ -x $(OTTER)/bin/python ] || { $(call environment,$(OTTER),$(CANDIDATES)); }
	$(OTTER)/bin/python -m pip install $(QUIET) --upgrade "pip>=25.1"
	$(OTTER)/bin/python -m pip install $(QUIET) otter-grader==7.0.0 torch jupytext \
	  ipykernel pytest -e .
	OMP_NUM_THREADS=1 $(OTTER)/bin/python -m pytest -q -c /dev/null --rootdir . \
	  --noconftest -p no:cacheprovider tests/live/live_otter.py

# An environment of its own: no reader needs the packages that others wrote of
# the same methods. Each file tests/oracles/against_*.py compares with one.
test-oracles:  ## the library equals transformers and others; nothing is skipped
	@[ -x $(ORACLES)/bin/python ] || { $(call environment,$(ORACLES),$(CANDIDATES)); }
	$(ORACLES)/bin/python -m pip install $(QUIET) --upgrade "pip>=25.1"
	$(ORACLES)/bin/python -m pip install $(QUIET) -c requirements.txt -r tests/oracles/requirements.txt -e .
	$(ORACLES)/bin/python -m attnbook.models.smollm2
	$(ORACLES)/bin/python -m attnbook.models.whisper_tiny
	OMP_NUM_THREADS=1 $(ORACLES)/bin/python $(PYTEST) $(WORKERS) --dist worksteal tests/oracles/against_*.py

# Neither the pages nor make test need them; with them, cells on both models run.
models: $(VENV)/test.stamp  ## fetch SmolLM2-135M (93 MB) and Whisper tiny.en (71 MB) into ~/.cache/attnbook
	$(BIN)/python -m pip install $(QUIET) -c requirements.txt -c tests/oracles/requirements.txt gguf tokenizers
	@$(BIN)/python -m attnbook.models.smollm2
	@$(BIN)/python -m attnbook.models.whisper_tiny

# An environment of its own: no reader needs Dask, and its workers' imports of
# PyTorch take longer than all other tests of the grader.
test-cluster:  ## grading on a Dask cluster of two workers, one of which is killed
	@[ -x $(CLUSTER)/bin/python ] || { $(call environment,$(CLUSTER),$(CANDIDATES)); }
	$(CLUSTER)/bin/python -m pip install $(QUIET) --upgrade "pip>=25.1"
	$(CLUSTER)/bin/python -m pip install $(QUIET) -c requirements.txt \
	  distributed==2026.8.0 ipython pytest -e ".[cluster]"
	OMP_NUM_THREADS=1 $(CLUSTER)/bin/python -m pytest -q -c /dev/null --rootdir . \
	  --noconftest -p no:cacheprovider tests/live/live_cluster.py

links: $(VENV)/book.stamp  ## ask every external link of the pages whether it still leads somewhere
	$(BIN)/jupyter-book build . --builder linkcheck --path-output _build/links $(QUIET)

# ONLY: some settings, as in ONLY="plainest MKL_CBWR=AVX2". What passed is kept,
# so that a run that was interrupted goes on.
test-processors: $(VENV)/test.stamp  ## numeric tests and notebooks under every instruction set (ONLY="MKL_CBWR=AVX2")
	$(BIN)/python -m workshop.book.processors $(ONLY) -- --dist loadscope $(NBVAL) $(NOTEBOOKS)

measure: $(VENV)/test.stamp  ## weigh and time the built pages; build time by number of chapters
	$(BIN)/python -m workshop.book.measure _build/html

measure-grading: $(VENV)/test.stamp  ## time every check, and grading 100 notebooks; extrapolate to 1,000
	$(BIN)/python -m workshop.book.measure_grading

# On a bare machine with a GPU: its own Python, no environment, no network.
gpu:  ## what needs a GPU, in 9 minutes at most: make gpu OUT=folder [PYTHON=...]
gpu-full:  ## the same, with every row of the benchmark; repeat it until all is done
gpu gpu-full:
	@[ -n "$(OUT)" ] || { echo "make $@ OUT=folder, for the results"; exit 1; }
	@PYTHONPATH=lib $(or $(PYTHON),python3) -m workshop.bench.gpu --out "$(OUT)" $(if $(filter gpu-full,$@),--full)

evidence: $(VENV)/test.stamp  ## repeat recorded runs: make evidence NAME=cmudict_fixed_0
	@[ -n "$(NAME)" ] || { echo "make evidence NAME=...; see python -m workshop.experiments --help"; exit 1; }
	$(BIN)/python -m workshop.experiments $(NAME)

notebook: $(VENV)/test.stamp  ## execute and store one chapter: make notebook NAME=01_bottleneck
	@[ -n "$(NAME)" ] || { echo "make notebook NAME=...; NAME is a chapter's file name without .md"; exit 1; }
	OMP_NUM_THREADS=1 $(BIN)/python -m workshop.book.notebook $(NAME)

pages: $(VENV)/test.stamp  ## write what is made from the library: solutions, evidence, cheat sheet, ...
	OMP_NUM_THREADS=1 $(BIN)/python -m workshop.book.pages

bank: $(VENV)/test.stamp  ## prove the graders: twenty draws, mutants of every solution
	$(BIN)/python $(PYTEST) $(WORKERS) -m bank -rP tests/attnbook/exercises/test_bank.py

kinds: $(VENV)/test.stamp  ## count how many wrong answers of each kind every check finds
	@PYTHONPATH=tests:tests/helpers $(BIN)/python tests/helpers/kind_mutants.py
	@PYTHONPATH=tests:tests/helpers $(BIN)/python tests/helpers/held_out_wrong.py
	@PYTHONPATH=tests:tests/helpers $(BIN)/python tests/helpers/held_out_right.py

margins: $(VENV)/test.stamp  ## print how far right and wrong answers lie from every tolerance
	@PYTHONPATH=tests:tests/helpers $(BIN)/python tests/attnbook/attention/test_reference.py
	@PYTHONPATH=tests:tests/helpers $(BIN)/python tests/attnbook/flash/test_case_budgets.py
	@PYTHONPATH=tests:tests/helpers $(BIN)/python tests/helpers/form_margins.py
	@PYTHONPATH=tests:tests/helpers $(BIN)/python tests/attnbook/models/test_from_pytorch.py
	@PYTHONPATH=tests:tests/helpers $(BIN)/python tests/helpers/margins.py

messages: $(VENV)/test.stamp  ## print everything that the checks can say, to be edited
	@$(BIN)/python -m workshop.book.catalogue

screenshots: $(VENV)/test.stamp book  ## take the pictures of the README and the first page (needs Chromium)
	@$(BIN)/python -m workshop.book.screenshots _build/html chapters/images

teach: $(VENV)/test.stamp  ## write notebooks for students, teachers and otter-grader
	$(BIN)/python -m workshop.book.classroom _build/teach

repository: $(VENV)/test.stamp  ## set the repository's address: make repository URL=https://...
	$(BIN)/python -m workshop.book.repository "$(URL)"

clean:  ## remove what was built (the environments too)
	rm -rf _build .venv .venv-colab .venv-lab .venv-otter .venv-oracles .venv-cluster .pytest_cache .mypy_cache .ruff_cache .processors
