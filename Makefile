# Each target does its own set-up: a virtual environment in .venv, installed again when pyproject.toml changes.

PY ?= python3
BIN := .venv/bin
READY := .venv/.ready
ENGINES := $(patsubst tests/interop/%.txt,.venv-interop/%/.ready,$(wildcard tests/interop/*.txt))

.DEFAULT_GOAL := help
.PHONY: help run check quick test interop chaos bench model docs postgresql java

help: ## print this
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(READY) java ## the demonstration: a pipeline on Spark over a lake in ./lake-demo, which checks itself
	$(BIN)/python examples/demo.py

check: $(READY) ## format, lint, types, imports, generated docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python docs/generate.py --check

quick: $(READY) postgresql ## the fast tests, in about two minutes
	$(BIN)/python -m pytest -m "not slow and not faults and not spark and not interop" -n 2

test: $(READY) postgresql java ## every test but interop; LONG=1 for the long campaigns
	$(if $(LONG),HEADGATE_LONG=1) $(BIN)/python -m pytest -m "not interop" -n 2 --dist loadgroup

interop: $(READY) $(ENGINES) java ## engines of others as clients of a server, each in an environment of its own; QUICK=1 for a short run
	$(BIN)/python -m pytest tests/interop -m "interop$(if $(QUICK), and not slow)"

chaos: $(READY) postgresql ## kill campaign with recorded histories on both stores; SECONDS=120 together, SEED= repeats one
	$(BIN)/python -m tests.chaos --seconds $(if $(filter command line environment,$(origin SECONDS)),$(SECONDS),120) $(if $(SEED),--seed $(SEED))

bench: $(READY) postgresql java ## scenarios beside their peers and floors, into docs/benchmarks.md; QUICK=1 for a short run
	$(BIN)/python -m bench $(if $(QUICK),--quick)

model: $(READY) java ## the TLA+ model, and its broken variants, which must fail
	$(BIN)/python model/run.py

docs: $(READY) ## write the generated pages
	$(BIN)/python docs/generate.py

# Installed for the tests, which start a server of their own. Without it, its tests are skipped with a message.
postgresql:
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || sh tests/kit/install-postgresql.sh || true

# Installed for Spark. Without it, the tests on Spark are skipped with a message.
java:
	@test -x "$$JAVA_HOME/bin/java" || command -v java >/dev/null || sh tests/kit/install-java.sh || true

# What an engine needs stands beside its tests.
.venv-interop/%/.ready: tests/interop/%.txt
	test -x .venv-interop/$*/bin/python || $(PY) -m venv .venv-interop/$*
	.venv-interop/$*/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	touch $@

$(READY): pyproject.toml
	test -x $(BIN)/python || $(PY) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@
