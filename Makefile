# Every target does its own set-up, once. `make help` lists them.

.PHONY: help up test test-slow check format lint types imports bench capabilities docs fmt setup clean
.NOTPARALLEL:
.DEFAULT_GOAL := help

# Bytecode makes every start but the first two to three times quicker.
unexport PYTHONDONTWRITEBYTECODE
unexport VIRTUAL_ENV

BIN    := .venv/bin
PYTEST := scripts/as-root.sh $(BIN)/python -m pytest
CODE   := src tests scripts bench

# What to make ready: `make SETUP=python test` leaves the system packages alone.
ready = @scripts/setup.sh $(or $(SETUP),$(1))

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: ## look at this machine, then start the control plane; ARGS="--port 8080" and the like
	$(call ready,run)
	@scripts/as-root.sh $(BIN)/paddock doctor
	@PATH="$(CURDIR)/$(BIN):$$PATH" exec scripts/as-root.sh $(BIN)/paddock up $(ARGS)

test: ## all tests but the slow ones, in parallel
	$(call ready,test)
	@$(PYTEST) -n auto --dist loadscope -m 'not slow' $(ARGS)

test-slow: ## the slow tests, one after the other, because they look at the whole machine
	$(call ready,test)
	@$(PYTEST) -m slow $(ARGS)

check: format lint types imports test $(if $(CI_SHORT),,test-slow) ## what CI runs; CI_SHORT=1 leaves test-slow out

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

bench: ## measure against the Docker engine; writes build/bench.json
	$(call ready,test)
	@scripts/as-root.sh $(BIN)/python -m bench $(ARGS)

capabilities: ## write docs/reference/capabilities.md from the tests' markers
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
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests scripts bench -name __pycache__ -prune -exec rm -rf {} +
