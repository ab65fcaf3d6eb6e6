# Everything runs from .venv, which the first target that needs it sets up. Python 3.11 or newer and git are enough.
PYTHON ?= python3
BIN := .venv/bin
DEMO ?= runs/demo
# what tests weave under coverage, where no other run of pytest clears it away
COVERED ?= $(or $(TMPDIR),/tmp)/loomax-coverage
# tests, the demo and the compiler for absent hardware run on the host's processor
export JAX_PLATFORMS ?= cpu

.PHONY: help setup setup-test demo demo-rewards test test-all test-generator test-woven test-packages coverage lint style types check build loc modularity features bench clean

help:
	@echo "make demo    build llama2 for this machine, train it on real text, resume it, evaluate it, sample from it: two minutes"
	@echo "make demo-rewards  learn sums from examples, then from rewards, evaluate and serve the model: takes minutes"
	@echo "make test    what every change must pass: lint, types, tests"
	@echo "make test-all  before a release: slow tests and more packages too, for an hour"
	@echo "make test-packages  every test of every generated package: takes an hour"
	@echo "make coverage  which fragment lines the tests of packages execute"
	@echo "make build   weave every package of generated/packages.toml again"
	@echo "make check   fail where generated/ has drifted from the fragments"
	@echo "make loc     measure modularity: fragment lines against generated lines"
	@echo "make modularity  write what is measured to docs/modularity.md, README.md and its figure; make features, its last table, in minutes"
	@echo "make bench   speed of the generator and of training, as ratios (takes minutes)"

.venv/packages: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --no-compile --editable ".[packages]"
	@touch $@

# torch comes first and alone: its exact version has a build without CUDA on machines that offer one
.venv/test: .venv/packages
	$(BIN)/python -m pip install --quiet --no-compile torch==2.13.0
	$(BIN)/python -m pip install --quiet --no-compile --editable ".[test,tpu]"
	@touch $@

setup: .venv/packages

setup-test: .venv/test

# sizes for two minutes of two cores
DEMO_RUN := --width 128 --layers 2 --heads 4 --kv-heads 2 --head-size 32 --mlp-width 384 --init-std 0.06 \
	--vocab-size 2048 --tokenizer $(abspath $(DEMO))/tokenizer.json --data $(abspath $(DEMO))/train.jsonl \
	--eval-data $(abspath $(DEMO))/held_out.jsonl --sequence-length 128 --batch-size 16 --learning-rate 6e-3 \
	--warmup-ratio 0.05 --eval-every 50 --checkpoint-every 200 --checkpoint-dir $(abspath $(DEMO))

demo: setup
	$(BIN)/gen build llama2 --target=cpu
	$(BIN)/python demo/text.py $(DEMO)
	cd generated && ../$(BIN)/python -m llama2_cpu.train --preset tiny $(DEMO_RUN) --steps 200
	@echo "— the same command with more steps goes on from the checkpoint —"
	cd generated && ../$(BIN)/python -m llama2_cpu.train --preset tiny $(DEMO_RUN) --steps 400
	cd generated && ../$(BIN)/python -m llama2_cpu.evaluate --checkpoint-dir $(abspath $(DEMO)) --batch-size 32 \
		--data $(abspath $(DEMO))/held_out.jsonl
	cd generated && ../$(BIN)/python -m llama2_cpu.generate --checkpoint-dir $(abspath $(DEMO)) --prompt def \
		--max-tokens 120 --temperature 0.6 --top-k 40
	@echo "— three lines of what it ran, and the fragments that they are from —"
	@for line in "v = self.value(x)" "q, k = rotate(q, angles)" "h = jax.nn.silu(gate)"; do \
		$(BIN)/gen explain generated/llama2_cpu/model.py:$$(grep -nFm1 "$$line" generated/llama2_cpu/model.py | cut -d: -f1); done
	@echo "loss curve: $(DEMO)/loss.png"

demo-rewards: setup
	$(BIN)/python -m pip install --quiet --editable ".[packages,serve]"
	$(BIN)/gen build llama2 --target=cpu
	sh demo/rewards.sh $(DEMO)-rewards $(BIN)/python

lint: style types

style: setup-test
	$(BIN)/ruff check
	$(BIN)/ruff format --check --exclude generated
	$(BIN)/black --check --quiet --line-length=120 --target-version=py311 fragments

types: setup-test
	$(BIN)/mypy

# make test-all: what is marked slow too, and more packages
CHOSEN := -m "not slow"
# a test that hangs fails by its name, in place of the run
LIMIT := --timeout=600 --timeout-method=thread
# files in the order of their names: those with the most tests are not those that take long
PYTEST := $(BIN)/python -m pytest -n 2 --no-loadscope-reorder $(LIMIT)
# every package with all its parts; generated/ has fewer
WHOLE := build/whole
PACKAGE_TESTS := ../../$(BIN)/python -m pytest -p children -c /dev/null --rootdir=. -q -W error -n 2 --no-loadscope-reorder \
	--dist loadfile $(LIMIT)

# packages are tested where they differ: what is no kernel and no launch once, on llama2_cpu; of the other families'
# packages kernels, the KV cache and MTP layers; their models are compared with transformers by tests/families
PACKAGES := glm4_moe_tpu/tests/test_draft_mtp.py gemma3_tpu/tests/test_window_pages.py \
	qwen2_tpu/tests/test_adapter_file.py qwen3_moe_cpu/tests/test_routing.py \
	gemma2_tpu/tests/test_pages_kernel.py llama2_cpu llama2_tpu/tests/test_compile.py \
	$(addsuffix /tests/test_attention.py,llama2_gpu llama2_tpu llama4_tpu)
ALL_PACKAGES := $(PACKAGES) llama2_gpu/tests/test_model.py llama2_tpu/tests/test_model.py \
	$(addsuffix /tests/test_pages_kernel.py,llama2_tpu llama4_tpu) */tests/test_reference.py */tests/test_attention.py
# tests of packages that take long, some of which no shorter one stands for: make test-all runs them
LONG := @../../tests/long.txt

# programs that processes of tests compile are kept for a week
COMPILED := $(CURDIR)/.pytest_cache/compiled
test-woven: export JAX_COMPILATION_CACHE_DIR = $(COMPILED)
test-woven test-packages: export PYTHONPATH = $(CURDIR)/tests
test-woven: export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS = 0.2
# for jaxlib 0.10.1, which logs a page for each program from the cache
test-woven: export TF_CPP_MIN_LOG_LEVEL = 3
test-woven: export JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES = -1

test: style test-generator test-woven

test-all: CHOSEN :=
test-all: PACKAGES := $(ALL_PACKAGES)
test-all: LONG :=
test-all: test

# commands fork, which a process with JAX must not: apart from the weaver's tests, which run it. Types are checked beside
# them, by one process; files that take long come first, so that no process waits for the other in the end
test-generator: setup-test
	$(MAKE) types & types=$$!; $(PYTEST) $(CHOSEN) --dist loadfile -rs $(COMMANDS) && wait $$types
	$(PYTEST) $(CHOSEN) --dist loadfile --ignore tests/commands --ignore tests/edits --ignore tests/families \
		--ignore tests/robustness --ignore tests/distributed

FIRST := tests/commands/test_new.py tests/edits/test_random_edits.py tests/commands/test_view_browser.py
COMMANDS := $(FIRST) $(filter-out $(FIRST),$(wildcard tests/edits/test_*.py tests/commands/test_*.py))

# tests/robustness imports a package, whose name families weave too: by itself
test-woven: setup-test
	mkdir -p $(COMPILED) && find $(COMPILED) -type f -mtime +7 -delete
	$(PYTEST) $(CHOSEN) --dist loadgroup tests/families
	$(PYTEST) $(CHOSEN) --dist loadgroup tests/robustness
	$(PYTEST) -p children $(CHOSEN) --dist loadfile tests/distributed
	$(BIN)/python tests/whole.py && cd $(WHOLE) && $(PACKAGE_TESTS) $(PACKAGES) $(LONG)

# every test of every package: an hour
test-packages: setup-test
	$(BIN)/python tests/whole.py && cd $(WHOLE) && \
		for package in */gen.lock; do $(PACKAGE_TESTS) $${package%/*} || exit 1; done

# packages that tests weave stay for gen coverage to find; a process that may write no more cannot write what was counted
coverage: setup-test
	rm -rf .coverage* $(COVERED)
	mkdir -p $(COVERED)
	PYTEST_DEBUG_TEMPROOT=$(COVERED) COVERAGE_PROCESS_START=$(CURDIR)/tests/coverage.ini COVERAGE_FILE=$(CURDIR)/.coverage \
		PYTEST_ADDOPTS="-o tmp_path_retention_count=99 -k 'not test_a_full_disk_ends'" \
		$(MAKE) test-woven CHOSEN= LONG= PACKAGES='$(ALL_PACKAGES)'
	$(BIN)/coverage combine --quiet
	$(BIN)/gen coverage .coverage --fail-under 95

check: setup
	$(BIN)/gen check

build: setup
	$(BIN)/gen build --all

loc: setup
	$(BIN)/gen loc

modularity: setup
	$(BIN)/python benchmarks/modularity.py
	$(BIN)/python benchmarks/families.py

features: setup
	$(BIN)/python benchmarks/modularity.py --features

bench: setup-test
	$(BIN)/python benchmarks/weaving.py
	$(BIN)/python benchmarks/training.py

clean:
	rm -rf .venv runs build dist
