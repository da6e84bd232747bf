# Two commands do everything for a newcomer: `make demo` and `make test`. Each sets up what it needs.

PYTHON := .venv/bin/python
# Seeds that `make sim` runs.
SEEDS ?= 1000
# The oldest and the newest Python of the machine, if they are not .venv's; `make setup` fills them.
OTHER_PYTHONS = $(patsubst %/.setup-stamp,%/bin/python,$(wildcard .tools/python-*/.setup-stamp))
# Plots keep their font cache in the checkout.
export MPLCONFIGDIR := $(CURDIR)/.tools/matplotlib

.PHONY: help setup demo test test-long lint deploy-check bench clients-vs-kafka dashboard-picture tour-pages sim soak mutants rpc clean

help:
	@echo "make demo    break a cluster under load through toxiproxy, prove that nothing was lost"
	@echo "make test    the tests of every day, with ruff, mypy and import-linter among them"
	@echo "make test-long  the others: Spark, Kafka's JVMs, browsers, whole experiments, wheels"
	@echo "make bench   side by side with Apache Kafka 4.4 and etcd; writes bench/results.md, quorum.md, logs.md, metrics.md, metrics_cost.md"
	@echo "make clients-vs-kafka  the client families' scenarios against Apache Kafka 4.4 (docs/compat.md)"
	@echo "make dashboard-picture  the Grafana dashboard with values of a live Prometheus (docs/images/dashboard.png)"
	@echo "make tour-pages  a run of each lesson of the tour, with its picture (docs/tour); LESSON=NAME: only that"
	@echo "make sim     a thousand seeds in virtual time, of each world of the simulator; SEEDS=N"
	@echo "make soak    ten minutes of kill -9 of brokers, then two hundred kills and pauses of any node"
	@echo "make mutants break the rules one by one; the tests must object; WORLD=partitions: only those"
	@echo "make deploy-check  the deployment files, by hadolint, kubeconform, helm, compose and systemd-analyze"
	@echo "make lint    ruff, mypy, import-linter alone"
	@echo "make setup   what the others do first: .venv, toxiproxy, a Java check"

setup:
	@bash deploy/setup.sh all

demo:
	@bash deploy/setup.sh demo
	@$(PYTHON) -m kvorum demo

# Tests of real processes wait most of the time, so modules run side by side on any machine: each has
# ports and folders of its own. A module stays on one worker, for its tests share a cluster.
test: setup
	@set -e; for python in $(PYTHON) $(OTHER_PYTHONS); do \
		$$python -m pytest -n auto --dist worksteal -m "not live"; done
	$(PYTHON) -m pytest -n 3 --dist loadfile --no-loadscope-reorder -m "live and not long" --durations=20

test-long: setup
	$(PYTHON) -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m long --durations=20

lint: setup
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy
	.venv/bin/lint-imports

deploy-check: setup
	@bash deploy/setup.sh deploy
	KVORUM_DEPLOY_CHECK=1 $(PYTHON) -m pytest -rs tests/test_deploy tests/live/test_secure_chart.py

bench: setup
	$(PYTHON) -m bench.run
	$(PYTHON) -m bench.quorum --with-etcd
	$(PYTHON) -m bench.logs
	$(PYTHON) -m bench.metrics
	$(PYTHON) -m bench.metrics_cost

clients-vs-kafka: setup
	$(PYTHON) -m tests.clients.vs_kafka
	$(PYTHON) -m tests.clients.access_vs_kafka
	$(PYTHON) -m tests.clients.streams_stories
	$(PYTHON) -m tests.clients.logins_vs_kafka
	$(PYTHON) -m tests.clients.compat

dashboard-picture: setup
	$(PYTHON) -m tests.live.dashboard_picture

tour-pages: setup
	$(PYTHON) -m kvorum.tour.pages docs/tour $(LESSON)

sim: setup
	$(PYTHON) -m kvorum chaos sim --seed 0 --count $(SEEDS)
	$(PYTHON) -m kvorum chaos sim --world controller --seed 0 --count $(SEEDS)
	$(PYTHON) -m kvorum chaos sim --world partitions --seed 0 --count $(SEEDS)

soak: setup
	$(PYTHON) -m kvorum chaos run chaos/experiments/soak-brokers.yaml
	$(PYTHON) -m kvorum chaos run chaos/experiments/soak-nodes.yaml

mutants: setup
	$(PYTHON) -m tests.mutants.run $(if $(WORLD),--world $(WORLD))

rpc: setup
	PYTHON=$(PYTHON) sh deploy/generate_rpc.sh

clean:
	rm -rf build kvorum.egg-info .venv .tools .pytest_cache .mypy_cache .ruff_cache .hypothesis demo-data chaos-runs
