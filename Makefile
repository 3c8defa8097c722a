# Every target does its own set-up, once. `make help` lists them.

.PHONY: help up quick test test-slow soak check format lint types imports bench capabilities durations docs fmt setup clean
.NOTPARALLEL:
.DEFAULT_GOAL := help

# Bytecode makes every start but the first two to three times quicker.
unexport PYTHONDONTWRITEBYTECODE
unexport VIRTUAL_ENV

BIN    := .venv/bin
TESTS  := $(BIN)/python -m tests.harness
CODE   := src tests scripts bench

# What to make ready: `make SETUP=python test` leaves the system packages alone.
ready = @scripts/setup.sh $(or $(SETUP),$(1))

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: ## look at this machine, then start the control plane; ARGS="--port 8080" and the like
	$(call ready,run)
	@scripts/as-root.sh $(BIN)/paddock doctor
	@PATH="$(CURDIR)/$(BIN):$$PATH" exec scripts/as-root.sh $(BIN)/paddock up $(ARGS)

quick: ## fast tests, and those of changed modules; no root, no system packages (target 90 s)
	$(call ready,python)
	@$(TESTS) quick $(ARGS)

test: ## everything a change can break (14 min on two cores; target 10)
	$(call ready,test)
	@scripts/as-root.sh $(TESTS) test $(ARGS)

test-slow: ## complete engines, real agents, crashes (15 min on two cores; target 10)
	$(call ready,test)
	@scripts/as-root.sh $(TESTS) slow $(ARGS)

soak: ## chaos, every fault step, Podman, random examples (an hour or more; not in CI)
	$(call ready,soak)
	@PADDOCK_TEST_RANDOM=1 scripts/as-root.sh $(TESTS) soak $(ARGS)

check: format lint types imports test $(if $(CI_SHORT),,test-slow) ## what CI runs (30 min on two cores; target 25); CI_SHORT=1 skips test-slow
	@$(if $(CI_SHORT),,$(BIN)/python scripts/capabilities.py --check)

format: ## is everything formatted?
	$(call ready,python)
	@$(BIN)/ruff format --check $(CODE)

lint: ## ruff's rules
	$(call ready,python)
	@$(BIN)/ruff check $(CODE)

types: ## mypy, strict
	$(call ready,python)
	@$(BIN)/mypy
	@$(BIN)/mypy scripts

imports: ## do imports point downwards only?
	$(call ready,python)
	@$(BIN)/lint-imports

bench: ## measure against the Docker engine; ARGS="create exec" selects rows by name
	$(call ready,test)
	@scripts/as-root.sh $(BIN)/python -m bench $(ARGS)

durations: ## record how long test modules took, to order the next runs
	$(call ready,python)
	@$(TESTS) durations

capabilities: ## write docs/reference/capabilities.md from the last complete test runs
	$(call ready,python)
	@$(BIN)/python scripts/capabilities.py

docs: ## write the generated parts of the documentation
	$(call ready,python)
	@$(BIN)/python scripts/docs.py

fmt: ## format, and put right what ruff can
	$(call ready,python)
	@$(BIN)/ruff format $(CODE)
	@$(BIN)/ruff check --fix $(CODE)

setup: ## install what up, test and bench need
	$(call ready,test)

clean: ## remove what was built; .venv stays
	@scripts/clean.sh
