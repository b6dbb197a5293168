"""Every YAML under conf/ composes, validates, and names the source of its values."""

import itertools
import re
from pathlib import Path

import pytest

from analysis.names import METHODS, TRAINED
from analysis.paper.published import main_table
from scpo.advantages.registry import ESTIMATORS, HOSTS
from scpo.errors import ConfigError
from scpo.records.identity import run_id
from scpo.schema.agent import AGENT_LABELS
from sweeps.compose.configuration import compose_run
from sweeps.compose.overrides import CONF, options
from sweeps.search.plan import make_plan
from tests.support.matrices import expanded

FILES = sorted(CONF.rglob("*.yaml"))
GROUPS = sorted({path.parent.name for path in FILES if path.parent != CONF} - {"experiment", "estimator", "search"})
CHOICES = [f"{group}={name}" for group in GROUPS for name in options(group)]
INSTRUCTED = ["model=qwen2_5_1_5b", "env.prompt=verl_agent"]
NEEDS = {  # what a choice cannot be composed without
    "method=dapo": ["trainer=local"],
    **{f"method={name}": INSTRUCTED for name in AGENT_LABELS if name != "plain"},
    "model=choice": ["trainer=local", "env.prompt=memory", "trainer.max_response_tokens=1"],
    "model=gpt_4o": ["method=plain", "env.prompt=verl_agent"],
    "model=gemini_2_5_pro": ["method=plain", "env.prompt=verl_agent"],
}
REFUSED_AT_STUDY = {  # what a choice policy cannot do, or nobody has set up for it
    "method=hcapo": "needs hindsight_logprob, which model=choice does not provide",
    "model=tiny": "only model=choice reads env.prompt=memory",
    "model=qwen2_5_0_5b": "only model=choice reads env.prompt=memory",
    "model=qwen2_5_1_5b": "only model=choice reads env.prompt=memory",
    "model=qwen2_5_7b": "only model=choice reads env.prompt=memory",
    **{
        f"trainer={name}": "model=choice trains on trainer=local only" for name in options("trainer") if name != "local"
    },
}
DEFAULT = "scale=mini"  # written as in the other tests, so that their cached composition is used
LEAF = re.compile(r"\s*[a-z_0-9]+: +[^#\s&{]")
SELF_EXPLAINING = re.compile(r"\s*(name|label|title|kind|scale):|\s*- ")
SOURCE = re.compile(r"\b(ours|[Pp]aper|Table|section|arXiv|appendix|A (control|pool))\b")


@pytest.mark.parametrize("choice", CHOICES)
def test_every_choice_composes_at_every_scale(choice):
    for scale in options("scale"):
        words = [choice] if choice.startswith("scale=") else [f"scale={scale}", choice]
        if scale != "study" or choice not in REFUSED_AT_STUDY:
            assert run_id(compose_run([*words, *NEEDS.get(choice, [])]))


@pytest.mark.parametrize("choice", REFUSED_AT_STUDY)
def test_what_the_study_scale_cannot_serve_is_refused_in_one_line(choice):
    with pytest.raises(ConfigError, match=REFUSED_AT_STUDY[choice]) as refused:
        compose_run(["scale=study", choice, *NEEDS.get(choice, [])])
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", options("experiment"))
def test_every_experiment_expands_at_every_scale(name):
    everywhere = expanded(name, "scale=study").experiment.rows
    for scale in options("scale"):
        if not any(scale in row.scales for row in everywhere):
            with pytest.raises(ConfigError, match="none of its rows runs at this scale; allowed: scale=study"):
                expanded(name, f"scale={scale}")
            continue
        matrix = expanded(name, f"scale={scale}")
        assert matrix.experiment.name == name
        runnable = {row.name for row in matrix.experiment.rows if scale in row.scales}
        assert {cell.row.name for cell in matrix.cells} == runnable
        assert not matrix.notes
        assert len(matrix.runs) == len(matrix.cells)


@pytest.mark.parametrize("name", options("search"))
def test_every_search_starts_from_the_papers_setting_at_every_scale(name):
    for scale in options("scale"):
        plan = make_plan(name, [f"scale={scale}"])
        assert plan.search.name == name
        papers = compose_run([f"scale={scale}"])
        for trial in plan.runs(plan.default()).values():
            assert (trial.method, trial.trainer, trial.scorer) == (papers.method, papers.trainer, papers.scorer)
            assert not trial.env.validation_panels.keys() & papers.env.validation_panels.keys()


def method(name):
    return compose_run([DEFAULT, f"method={name}", *NEEDS.get(f"method={name}", [])]).method


def test_the_untrained_models_are_the_same_runs_in_both_experiments_of_the_paper():
    table, prompting = (expanded(name, "scale=paper", "seeds=[0]") for name in ("main_table", "prompting"))
    ids = {cell.run_id for cell in table.cells if cell.row.name == "plain"}
    assert ids == {cell.run_id for cell in prompting.cells if cell.row.name == "plain"}
    tokens = {cell.config.env.benchmark: cell.config.trainer.max_prompt_tokens for cell in prompting.cells}
    assert tokens == {"alfworld": 2048, "webshop": 4096, "webshop_paper": 2048}


@pytest.mark.parametrize("name", options("method"))
def test_a_methods_file_is_called_as_the_method(name):
    assert method(name).name == name


def test_every_estimators_file_is_some_methods():
    methods = [method(name) for name in options("method")]
    estimators = {one.estimator.name for one in methods if one.kind == "trained"}
    assert estimators == set(options("estimator")) == set(ESTIMATORS)


def test_every_agent_is_some_methods():
    methods = [method(name) for name in options("method")]
    assert {one.agent.name for one in methods if one.kind == "prompted"} == set(AGENT_LABELS)


@pytest.mark.parametrize("host", HOSTS)
def test_scpo_on_a_host_has_exactly_the_hosts_own_settings(host):
    shaped, alone = compose_run([f"method.host={host}"]).method, compose_run([f"method={host}"]).method
    assert shaped.estimator == alone.estimator
    assert (shaped.name, shaped.shaper) == ("scpo", compose_run([]).method.shaper)


PRINTED = {method for _size, method, *_ in main_table()}
ROWS = [name for name, method in METHODS.items() if method.published in PRINTED]
CLOSED = ["gpt_4o", "gemini_2_5_pro"]


def test_the_main_table_has_every_row_that_the_paper_prints_on_both_benchmarks_and_sizes():
    matrix = expanded("main_table", "scale=paper", "seeds=[0]")
    rows = [row.name for row in matrix.experiment.rows if "paper" in row.scales]
    assert [name for name in rows if name in ROWS] == ROWS
    places = {(row, env) for row in rows for env in ("alfworld", "webshop")}
    assert {(cell.row.name, cell.config.env.name) for cell in matrix.cells} == places
    open_cells = [cell for cell in matrix.cells if cell.row.name not in CLOSED]
    assert {cell.config.model.name for cell in open_cells} == {"1.5B", "7B"}
    assert {cell.config.env.benchmark for cell in open_cells} == {"alfworld", "webshop", "webshop_paper"}
    assert len(open_cells) == (len(rows) - len(CLOSED)) * 6


def test_the_papers_own_runs_are_those_of_its_main_table_ablations_and_sweeps():
    runs = expanded("paper_runs", "scale=paper").runs.keys()
    table = {cell.run_id for cell in expanded("main_table", "scale=paper").cells if cell.row.name == "scpo"}
    table = {run for run in table if not run.startswith("webshop_paper")}
    ablated = expanded("ablation", "scale=paper").runs.keys() - table
    swept = {run for name in ("sweep_theta", "sweep_lambda") for run in expanded(name, "scale=paper", "seeds=[0]").runs}
    assert (len(table), len(ablated), len(swept - table)) == (12, 9, 9)
    assert runs == table | ablated | swept


def test_at_mini_scale_the_main_table_runs_what_the_tiny_policy_can():
    matrix = expanded("main_table", "seeds=[0]", "env=alfworld")
    expected = [name for name in ROWS if name == "plain" or METHODS[name].kind == TRAINED]
    assert [cell.row.name for cell in matrix.cells if cell.row.name in ROWS] == expected


def test_at_study_scale_the_main_table_has_scpo_with_each_scorer():
    matrix = expanded("main_table", "scale=study", "seeds=[0]")
    scorers = {cell.row.name: cell.config.scorer.name for cell in matrix.cells if cell.config.method.name == "scpo"}
    assert scorers == {"scpo": "exact", "scpo_lexical": "lexical", "scpo_minilm": "minilm"}


def _at_default(choice):
    return [*([] if choice.startswith("scale=") else [DEFAULT]), choice, *NEEDS.get(choice, [])]


def test_no_two_choices_of_a_group_are_the_same_run():
    for _group, choices in itertools.groupby(CHOICES, key=lambda choice: choice.partition("=")[0]):
        words = [_at_default(choice) for choice in choices if not choice.startswith("launcher=")]
        ids = [run_id(compose_run(choice)) for choice in words]
        assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(CONF)))
def test_every_value_has_a_source_beside_it_or_in_the_files_header(path: Path):
    lines = path.read_text().splitlines()
    header = " ".join(itertools.takewhile(lambda line: line.startswith("#"), lines))
    assert header.replace("# @package _global_", "").strip(), "the file does not say what it is"
    unsourced = [line for line in lines if LEAF.match(line) and "#" not in line and not SELF_EXPLAINING.match(line)]
    assert not unsourced or SOURCE.search(header), f"no source for {unsourced}"


SWEPT = {
    "sweep_theta": ("theta", [0.4, 0.5, 0.6, 0.7, 0.8]),
    "sweep_lambda": ("soft_base", [0.0, 0.2, 0.3, 0.4, 0.5, 0.6]),
    "sweep_alpha": ("alpha", [0.1, 0.25, 0.5, 1.0, 2.0]),
}


@pytest.mark.parametrize("name", SWEPT)
def test_a_sensitivity_sweep_changes_one_knob_around_the_paper_s_default(name):
    knob, values = SWEPT[name]
    shapers = [cell.config.method.shaper for cell in expanded(name, "scale=paper", "seeds=[0]").cells]
    assert [getattr(shaper, knob) for shaper in shapers] == values
    default = compose_run([]).method.shaper
    assert {shaper.model_copy(update={knob: 0}) for shaper in shapers} == {default.model_copy(update={knob: 0})}


def test_what_several_experiments_need_is_run_once():
    table = expanded("main_table", "scale=paper").runs.keys()
    cost = expanded("cost", "scale=paper").cells
    assert {cell.run_id for cell in cost if cell.row.name != "scpo_dense"} < table
    assert not {cell.run_id for cell in cost if cell.row.name == "scpo_dense"} & table
    for name in SWEPT:
        default = {cell.run_id for cell in expanded(name, "scale=paper").cells if cell.row.name == "scpo"}
        assert default < table
