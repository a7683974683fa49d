# Needs Python 3.11 to 3.13 and make, nothing else. The environment is .venv, made by uv from requirements.lock.
PYTHON ?= python3
UV_VERSION := 0.13.8
VENV := .venv
BIN := $(VENV)/bin
EXTRA := .venv-sklearn-extra
FLWR := .venv-flwr
RAY := .venv-ray
DOCS := .venv-docs
NEXT := .venv-next
PFL := .venv-pfl
FLOWER := .venv-flower
JAX := .venv-jax
# for check-gpu on another machine: its Python, and the packages it lacks
FOR := 3.12
# tests that need minutes each, or an environment of their own, are for other targets
DEFAULT := not slow and not sklearn_extra and not ray and not flwr
# what check-next takes the newest of, pre-releases too
NEWEST := hydra-core omegaconf
CARRY := hydra-core omegaconf antlr4-python3-runtime greenlet

# what is compiled once is read by the hundreds of processes that tests start
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup run test test-full test-slow test-all campaign-faults test-sklearn-extra test-flwr test-ray test-wheel release check-next mutants lint types format lock lists missing address image docs docs-serve benchmark benchmark-pfl benchmark-flower benchmark-peers check-gpu carried reproduce results audit leaderboard clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 22

setup: $(VENV)/.ready  ## create .venv with everything pinned in requirements.lock

$(VENV)/.ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v <= (3, 13) else f"fedclust needs Python 3.11 to 3.13, this is {v[0]}.{v[1]}; choose one with make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r requirements.lock
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --no-deps -e .
	@touch $@

run: setup  ## the quickstart: five methods on rotated handwritten digits, then the report
	$(BIN)/fedclust run experiment=quickstart

test: setup  ## the fast tests, about two minutes; those on MNIST wait for `fedclust data mnist`
	$(BIN)/python -m pytest -q -n auto --dist loadfile -m "not full and $(DEFAULT)"

test-full: setup  ## the other default tests, minutes: every method, option and message, on every engine
	$(BIN)/python -m pytest -q -n auto --dist loadfile -m "full and $(DEFAULT)"

test-slow: setup  ## the long tests: real kills, every experiment at smoke scale, real training
	$(BIN)/python -m pytest -q -n auto --dist worksteal -m "slow and not sklearn_extra and not ray"

test-all: test test-full test-slow test-sklearn-extra test-ray test-wheel  ## every test

campaign-faults: setup  ## kills, damage, full disks, odd values, sweeps: goes on where it was left
	$(BIN)/python scripts/trust/campaign_faults.py --workers 2

mutants: setup  ## small changes of the package that some test must notice, and the share noticed
	$(BIN)/python scripts/trust/mutants.py

$(EXTRA)/.ready: requirements-sklearn-extra.lock pyproject.toml | setup
	$(PYTHON) -m venv $(EXTRA)
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(EXTRA)/bin/python --require-hashes -r requirements-sklearn-extra.lock
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(EXTRA)/bin/python --no-deps -e .
	@touch $@

test-sklearn-extra: $(EXTRA)/.ready  ## scikit-learn-extra's k-medoids, in an environment with numpy<2
	$(EXTRA)/bin/python -m pytest -q -m sklearn_extra

# as its extra says: nothing but this test runs there
$(FLWR)/.ready: pyproject.toml | setup
	$(PYTHON) -m venv $(FLWR)
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(FLWR)/bin/python -e '.[flwr]' pytest pytest-timeout
	@touch $@

test-flwr: $(FLWR)/.ready  ## partitioners of flwr-datasets, in an environment with older `datasets`
	$(FLWR)/bin/python -m pytest -q -m flwr tests/partitions

# pinned by version only: nothing but this test runs there
$(RAY)/.ready: requirements-ray.lock pyproject.toml | setup
	$(PYTHON) -m venv $(RAY)
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(RAY)/bin/python -r requirements-ray.lock
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(RAY)/bin/python --no-deps -e .
	@touch $@

test-ray: $(RAY)/.ready  ## a sweep through Ray, whose launcher needs an older cloudpickle than the others
	$(RAY)/bin/python -m pytest -q -m ray

test-wheel: setup  ## the built wheel in an empty environment and an empty folder
	PYTHON=$(PYTHON) UV=$(CURDIR)/$(BIN)/uv bash scripts/trust/test_wheel.sh

# PYTHONS="3.12" tries fewer
PYTHONS ?= 3.11 3.12 3.13
release: setup  ## build, check and try what a package index gets, on every Python; uploads nothing
	UV=$(CURDIR)/$(BIN)/uv PYTHONS="$(PYTHONS)" bash scripts/trust/release.sh

# the packages of .venv, behind those that are newer
$(NEXT)/.ready: requirements.lock pyproject.toml | setup
	$(BIN)/python -m venv $(NEXT)
	@site='import sysconfig; print(sysconfig.get_path("purelib"))'; \
	echo "import site; site.addsitedir('$$($(BIN)/python -c "$$site")')" > "$$($(NEXT)/bin/python -c "$$site")/venv.pth"
	@touch $@

check-next: $(NEXT)/.ready  ## the fast tests with pre-releases of Hydra and OmegaConf; NEWEST="numpy pandas" for others
	$(BIN)/uv pip install --quiet --upgrade --prerelease allow --no-deps --python $(NEXT)/bin/python $(NEWEST)
	$(NEXT)/bin/python -m pytest -q -n auto --dist loadfile -m "not full and $(DEFAULT)"

lint: setup  ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup  ## mypy, strict on the package
	$(BIN)/mypy

format: setup  ## apply ruff's fixes and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# it reads the package's files and imports no PyTorch, so it has an environment of its own
$(DOCS)/.ready: requirements-docs.lock | setup
	$(PYTHON) -m venv $(DOCS)
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(DOCS)/bin/python --require-hashes -r requirements-docs.lock
	@touch $@

docs: $(DOCS)/.ready  ## the documentation site in site/, without a network
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --quiet --strict
	@echo "open site/index.html"

docs-serve: $(DOCS)/.ready  ## the site at http://127.0.0.1:8000, built again after every change
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs serve

lists: setup  ## rows of docs, counts, comparisons and golden rounds, after a part was added
	$(BIN)/python -m scripts.docs.lists

# PARTS="attack=mine": without, what is new since the branch main
PARTS ?=
missing: setup  ## what a new part still lacks, a line for each file
	$(BIN)/python -m scripts.docs.missing $(PARTS)

SOURCE ?=
SITE ?=
address: setup  ## write the public address everywhere: make address SOURCE=https://github.com/OWNER/NAME
	$(BIN)/python -m scripts.docs.address $(SOURCE) $(SITE)

# TORCH=cuda for a GPU; DOCKER=podman for another builder
TORCH ?= cpu
DOCKER ?= docker
image:  ## a container image named fedclust, without CUDA or with TORCH=cuda
	$(DOCKER) build --build-arg TORCH=$(TORCH) --tag fedclust .

lock: setup  ## pin the newest allowed versions
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-header --extra dev --extra hf --extra tune --extra watch --extra privacy pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile --quiet --upgrade --python-version 3.11 --universal --generate-hashes --no-header --extra dev --extra sklearn-extra pyproject.toml -o requirements-sklearn-extra.lock
	$(BIN)/uv pip compile --quiet --upgrade --python-version 3.11 --universal --no-annotate --no-header --extra dev --extra ray pyproject.toml -o requirements-ray.lock
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-header --group docs -o requirements-docs.lock

benchmark: setup  ## client steps per second against the plain loop, with the machine's limit
	$(BIN)/python -m benchmarks

# other simulators: pinned by version only, as nothing but benchmarks runs in their environments
$(PFL)/.ready $(FLOWER)/.ready $(JAX)/.ready: .venv-%/.ready: benchmarks/against/%.txt | setup
	$(PYTHON) -m venv $(@D)
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(@D)/bin/python -r $<
	@touch $@

benchmark-pfl: $(PFL)/.ready  ## whole rounds against pfl-research, in an environment of its own
	$(BIN)/python -m benchmarks --against pfl

benchmark-flower: $(FLOWER)/.ready  ## whole rounds against Flower on Ray, in an environment of its own
	$(BIN)/python -m benchmarks --against flower

benchmark-peers: $(PFL)/.ready $(JAX)/.ready  ## one table with pfl-research, the plain loops of PFLlib and FL-bench, and JAX
	$(BIN)/python -m benchmarks.peers

check-gpu:  ## ten minutes on a GPU: is every fast path right, and faster? needs PyTorch, no set-up
	$(or $(wildcard $(BIN)/python),$(PYTHON)) -m benchmarks.check_gpu

carried: setup  ## .carried, what check-gpu needs on a machine with PyTorch but no network: make carried FOR=3.12
	rm -rf .carried
	$(BIN)/uv pip install --quiet --target .carried --no-deps --python-version $(FOR) --python-platform x86_64-manylinux_2_28 --python $(BIN)/python --constraint requirements.lock $(CARRY)

reproduce: setup  ## LCFL Table II at laptop scale on MNIST (half an hour on two cores)
	$(BIN)/fedclust run experiment=lcfl/table2 scale=laptop

results: setup  ## docs/results/README.md: every published number and ours at full size
	$(BIN)/python -m scripts.papers.results

audit: setup  ## every number of docs/results once more from the kept files, by a second reader
	$(BIN)/python -m scripts.papers.audit

# RUNS: folders of archives or jobs beside those that are kept
RUNS ?=
leaderboard: setup  ## docs/benchmark.md from the jobs kept beside it, and from those in RUNS=outputs/…
	rm -rf outputs/kept
	$(BIN)/python -m scripts.papers.kept_runs restore outputs/kept
	$(BIN)/fedclust benchmark page outputs/kept $(RUNS) --to docs/benchmark.md

clean:  ## delete the environments and caches, keep outputs
	rm -rf $(VENV) $(EXTRA) $(FLWR) $(RAY) $(NEXT) $(DOCS) $(PFL) $(FLOWER) $(JAX) site .mypy_cache .pytest_cache .ruff_cache build dist
