# Every target sets up its own .venv on first use; nothing else is needed but Python 3.11 with venv, and make.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
COMPILED := $(VENV)/.compiled

.DEFAULT_GOAL := help
unexport PYTHONDONTWRITEBYTECODE # commands are started hundreds of times: none of them should compile all modules anew
.PHONY: help demo test ready lint sdk hostile soak bench docs clean

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 was not found; install it or run: make PYTHON=/path/to/python3.11"; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; found $$($(PYTHON) -V)"; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { echo "python venv is missing; on Debian and Ubuntu: apt-get install python3-venv"; exit 2; }

$(STAMP): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt --editable '.[dev]'
	@touch $@

# pip compiles on one core, all of it. Here all cores compile what programs load; the rest is compiled when it is imported.
RARELY := /(tests?|testing|pip|setuptools|mypy|moto|networkx|sympy)/
$(COMPILED): $(STAMP)
	@$(BIN)/python -m compileall -q -j 0 -x '$(RARELY)' $$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
	@touch $@

demo: $(COMPILED) ## the whole job on this machine: devnet, six miners, verdicts, weights read back
	$(BIN)/cacheon demo

lint: $(STAMP) ## ruff, mypy strict, import rules
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

sdk: | $(BIN)/python ## the other SDKs and command lines that tests/chain/sdk runs, each in .sdk/VERSION
	PYTHONPATH=. $(BIN)/python -m tests.chain.sdk.install

# First the workers run, side by side, what may run so (tests/turns.py); then what is marked `quiet` runs alone. What failed
# (status 1) is run once more, alone, because other work on a machine can starve a measured process; what fails twice has
# failed. A test that needed its second run is a fault all the same: mend it.
PYTEST := $(BIN)/python -m pytest
AGAIN := { test $$? -eq 1 && echo "Once more what failed:" && $(PYTEST) --last-failed --last-failed-no-failures none; }
WORKERS ?= 2

test: ## everything CI runs: lint, sdk and all tests
	$(MAKE) --no-print-directory --jobs=2 --output-sync sdk lint ready
	@rm -rf .pytest_cache
	$(PYTEST) -m "not quiet" --numprocesses $(WORKERS) || $(AGAIN)
	$(PYTEST) -m quiet $$(grep -rl --include='test_*.py' quiet tests) || $(AGAIN)

# Beside `lint`: pytest compiles the test files once, not once in each worker. What cannot be collected, the tests tell.
ready: $(COMPILED)
	@$(PYTEST) --collect-only > $(VENV)/collected.txt 2>&1 || :

hostile: $(COMPILED) ## every cheat of tests/hostile against intake and the referee
	PYTHONPATH=. $(BIN)/python -m tests.hostile.run

soak: $(COMPILED) ## 10,000 blocks and 2,000 reveals through faults, forks and kills (about half an hour; docs/chain.md)
	PYTHONPATH=. $(BIN)/python -m tests.soak.run

fuzz: $(COMPILED) ## every parser of hostile bytes, FUZZ_SECONDS=60 in all; failing inputs are kept in .fuzz/
	$(BIN)/python -m tests.fuzz.run

bench: $(COMPILED) ## the numbers of benchmarks/, written to benchmarks/results/ (about half an hour)
	@for file in benchmarks/*.py; do echo "== $$file"; PYTHONPATH=. $(BIN)/python $$file || exit 1; done

docs: $(COMPILED) ## regenerate the generated pages of docs/
	$(BIN)/python -m node.cli.reference docs/cli.md
	$(BIN)/python -m config.target_reference > docs/targets.md
	$(BIN)/python -m qualify.slots.judging > config/slot_judging.toml.new && mv config/slot_judging.toml.new config/slot_judging.toml
	$(BIN)/python -m qualify.slots.abi_page > docs/kernel-abi.md
	PYTHONPATH=. $(BIN)/python -m tests.hostile.page > docs/cheats.md

clean: ## remove the environment and caches
	rm -rf $(VENV) .sdk .demo .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache .fuzz
