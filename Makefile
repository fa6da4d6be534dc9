# Everything a person types here. Bare `make` lists it.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# An empty part would be the folder that each command is started in.
export PYTHONPATH := tests$(if $(PYTHONPATH),:$(PYTHONPATH))

.DEFAULT_GOAL := help
.PHONY: help setup java demo test faults chaos endurance check lint types imports docs reference bench clean lock

help: ## list the targets
	@echo "OpenDataFlow: make TARGET"
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  \1\t\2/' | expand -t 12

setup: $(VENV)/.done java ## make .venv with everything in it, and find or install Java

$(VENV)/.done: pyproject.toml requirements.lock
	@echo "==> Setting up $(VENV) (once; a few minutes on a new machine)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed; found $$($(PYTHON) --version). Try: make PYTHON=python3.12 setup"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) \
		|| { echo "Python's venv module is missing. On Debian: apt-get install -y python3-venv"; exit 2; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@
	@echo "==> $(VENV) is ready; \`. $(VENV)/bin/activate\` puts dataflow and RunJob on your path"

java: # Java 17 or newer: the one thing pip cannot bring
	@sh scripts/java.sh

demo: setup ## a year of real flights through an outage and back, then the dashboard (two to three minutes)
	@$(BIN)/python -m compileall -q src
	@$(BIN)/dataflow prepare-spark || echo "==> Going on without: Spark starts more slowly."
	@$(BIN)/python examples/year_of_flights/demo.py

test: setup ## run the tests: SQLite, PostgreSQL and Spark, all real
	@echo "==> Running the tests (real SQLite, PostgreSQL and Spark; some minutes)"
	@sh scripts/for_tests.sh
	@$(BIN)/python -m compileall -q src tests
	@$(BIN)/dataflow prepare-spark || echo "==> Going on without: the tests take longer."
	@$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder && echo "==> All tests passed."

faults: setup ## what the tests leave out for its time: pipelines killed at every point that has a name, each story over both stores (half an hour or more)
	@DATAFLOW_EVERY_FAULT=1 $(BIN)/python -m pytest tests/faults tests/oracle tests/acceptance tests/docs tests/server/test_api_schema.py $(addprefix tests/spark/test_,warm_runs.py shared_jobs.py keeper.py isolation.py session.py clusters.py streams.py together.py spark_checks.py sql_read.py sql_write.py sql_load.py files.py endurance.py) && echo "==> Everything healed."

chaos: setup ## 20,000 chunks and 100,000 stream items in a storm of kills, stops and restarts; prints its seeds (an hour or so)
	@$(BIN)/python scripts/chaos.py && $(BIN)/python scripts/chaos.py --streams

endurance: setup ## 4,000 chunks of four kinds of pipelines through one worker: does anything grow or slow down? (some 20 minutes)
	@$(BIN)/python scripts/endurance.py

lint: setup
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: setup
	@$(BIN)/mypy

imports: setup
	@$(BIN)/lint-imports

docs: setup ## build the documentation into site/, with links and spelling checked
	@$(BIN)/python scripts/reference.py --check || { echo "==> These pages are made from the code: make reference"; exit 1; }
	@$(BIN)/codespell docs README.md CHANGELOG.md CONTRIBUTING.md examples
	@$(BIN)/mkdocs build --quiet --strict && echo "==> site/index.html"

reference: setup ## write the pages of the reference that are made from the code
	@$(BIN)/python scripts/reference.py

check: lint types imports docs test ## lint + types + import rules + docs + tests: run it before every commit

bench: setup ## measure what is claimed, as ratios against the alternative in the same run (some minutes)
	@$(BIN)/python -m compileall -q src
	@$(BIN)/python bench/runjob.py; $(BIN)/python bench/claims.py; $(BIN)/python bench/stale.py; $(BIN)/python bench/operate.py; $(BIN)/python bench/pages.py; \
		$(BIN)/python bench/pipelines.py; sh scripts/for_tests.sh; $(BIN)/python bench/sql_read.py; $(BIN)/python bench/sql_write.py; \
		$(BIN)/python bench/worker.py; $(BIN)/python bench/orchestrators.py; $(BIN)/python bench/queue_faults.py; $(BIN)/python bench/history.py; \
		$(BIN)/python bench/intake.py; $(BIN)/python bench/streams.py; $(BIN)/python bench/topics.py; $(BIN)/python bench/first_task.py

lock: setup ## write requirements.lock anew from pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@$(BIN)/uv pip compile --quiet --no-emit-index-url --no-annotate --no-header --all-extras --group dev \
		--python-version 3.11 pyproject.toml -o requirements.lock

clean: ## remove what was made
	rm -rf $(VENV) demo-work dist build site .mypy_cache .ruff_cache .hypothesis
