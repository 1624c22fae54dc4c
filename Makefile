# make setup    everything Python, from the lock, into .venv        make check      lint, format, types, imports
# make jars     Spark's extra jars and a Kafka broker, into .jars   make test       all of the above and every test
# make demo     the whole system on this machine, checked           make test-fast  the tests that need no service
# make bench    the figures of docs/ (hours); BENCH=--quick: minutes make docs       generated pages, and the site in build/site
# make dist     dist/: a wheel, its constraints and bill of materials, and a zip of the code for a cluster's executors
# make dist-test  installs the wheel in a fresh environment and tries it there
# make lock     the locks with their hashes, after a change of pyproject.toml; LOCK=--upgrade: also newer versions
# make cluster-test  also the long tests on a Spark cluster and with an object store, which make test leaves out
# make coverage which lines of contracts and rules their short tests reach; fails below the least share
# make clean    remove caches and local data                        make compose-test  docker-compose.yaml for real (half an hour)
#
# Every target runs the set-up it needs; after that no target uses the network.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.NOTPARALLEL:
.DEFAULT_GOAL := help

PYTHON ?= python3.11
JAVA := $(if $(JAVA_HOME),$(JAVA_HOME)/bin/java,java)
VENV := .venv
BIN := $(VENV)/bin
# Tests of the job mostly wait, so two run at once. A file's tests share what they have started, so they stay together.
# A process that dies ends the run: its replacement may wait for ever (pytest-xdist issue 1327).
IN_TWO := -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 0
# The locks are requirements files and not a uv.lock, which would name one registry.
# What requirements.lock pins, without hashes.
PINS := sed -n 's/^\([^ ]*==[^ ]*\).*/\1/p' requirements.lock
UV_VERSION := $(shell $(PINS) | sed -n 's/^uv==//p')
COMPILE := $(BIN)/uv pip compile --quiet --generate-hashes --no-header --no-emit-index-url
# The installation depends on the lock and on pyproject.toml up to the tools' own tables.
STAMP := $(VENV)/.set-up-$(shell { cat requirements.lock; sed '/^\[tool\./,$$d' pyproject.toml; } | cksum | cut -d ' ' -f 1)
announce = @printf '\033[1m==> %s\033[0m\n' "$(1)"

.PHONY: help setup lock jars test-jars check format test test-fast coverage cluster-test compose-test demo bench docs dist dist-test clean need-java

help:
	@sed -n '/^# make/s/^# //p' Makefile

need-java:
	@command -v "$(JAVA)" >/dev/null || { echo "error: no java found: install Java 17 (for Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME" >&2; exit 2; }
	@v=$$("$(JAVA)" -version 2>&1 | sed -n 's/.* version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p'); [ "$${v:-0}" -ge 17 ] || \
	  { echo "error: $(JAVA) is Java $${v:-of an unknown version}, but Spark 4 and Kafka 4 need Java 17: install it or set JAVA_HOME" >&2; exit 2; }

setup: $(STAMP)

$(STAMP):
	@command -v "$(PYTHON)" >/dev/null && "$(PYTHON)" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null || \
	  { echo "error: $(PYTHON) is not Python 3.11: install it (for Debian: python3.11 and python3.11-venv), or set PYTHON: make PYTHON=/path/to/python3.11" >&2; exit 2; }
	@[ -x $(BIN)/python ] && $(BIN)/python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null || \
	  { printf '\033[1m==> %s\033[0m\n' "creating $(VENV)"; rm -rf $(VENV); "$(PYTHON)" -m venv $(VENV); }
	@[ "$$($(BIN)/uv --version 2>/dev/null | cut -d ' ' -f 2)" = "$(UV_VERSION)" ] || \
	  { printf '\033[1m==> %s\033[0m\n' "installing uv $(UV_VERSION)"; $(BIN)/python -m ensurepip >/dev/null; \
	    $(BIN)/python -m pip install --disable-pip-version-check --require-hashes -r <(sed -n '/^uv==/,/[^\\]$$/p' requirements.lock); }
	$(call announce,installing the $(shell grep -c == requirements.lock) packages of requirements.lock (a minute or more the first time))
	@$(BIN)/uv pip sync --require-hashes --compile-bytecode --python $(BIN)/python requirements.lock
	$(call announce,installing nightjar itself)
	@$(BIN)/uv pip install --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@rm -f $(VENV)/.set-up-*; touch $@

# The image's flask-appbuilder wants an older python-dateutil.
lock: setup
	@$(COMPILE) $(LOCK) pyproject.toml --extra airflow --extra postgres --group dev -o requirements.lock
	@$(COMPILE) --no-annotate $(LOCK) pyproject.toml deploy/image/requirements.in -c <($(PINS) | grep -v ^python-dateutil=) \
	  -o deploy/image/requirements.lock

jars: need-java setup
	@$(BIN)/python -m nightjar.jvm.jars
	@$(BIN)/python -m nightjar.operations.prepare_classes

test-jars: need-java setup
	@$(BIN)/python -m nightjar.jvm.jars $(addsuffix /ivy.xml,$(addprefix deploy/compose/,connect object-store schema-registry))
	@$(BIN)/python -m tools.test_servers

check: setup
	$(call announce,ruff)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	$(call announce,mypy --strict)
	@$(BIN)/mypy
	$(call announce,import-linter)
	@$(BIN)/lint-imports --no-cache

format: setup
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

test: need-java setup jars test-jars check
	$(call announce,pytest: every test; Kafka and Spark start for real)
	@$(BIN)/python -m pytest $(IN_TWO)

test-fast: setup
	$(call announce,pytest: without Kafka and Spark)
	@HYPOTHESIS_PROFILE=fast $(BIN)/python -m pytest $(IN_TWO) -m "not kafka and not spark and not slow"

# Apart from `test`, as tracing doubles the time that these tests take.
coverage: setup
	$(call announce,pytest: what the short tests of contracts and rules cover)
	@$(BIN)/python -m pytest $(IN_TWO) -q -m covering tests/contracts tests/rules --cov

cluster-test: need-java setup jars test-jars
	$(call announce,pytest: all cases on a Spark cluster and with an object store)
	@ALL_ON_CLUSTER=1 $(BIN)/python -m pytest tests/cluster tests/object_store

compose-test: setup
	$(call announce,pytest: the containers of docker-compose.yaml; needs Docker)
	@$(BIN)/python -m pytest -x deploy/tests

demo: need-java setup jars
	@$(BIN)/nightjar demo

bench: need-java setup jars
	@$(BIN)/python -m checks.bench $(BENCH)

docs: need-java jars
	@$(BIN)/python -m tools.by_example
	@$(BIN)/python -m tools.catalogue
	@$(BIN)/python -m tools.reference
	@$(BIN)/python -m tools.schemas
	@$(BIN)/python -m tools.bill_of_materials
	$(call announce,mkdocs: the site in build/site/index.html)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

dist: need-java jars
	$(call announce,building the wheel)
	@rm -f dist/nightjar-*.whl
	@$(BIN)/uv build --quiet --python $(BIN)/python --no-build-isolation --wheel --out-dir dist .
	@$(PINS) >dist/constraints.txt
	@$(BIN)/python -m tools.bill_of_materials dist/sbom.cdx.json
	@$(BIN)/python -m tools.dist
	@ls dist/nightjar-*.whl dist/constraints.txt dist/sbom.cdx.json

dist-test: need-java dist
	$(call announce,installing the wheel in a fresh environment)
	@$(BIN)/python -m tools.try_wheel dist

clean:
	@! pid=$$(sed -n 's/.*"broker": \[\([0-9]*\),.*/\1/p' .nightjar/kafka/broker.json 2>/dev/null | grep .) || ! kill -0 "$$pid" 2>/dev/null || \
	  { echo "error: a local broker is still running on .nightjar/kafka (process $$pid): stop it first" >&2; exit 2; }
	$(call announce,removing caches and local data; .venv and .jars stay)
	@rm -rf .nightjar .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist
	@find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +
