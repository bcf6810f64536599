# `make` alone lists the targets. Every target makes the environment it needs, in .venv.
PYTHON ?=
BIN := .venv/bin
RESULTS ?= bench/results
export RESULTS
.DEFAULT_GOAL := help
.PHONY: help setup environment java promtool azurite ministack chromium kubectl lock demo quick test test-rest test-all wording test-long lint audit docs wheel bench figures peers scaling sizes small-jobs startup micro workload clean distclean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: environment java  ## install .venv, Java for Spark, kubectl for the manifest tests

environment:
	@PYTHON="$(PYTHON)" sh deploy/setup/python.sh

java:
	@sh deploy/setup/java.sh

promtool: environment
	@sh deploy/setup/promtool.sh

azurite: environment
	@sh deploy/setup/azurite.sh

ministack: environment
	@sh deploy/setup/ministack.sh

chromium:
	@sh deploy/setup/chromium.sh

kubectl:
	@sh deploy/setup/kubectl.sh

lock: environment  ## regenerate the lock files from pyproject.toml (LOCK=--upgrade for the latest versions)
	@sh deploy/lock/lock.sh $(LOCK)

demo:  ## ingest, compact, verify on a local S3 server (DEMO="--rows 1000000 --keep")
	@PYTHON="$(PYTHON)" sh deploy/setup/python.sh demo
	@$(BIN)/python -m deploy.demo.demo $(DEMO)

# Tests of `make test`: fast ones without JVM, browser or other programs, plus one Spark job.
DAILY := main_job or not (spark or browser or program or long)
PYTEST := $(BIN)/python -m pytest -n auto --dist loadfile

quick:  ## run a few tests of each room (tests/quick.txt) in under 15 s, without setup
	@test -x $(BIN)/python || { echo "There is no .venv: run make setup once, then make quick" >&2; exit 1; }
	@$(BIN)/python -m pytest -n 2 --dist loadfile -m "not (spark or browser or program or long)" @tests/quick.txt

test: setup  ## daily tests: one Spark job, no browser, wheel or long loop (TESTS="-k name" selects)
	$(PYTEST) -m "$(DAILY)" $(TESTS)

test-rest: setup promtool azurite ministack chromium kubectl  ## all other tests: Spark, browser, manifests, wheel, long loops
	$(PYTEST) -m "not ($(DAILY))" $(TESTS)

test-all: test test-rest  ## all tests

wording: setup  ## rewrite the error messages in tests/wording (TESTS="tests/cli" adds those of new tests)
	$(BIN)/python -m pytest --write-wording $(TESTS)

test-long: setup promtool azurite ministack chromium kubectl  ## new examples for properties, 50,000 generated tables, 500,000 conditions, 10,200 graphs, 10,500 histories of entity merges, a million fuzzed inputs, crashes, 100,000 simulations, 100,000 steps of tables' lives
	HYPOTHESIS_PROFILE=search $(BIN)/python -m pytest tests
	$(BIN)/python -m tests.generated.tables --count 50000 --processes 2
	$(BIN)/python -m tests.generated.conditions --count 500000 --seed 1 --processes 2
	$(BIN)/python -m tests.generated.sums --count 20000 --processes 2
	$(BIN)/python -m tests.generated.graphs --count 5000 --processes 2
	$(BIN)/python -m tests.generated.graphs --spark 200
	$(BIN)/python -m tests.generated.rowwise --count 5000 --processes 2
	$(BIN)/python -m tests.generated.heavy --count 500 --processes 2
	$(BIN)/python -m tests.entities --seeds 10000
	$(BIN)/python -m tests.entities --seeds 500 --spark
	$(BIN)/python -m tests.fuzz --inputs 1000000
	$(BIN)/python -m tests.crash --rounds 1000
	$(BIN)/python -m tests.crash --rounds 200 --store s3
	$(BIN)/python -m tests.simulation --seeds 100000
	$(BIN)/python -m tests.simulation --steps 100000

lint: environment  ## ruff check, ruff format, mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: environment  ## regenerate the Python reference (build/docs), the command line reference, and console output in pages
	$(BIN)/python -m docs.tools.python_reference build/docs
	$(BIN)/python -m docs.tools.cli_reference docs/reference/cli.md
	$(BIN)/python -m docs.tools.property_table docs/reference/table.md
	$(BIN)/python -m docs.tools.console_pages README.md docs/tutorial/ten-minutes.md docs/tutorial/logs-to-table.md

wheel: environment  ## build sdist and wheel in dist
	$(BIN)/python -m build --no-isolation

audit: environment  ## check locked packages for known vulnerabilities; only a warning if PyPI is unreachable
	@$(BIN)/python -m deploy.lock.audit

bench: setup  ## 4 million rows, 16 fragments, one Spark task: rows/s and peak RSS
	$(BIN)/python -m bench.bench_compaction $(BENCH)

peers: setup  ## side by side with ClickHouse, DataFusion, DuckDB, Polars, ... (PEERS="--rows 1000000")
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r deploy/lock/peers.lock
	$(BIN)/python -m bench.vs_peers $(PEERS)

figures: setup  ## all figures of docs/explanation/benchmarks.md, and the page (LINES=folder of .log files, FIGURES="--rows 2000")
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r deploy/lock/peers.lock
	$(BIN)/python -m bench.figures --lines "$(LINES)" $(FIGURES)
	$(BIN)/python -m docs.tools.benchmark_page

scaling: setup  ## time against rows, fan-in and columns (SCALING="--rows 1000000")
	$(BIN)/python -m bench.bench_scaling $(SCALING)

sizes: setup  ## bytes per column, compared with Parquet (SIZES="--rows 400000")
	$(BIN)/python -m bench.bench_size $(SIZES)

small-jobs: setup  ## 1,000 tiny compactions in one Spark job, and a 22 MB one
	$(BIN)/python -m bench.bench_small_jobs $(SMALL_JOBS)

startup: setup  ## CPU seconds of commands that have little to do
	$(BIN)/python -m bench.bench_startup $(STARTUP)

micro: setup  ## encode, decode, order and gather of one row group
	$(BIN)/python -m pytest bench/micro --benchmark-json=$(RESULTS)/micro.json $(MICRO)

workload: environment  ## realistic log files in .demo/logs (WORKLOAD="--rows 4000000 --files 16")
	$(BIN)/python -m bench.workload --out .demo/logs $(WORKLOAD)

clean:  ## remove caches and build products
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks
	rm -rf .demo spark-warehouse metastore_db derby.log
	find . -path ./.venv -prune -o -type d -name __pycache__ -exec rm -rf {} +

distclean: clean  ## clean, and remove .venv
	rm -rf .venv
