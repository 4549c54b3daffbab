# Everything one does here starts with make. VENV, PYTHON and DJANGO choose another environment:
#   make test VENV=.venv-6.0 PYTHON=python3.12 DJANGO=6.0

VENV ?= .venv
PYTHON ?= python3
DJANGO ?=
# LOCKED=1 installs what .ci/locks pins, by hash, as CI does; otherwise the newest that pyproject.toml allows.
LOCKED ?=
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check
PYTEST_ARGS ?=

# An environment is as good as new while what it was made from has not changed.
LOCK := $(if $(LOCKED),.ci/locks/$(or $(DJANGO),$(shell $(PYTHON) -c 'import sys; print("6.1" if sys.version_info >= (3, 12) else "5.2")')))
STATE := $(shell (cat pyproject.toml $(LOCK:=*.txt); echo '$(PYTHON) $(DJANGO) $(LOCKED)') | cksum | cut -d ' ' -f 1)
TEST_READY := $(VENV)/.ready-test-$(STATE)
DEV_READY := $(VENV)/.ready-dev-$(STATE)

# What builds this package is in the lock too, so nothing is fetched that is not.
locked = $(PIP) --require-hashes -r $(1) && $(PIP) --no-deps --no-build-isolation -e .

# The rivals have an environment of their own, so that their dependencies never meet ours.
RIVALS_VENV ?= .venv-rivals
RIVALS := tests/benchmarks/rivals/requirements.txt
RIVALS_PIP := $(RIVALS_VENV)/bin/python -m pip install -qq --disable-pip-version-check
RIVALS_READY := $(RIVALS_VENV)/.ready-$(shell cat pyproject.toml $(RIVALS) | cksum | cut -d ' ' -f 1)

.DEFAULT_GOAL := help
.PHONY: help setup dev demo test test-long test-upstream coverage coverage-guarded chaos plans mutants bench \
	bench-drain bench-latency bench-idle bench-admin bench-rivals bench-hardships bench-tasks bench-redis bench-ticks \
	bench-notify house house-pages screenshots lint format types layers docs lock audit check clean

help: ## Show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /:/' | awk -F: '{printf "make %-16s %s\n", $$1, $$2}'

$(TEST_READY):
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed: make PYTHON=...")'
	@$(PYTHON) -m venv $(VENV)
	@$(if $(LOCK),$(call locked,$(LOCK).txt),$(PIP) -e '.[test,redis,beanstalk]' $(if $(DJANGO),'Django==$(DJANGO).*'))
	@rm -f $(VENV)/.ready-test-* && touch $@

$(DEV_READY): | $(TEST_READY)
	@$(if $(LOCK),$(call locked,$(LOCK)-dev.txt),$(PIP) -e '.[test,redis,beanstalk,lint,docs]' $(if $(DJANGO),'Django==$(DJANGO).*'))
	@rm -f $(VENV)/.ready-dev-* && touch $@

# One package that cannot be had must not keep the others away; the benchmark tells which it was.
$(RIVALS_READY):
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 12) else "The rivals need Python 3.12 or newer: make bench-rivals PYTHON=...")'
	@$(PYTHON) -m venv $(RIVALS_VENV)
	@$(RIVALS_PIP) -r $(RIVALS) || sed -E 's, *#.*,,; /^$$/d' $(RIVALS) | while read -r package; do \
		$(RIVALS_PIP) "$$package" || echo "could not be installed: $$package" >&2; done
	@$(RIVALS_PIP) -e .
	@rm -f $(RIVALS_VENV)/.ready-* && touch $@

setup: | $(TEST_READY) ## Make the environment for the tests

dev: | $(DEV_READY) ## Make the environment for the tests, linters and docs

demo: setup ## Watch a job run, fail, be retried, die, and be replayed from the admin
	@$(BIN)/python -m testproject.demo

test: setup ## Run the tests on SQLite, or on DJANGO_JOBS_TEST_DB=postgres|mariadb|mysql
	@$(BIN)/python -m pytest -m 'not long' $(PYTEST_ARGS)

test-long: setup ## Run the tests that take minutes: crowds of processes, faults, fuzzing
	@$(BIN)/python -m pytest -m long $(PYTEST_ARGS)

test-upstream: setup ## Run Django's own tests of Tasks against this package, on SQLite or DJANGO_JOBS_TEST_DB
	@$(BIN)/python -m tests.upstream.run $(UPSTREAM_ARGS)

coverage: setup ## Run the tests and tell which branches they miss
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest $(PYTEST_ARGS)
	@$(BIN)/coverage combine -q
	@$(BIN)/coverage report

coverage-guarded: setup ## Fail unless every branch of signing, allow-lists, address policy and lease SQL is run
	@$(BIN)/python -m tests.guarded

mutants: setup ## Change signing, allow-lists, address policy, lease SQL and more in small ways; a test must notice
	@$(BIN)/python -m tests.mutants $(MUTANTS_ARGS)

BENCHMARK = DJANGO_JOBS_TEST_DB=$(or $(DJANGO_JOBS_TEST_DB),postgres) $(BIN)/python -m tests.benchmarks

bench: setup ## Measure enqueueing and claiming, beside bare psycopg
	@$(BENCHMARK).core $(BENCH_ARGS)

bench-drain: setup ## Measure how fast a worker drains, and what slows it down
	@$(BENCHMARK).drain $(BENCH_ARGS)

bench-latency: setup ## Measure how soon an idle worker notices a job
	@$(BENCHMARK).latency $(BENCH_ARGS)

bench-notify: setup ## Measure what telling idle workers costs those who enqueue
	@$(BENCHMARK).notify $(BENCH_ARGS)

bench-idle: setup ## Measure what an idle worker costs
	@$(BENCHMARK).idle $(BENCH_ARGS)

bench-rivals: | $(RIVALS_READY) ## Measure other projects' queues and ours, in turns
	@$(RIVALS_VENV)/bin/python -m tests.benchmarks.rivals $(BENCH_ARGS)

bench-hardships: | $(RIVALS_READY) ## Measure the same among many jobs and beside an old transaction
	@$(RIVALS_VENV)/bin/python -m tests.benchmarks.rivals.hardships $(BENCH_ARGS)

bench-tasks: | $(RIVALS_READY) ## Measure other backends of Django's Tasks and ours, in turns
	@$(RIVALS_VENV)/bin/python -m tests.benchmarks.tasks $(BENCH_ARGS)

bench-redis: | $(RIVALS_READY) ## Measure the queues on Redis, in turns, and how deep a queue may be
	@$(RIVALS_VENV)/bin/python -m tests.benchmarks.rivals $(BENCH_ARGS) --only \
		redis:bare redis:django_jobs redis:dramatiq redis:celery redis:rq redis:huey redis:django-q2
	@$(RIVALS_VENV)/bin/python -m tests.benchmarks.redis_depth \
		$(if $(findstring --quick,$(BENCH_ARGS)),--deep 50000)

bench-admin: setup ## Measure the dead-letter page among a million dead letters
	@$(BENCHMARK).admin $(BENCH_ARGS)

bench-ticks: setup ## Measure a tick among ten thousand schedules, beside one among a thousand
	@$(BENCHMARK).ticks $(BENCH_ARGS)

house: setup ## Print how the code stands: sizes, names used twice, the path of one job
	@$(BIN)/python -m tests.house.measure $(HOUSE_ARGS)

house-pages: setup ## Write the pages that list modules anew: the tree, and what a traced job goes through
	@$(BIN)/python -m tests.house.tree --write
	@$(BIN)/python -m tests.house.life_of_a_job --write

screenshots: setup ## Take the pictures of the documentation anew, in the Chromium of this machine
	@$(BIN)/python -m pytest $(PYTEST_ARGS) tests/browser/screenshots.py

chaos: setup ## Freeze and kill database servers of its own under a worker
	@DJANGO_JOBS_TEST_DB=postgres $(BIN)/python -m pytest $(PYTEST_ARGS) tests/chaos
	@DJANGO_JOBS_TEST_DB=mariadb $(BIN)/python -m pytest $(PYTEST_ARGS) tests/chaos

plans: setup ## Read query plans among a million rows, on PostgreSQL or DJANGO_JOBS_TEST_DB
	@DJANGO_JOBS_TEST_DB=$(or $(DJANGO_JOBS_TEST_DB),postgres) $(BIN)/python -m pytest $(PYTEST_ARGS) tests/plans

lint: dev ## Check style and formatting
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: dev ## Repair style and formatting
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: dev ## Check types with mypy, and the public names with pyright too
	@$(BIN)/mypy
	@$(BIN)/pyright --pythonpath $(BIN)/python
	@$(BIN)/python -m pytest -q tests/typing/test_typing.py

layers: dev ## Check that imports only point downwards
	@$(BIN)/lint-imports

docs: export NO_MKDOCS_2_WARNING = 1
docs: dev ## Build the documentation; a broken link is an error
	@$(BIN)/mkdocs build --strict -q

# One lock for each Django, with the oldest redis-py in the middle one, and one with the linters and docs.
# It needs uv; packages come from where pip and uv find them here, whose address the locks do not keep.
pins = uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-annotate --custom-compile-command "make lock" --upgrade \
	--python-version $(1) $(foreach extra,$(2),--extra $(extra)) -o .ci/locks/$(3).txt pyproject.toml .ci/locks/build.in -

lock: ## Pin anew what CI installs, by hash
	@echo 'Django==5.2.*' | $(call pins,3.11,test redis beanstalk,5.2)
	@printf 'Django==6.0.*\nredis==6.0.*\n' | $(call pins,3.12,test redis beanstalk,6.0)
	@echo 'Django==6.1.*' | $(call pins,3.12,test redis beanstalk,6.1)
	@echo 'Django==6.1.*' | $(call pins,3.12,test redis beanstalk lint docs,6.1-dev)

audit: dev ## Look up known vulnerabilities of the dependencies; tell which could not be looked up
	@$(BIN)/python .ci/audit.py $(AUDIT_ARGS)

check: ## Everything that must pass before a change is accepted
	@.ci/run

clean: ## Remove environments, caches and built files
	@rm -rf .venv .venv-rivals .ci/venvs .ci/out .ci/mysqld build dist site htmlcov .coverage .coverage.* \
		.hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
