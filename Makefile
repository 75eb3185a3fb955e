# Attention, Measured. `make help` lists what this does.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory
TARGETS := book test check notebook pages evidence gpu teach oracles links lab size clean help
STAGES := lint unit notebooks book browser
.PHONY: $(TARGETS) $(STAGES:%=stage/%)

# Before anything runs. A folder (tests) is no target either.
$(foreach goal,$(filter-out $(TARGETS) stage/% .venv/%,$(MAKECMDGOALS)), \
  $(error there is no target '$(goal)': make help lists those there are))
$(foreach stage,$(filter-out $(STAGES),$(STAGE)), \
  $(error make test has no stage '$(stage)': its stages are $(STAGES)))

BIN := .venv/bin
CHAPTERS := $(basename $(notdir $(wildcard chapters/[0-9]*.md)))
# What `make check` narrows.
TESTS := tests
NOTEBOOKS := $(CHAPTERS:%=chapters/%.ipynb)
# The first of these that runs and is new enough makes the environments.
PYTHONS := $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11 python)
# On a terminal, installs and builds show how far they are.
QUIET := $(shell [ -t 2 ] || echo -q)
# Waiting threads sleep instead of spinning: two runs can share two cores.
export OMP_WAIT_POLICY := PASSIVE
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYDEVD_DISABLE_FILE_VALIDATION := 1
# Tests start hundreds of processes, each of which would compile all modules.
unexport PYTHONDONTWRITEBYTECODE

# A worker for each processor; four at most, for one takes up to 1.5 GB.
WORKERS := -n logical --maxprocesses 4 --dist worksteal
PYTEST := -m pytest -q $(WORKERS)
# What cannot or need not run with shapes checked.
UNSHAPED := refusal or precision or compiled or kernel

# Make the environment $(1) and install $(2) in the versions of the lock;
# dependency groups need pip 25.1.
define environment
@[ -x $(1)/bin/python ] || { for p in $(PYTHONS); do \
  "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && found=$$p && break; done; \
  [ -n "$${found:-}" ] || { echo "This book needs Python 3.11 or newer, and none of these is: $(PYTHONS)." \
    "Install one, then: make $(MAKECMDGOALS) PYTHON=/path/to/python3"; exit 1; }; \
  "$$found" -m venv $(1) || { rm -rf $(1); echo "$$found cannot make a virtual environment:" \
    "install its venv module (Debian: apt install python3-venv)"; exit 1; }; }
$(1)/bin/python -m pip install $(QUIET) --upgrade "pip>=25.1"
$(1)/bin/python -m pip install $(QUIET) -c requirements.txt $(2)
endef

help:  ## list these targets
	@sed -nE 's/^([a-z]+):.*## /  make \1\t/p' Makefile | expand -t 18

.venv/book.stamp: pyproject.toml requirements.txt
	$(call environment,.venv,--group book)
	@touch $@

.venv/test.stamp: pyproject.toml requirements.txt
	$(call environment,.venv,--group book --group test -e .)
	@touch $@ .venv/book.stamp

# Pages that have not changed are not built again. Everything is, if a page came
# or went, if code, configuration or packages have changed, or if the last build
# had a warning: so no page and no warning outlives its cause.
book: .venv/book.stamp  ## build the book (no torch, no Node, no browser), warnings are errors
	@inputs=$$( { ls chapters chapters/*/; find lib Makefile _*.yml *.bib requirements.txt -type f -not -name '*.pyc' -exec cksum {} + | sort; } | cksum); \
	[ "$$inputs" = "$$(cat _build/built-from 2>/dev/null)" ] || rm -rf _build; \
	mkdir -p _build; rm -f _build/built-from; \
	$(BIN)/jupyter-book build . -W -n --keep-going $(QUIET); \
	echo "$$inputs" > _build/built-from
	@echo "Open file://$(CURDIR)/_build/html/index.html"

test: .venv/test.stamp  ## test everything, or one stage: STAGE=lint, unit, notebooks, book or browser
	@took=; for stage in $(or $(STAGE),$(STAGES)); do \
	  began=$$(date +%s); $(MAKE) stage/$$stage; \
	  took="$${took:+$$took, }$$stage $$(($$(date +%s) - began)) s"; echo "So far: $$took"; \
	done

stage/lint:
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports --no-logo
	$(BIN)/mypy
	$(BIN)/oxlint lib

# Each test runs once. Where no test is left, pytest ends with 5.
stage/unit:
	$(BIN)/python $(PYTEST) -m "not ($(UNSHAPED) or browser)" \
	  --jaxtyping-packages=attnbook,workshop,beartype.beartype $(TESTS) || [ $$? = 5 ]
	$(BIN)/python $(PYTEST) -m "($(UNSHAPED)) and not browser" $(TESTS) || [ $$? = 5 ]

# One kernel a notebook: loadscope keeps its cells together.
stage/notebooks:
	OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST) --dist loadscope --nbval --nbval-current-env \
	  --nbval-cell-timeout 300 -p no:cacheprovider $(NOTEBOOKS)

stage/book: book

# If Chromium stops answering, pytest ends that worker after ten minutes. The
# test counts as failed and runs again; three such ends stop the whole run. What
# failed is tried once more, because a busy machine can answer too late.
BROWSER = $(BIN)/python $(PYTEST) -m browser -rs -o faulthandler_exit_on_timeout=true \
  --max-worker-restart 2 $$(grep -rl mark.browser tests --include='test_*.py')
stage/browser:
	@command -v chromium chromium-browser google-chrome >/dev/null || { \
	  echo "There is no Chromium, so the pages were not opened (Debian: apt install chromium)"; \
	  exit $${REQUIRE_BROWSER:-0}; }; \
	$(BROWSER) || $(BROWSER) --last-failed

check: .venv/test.stamp  ## after an edit: lint, and the tests, notebooks and pages of what changed (SINCE=main)
	@$(BIN)/python -m workshop.check "$(or $(SINCE),HEAD)"

notebook: .venv/test.stamp  ## execute and store one chapter: NAME=01_bottleneck
	@[ -n "$(filter $(NAME),$(CHAPTERS))" ] || { \
	  echo "There is no chapter '$(NAME)': NAME is one of $(CHAPTERS)"; exit 1; }
	OMP_NUM_THREADS=1 $(BIN)/python -m workshop.book.notebook $(NAME)

pages: .venv/test.stamp  ## write solutions, headings, the page of mistakes and the table of chapters
	OMP_NUM_THREADS=1 $(BIN)/python -m workshop.book.pages

evidence: .venv/test.stamp  ## repeat recorded runs: NAME=cmudict_fixed_0, RANKS=2 for two processes
	$(BIN)/$(if $(RANKS),torchrun --nproc-per-node $(RANKS),python) -m workshop.experiments $(or $(NAME),--help)

# On a bare machine with a GPU: its own Python, no environment, no network. With
# TUTORIAL=06-fused-attention.py, a file of Triton's source, its kernel is timed too.
gpu:  ## run what needs a GPU, or go on with it: OUT=folder
	@[ -n "$(OUT)" ] || { echo "make gpu needs a folder for the results: OUT=folder"; exit 1; }
	PYTHONPATH=lib $(or $(PYTHON),python3) -m workshop.bench.gpu --out "$(OUT)"

teach: .venv/test.stamp  ## write notebooks for students, teachers and otter-grader
	$(BIN)/python -m workshop.book.classroom _build/teach

oracles:  ## compare the library with transformers and others, in an environment of their own
	$(call environment,.venv-oracles,-r tests/oracles/requirements.txt -e .)
	.venv-oracles/bin/python -m attnbook.models
	OMP_NUM_THREADS=1 .venv-oracles/bin/python $(PYTEST) tests/oracles/against_*.py
	.venv-oracles/bin/python tests/oracles/libraries/compare.py

lab:  ## try JupyterLab, otter-grader and Dask, in an environment of their own
	$(call environment,.venv-lab,-r tests/live/requirements.txt -e .)
	OMP_NUM_THREADS=1 .venv-lab/bin/python -m pytest -q -c /dev/null --rootdir . --noconftest \
	  -p no:cacheprovider tests/live/live_*.py

links: .venv/book.stamp  ## ask every external link of the pages whether it still leads somewhere
	$(BIN)/jupyter-book build . --builder linkcheck --path-output _build/links $(QUIET)

size: .venv/test.stamp  ## print lines of Python, tests, and words and cells of each chapter
	@$(BIN)/python -m workshop.size

clean:  ## remove what was built (the environments too)
	rm -rf _build .venv .venv-* .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
