# Everything one does with Recount. A fresh machine needs Python 3.11, a JDK 17, Maven and make; the rest is set up here,
# in ignored folders (.venv, .cache, .recount), and only when its inputs changed.

PYTHON ?= python3.11
ARGS ?=

export PATH := $(CURDIR)/.venv/bin:$(PATH)
# Hundreds of processes import the same packages: each would compile them anew.
unexport PYTHONDONTWRITEBYTECODE
# No library that runs here reports on anybody.
export DO_NOT_TRACK := 1
export GX_ANALYTICS_ENABLED := false
export SCARF_ANALYTICS := false
export AIRFLOW__USAGE_DATA_COLLECTION__ENABLED := false
# uv trusts the certificate authorities of the system, as pip and Maven can: behind a proxy that inspects TLS its own
# list does not do. UV_SYSTEM_CERTS=false takes that list.
export UV_SYSTEM_CERTS ?= true

UV := VIRTUAL_ENV=$(CURDIR)/.venv .venv/bin/uv --quiet
EXAMPLES ?= 5000
SEED ?= 2
MINUTES ?= 30
NIGHTS ?= 30
PYTHONS ?= $(PYTHON)
UPGRADE_FROM ?= 5fe5348
LAWS := tests/unit/engine/test_topologies_are_the_interpreter.py tests/spark/recompute/test_drawn_topologies.py \
	tests/spark/recompute/test_drawn_stretches.py tests/spark/recompute/test_shop_stretches.py \
	tests/spark/audit/test_erasure_of_state.py
PARTS := unit spark integration airflow chaos faults browser
# each by a pytest of its own, two at a time, for one alone leaves a core idle; the longest begin first, so that both end
# at about the same time
RUNS := audit recompute broker unit engines airflow
SELECT ?= not thorough
RUN_broker := tests/chaos tests/integration tests/faults
RUN_audit := tests/spark/audit
RUN_airflow := tests/airflow tests/browser
RUN_recompute := tests/spark/recompute tests/spark/engine tests/spark/profile tests/spark/serve
RUN_unit := tests/unit --ignore tests/unit/engine
RUN_engines := tests/unit/engine

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup dist test-dist test-upgrade test-compose test-registry test-machines test-pods test-classes lock jars browser demo up status down test test-all $(RUNS:%=run-%) $(PARTS:%=test-%) laws mutants nights acls lies chaos faults shop shop-demo conformance errors pictures house lint format bench bench-scale bench-ceiling bench-soak bench-long bench-join bench-lens bench-decoding bench-serve clean play

help: ## show this list
	@echo "usage: make TARGET [ARGS='...']"; echo
	@grep -hE '^[a-z%-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z%-]+):.*## (.*)/\1\t\2/' | while IFS="$$(printf '\t')" read -r name what; do printf '  %-18s %s\n' "$$name" "$$what"; done

# ---- set-up

setup: .venv/.installed .cache/jars/spark/.complete .cache/jars/kafka/.complete ## Python environment and jars (needed by every target below)

.cache/tools.checked: Makefile
	@command -v $(PYTHON) >/dev/null || { echo "missing: $(PYTHON); install Python 3.11, or name it: make setup PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { echo "wrong version: $(PYTHON) is not Python 3.11; name one: make setup PYTHON=/path/to/python3.11"; exit 1; }
	@command -v java >/dev/null || { echo "missing: java; install a JDK 17 (Debian: apt-get install openjdk-17-jdk-headless)"; exit 1; }
	@java -version 2>&1 | grep -qE 'version "(17|21)\.' || { echo "wrong version: java must be 17 or 21; set JAVA_HOME and PATH to one"; exit 1; }
	@command -v mvn >/dev/null || { echo "missing: mvn; install Maven (Debian: apt-get install maven)"; exit 1; }
	@mkdir -p $(@D) && touch $@

.venv/bin/uv: requirements/uv.lock | .cache/tools.checked
	@echo "setup: creating .venv"
	@$(PYTHON) -m venv .venv
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.lock
	@touch $@

.venv/.installed: .venv/bin/uv requirements/dev.lock pyproject.toml
	@echo "setup: installing the Python packages of requirements/dev.lock"
	@$(UV) pip sync --require-hashes requirements/dev.lock
	@$(UV) pip install --no-build-isolation --no-deps --editable .
	@touch $@

jars: .cache/jars/spark/.complete .cache/jars/kafka/.complete

.cache/jars/%/.complete: pom.xml .venv/.installed
	@echo "setup: fetching the $* jars"
	@recount jars $* >/dev/null
	@touch $@

lock: .venv/bin/uv ## resolve requirements/*.in anew into the lock (exact versions and hashes)
	@for name in uv build main dev bench; do $(UV) pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  requirements/$$name.in --output-file requirements/$$name.lock >/dev/null; done

dist: setup ## the wheel and the sdist, in dist/
	@rm -rf dist
	@$(UV) build --no-build-isolation --out-dir dist
	@ls -1 dist

# ---- the embedded profile

up: setup ## start the embedded profile (ARGS: --brokers 3, --spark cluster, --no-airflow, --secure)
	@recount up $(ARGS)

status: setup ## show what runs, where, and where its logs are
	@recount status $(ARGS)

down: setup ## stop everything `make up` started
	@recount down $(ARGS)

play: setup ## after `make up`: run every stream of the shop, and send records to it until Ctrl-C (ARGS: --rate 100, --minutes 30, --seed 20)
	@python -m examples.shop play $(ARGS)

demo: setup ## the whole chain on a generated flow (ARGS: --keep, --secure, --inject duplicate|loss|alter|extra)
	@recount demo $(ARGS)

shop-demo: setup ## two nights of every stream of the shop in a real Airflow, with known numbers planted (ARGS: --keep, --secure)
	@python -m examples.shop demo $(ARGS)

# ---- checks

test: setup browser test-classes ## the tests, in six runs, two at a time, without the thorough ones (SELECT= runs these too); in one run where ARGS are given, which go to pytest
ifeq ($(ARGS),)
	@$(MAKE) --no-print-directory --keep-going --jobs 2 $(RUNS:%=run-%)
else
	@pytest tests/unit $(RUN_audit) $(RUN_broker) $(RUN_airflow) $(RUN_recompute) $(ARGS)
endif

test-classes: setup
	@python -m tests.lean_spark

$(RUNS:%=run-%): run-%:
	@pytest $(RUN_$*) -m "$(SELECT)"

test-all: setup browser test-classes ## all tests and all targets that check something, hours of them: writes docs/operations/last-run.md (ARGS: targets)
	@python -m tests.last_run $(ARGS)

test-unit: setup ## tests without a JVM, in seconds
test-spark: setup test-classes ## tests on a local Spark
test-integration: setup ## tests on a real broker
test-airflow: setup browser ## tests in a real Airflow
test-chaos: setup ## tests that kill
test-faults: setup ## a sample of `make faults`
test-browser: setup browser ## tests of the pages in Chromium
test-dist: dist ## the wheel in an empty folder, in fresh environments, end to end; slow (PYTHONS="python3.11 python3.12")
	@PYTHONS="$(PYTHONS)" pytest tests/dist/end_to_end.py $(ARGS)

test-upgrade: dist ## a project of an earlier release goes on with today's wheel; slow (UPGRADE_FROM=COMMIT)
	@UPGRADE_FROM="$(UPGRADE_FROM)" pytest tests/dist/upgrade.py $(ARGS)

test-registry: setup ## streams of Avro and Protobuf values and their audits, by a schema registry that runs; needs a JDK 21 or later beside the other
	@pytest tests/formats/avro_sources.py tests/formats/protobuf_sources.py $(ARGS)

test-machines: setup ## a stream on a cluster of three brokers and two workers that loses one of each; slow
	@pytest tests/chaos/lost_machines.py $(ARGS)

test-pods: setup ## jobs of Spark as pods of a Kubernetes that is part of the tests
	@pytest tests/pods/jobs_as_pods.py $(ARGS)

test-compose: setup ## docker-compose.yml on a Docker daemon: booted, killed under load, backed up and restored; slow
	@pytest tests/compose/boot.py $(ARGS)

$(PARTS:%=test-%): test-%:
	@pytest tests/$* $(ARGS)

laws: setup ## the laws on other random examples than the tests' (EXAMPLES=5000 SEED=2)
	@LAW_EXAMPLES=$(EXAMPLES) pytest --hypothesis-seed=$(SEED) $(LAWS) $(ARGS)

mutants: setup ## every rule of the stream made wrong in turn: the audit must see each; writes docs/mutants.md
	@python -m tests.mutants $(ARGS)

nights: setup ## nights of the whole shop, each with a fault, some with lies and backfills; goes on where it stopped (NIGHTS=30; ARGS: --publish, --control FOLDER, --played RECORDS)
	@python -m tests.shop_nights --nights $(NIGHTS) --folder .cache/shop-nights $(ARGS)

acls: setup ## each kind of ACL dropped in turn from a chain on a secured broker: it must stop with one clear error (ARGS: audit, Describe, ...)
	@python -m tests.acls $(ARGS)

conformance: setup ## cases of Kafka Streams' own tests (DIR: the folder of case files; ARGS: --engine operators, --case ID)
	@python -m tests.conformance $(DIR) $(ARGS)

lies: setup ## every stream of the shop audited, then lied about: each lie must be found (ARGS: --streams NAME..., --publish)
	@python -m tests.lies $(ARGS)

chaos: setup ## three streams under a hundred mixed faults, audited meanwhile (MINUTES=30 SEED=2; ARGS: --rate 100, --publish)
	@python -m tests.chaos.long_run --minutes $(MINUTES) --seed $(SEED) $(ARGS)

shop: setup ## every stream of the shop at once, in at most four drivers; writes docs/operations/shop.md (MINUTES=30; ARGS: --rate, --no-airflow)
	@python -m bench.shop --minutes $(MINUTES) --publish $(ARGS)

faults: setup ## a fault after every external effect (as root, for a disk that fills; ARGS: --page, --part, --fault, --sample 3)
	@python -m tests.faults $(ARGS)

errors: setup ## every error that the code raises, and what to do: writes docs/errors.md
	@python -m tests.errors

browser:
	@command -v chromium >/dev/null || { \
	  [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && echo "setup: installing chromium for tests/browser" && \
	  { timeout 300 apt-get install -y -qq --no-install-recommends chromium >/dev/null 2>&1 || \
	    { timeout 120 apt-get update -qq >/dev/null 2>&1 && timeout 300 apt-get install -y -qq --no-install-recommends chromium >/dev/null 2>&1; }; }; } || \
	echo "no chromium: tests/browser will fail; install it (Debian: apt-get install chromium)"

pictures: setup browser ## the pictures of README, of a demo that runs (make demo ARGS=--keep)
	@python -m tests.pictures

house: setup ## how large the house is: modules, lines, names that occur twice (ARGS: --lower)
	@python -m tests.house $(ARGS)

lint: setup ## ruff, ruff format --check, mypy --strict, which folder imports which, the limits of `make house`, licences and known vulnerabilities
	@ruff check .
	@ruff format --check .
	@mypy include examples
	@lint-imports --no-logo --no-cache >.cache/import-linter.txt || { cat .cache/import-linter.txt; exit 1; }
	@python -m tests.house
	@python -m tests.packages

format: setup ## let ruff rewrite the code in house style
	@ruff check --fix .
	@ruff format .

bench: setup ## measurements (ARGS go to the benchmark)
	@python -m bench $(ARGS)

bench-scale: setup ## one stream on a cluster that loses machines, beside the embedded one
	@python -m bench.scale $(ARGS)

bench-ceiling: setup ## the CPU that a million records cost the driver, all keys there or in parts (ARGS: --records 2000000 --job sessions-per-user)
	@python -m bench.ceiling $(ARGS)

bench-soak: setup ## an hour at a steady rate: what grows? (ARGS: --minutes 2)
	@python -m bench.soak $(ARGS)

bench-long: setup ## tens of millions of records: does a million cost the same? (ARGS: --records 30000000)
	@python -m bench.long_run $(ARGS)

bench-join: setup ## 300,000 and 30,000 records of 3 keys joined within 1,500 MiB, the stream and its audit
	@python -m bench.join_memory $(ARGS)

bench-lens: setup ## what `recount lens` says that the other engines drop, beside what they drop (ARGS: --records 200000 --publish)
	@python -m bench.lens_engines $(ARGS)

bench-decoding: setup ## what a record costs to decode in JSON, Avro and Protobuf (ARGS: --records 200000 --publish)
	@python -m bench.decoding $(ARGS)

bench-serve: setup ## latency of `recount serve` with one client and with fifty; needs wrk (ARGS: --records 500000 --publish)
	@python -m bench.serve_load $(ARGS)

clean: ## remove .venv, .cache and .recount (stop the profile first: make down)
	@rm -rf .venv .cache .recount
