import json
import shutil
from dataclasses import replace

import pytest

import scpo
from analysis import names
from analysis.selection import Selection
from analysis.sources.collect import collect
from analysis.sources.collected import missing_runs
from analysis.sources.rows import Family, Row, RowRun, Section, with_new_runs
from analysis.sources.settings import unusual_comparison
from tests.support.run_records import ROOT, config, write_experiment, write_run


def section(*experiments, scale="mini"):
    return Section(scale, "alfworld", "tiny", None, experiments, ())


def row(name, *runs):
    return Row(name, name.upper(), tuple(RowRun(run, int(run[-1]), "DONE") for run in runs))


def test_a_section_is_not_repeated_whose_rows_others_have_shown():
    usual = replace(section("main_table"), rows=(row("gigpo", "g0", "g1"), row("scpo", "s0")))
    sizes = replace(section("group_size"), rows=(row("gigpo", "g0"), row("scpo", "s0"), row("size_4", "t0")))
    rates = replace(section("rates"), rows=(row("gigpo", "g0"), row("scpo", "r0")))

    def methods(part):
        return [shown for shown in part.rows if shown.name in ("gigpo", "scpo")]

    assert with_new_runs([usual, sizes, rates], methods) == [usual, rates]
    assert with_new_runs([usual, sizes, rates], lambda part: part.rows) == [usual, sizes, rates]


def test_a_section_is_named_by_the_experiments_that_have_all_its_runs():
    rows = (row("gigpo", "g0", "g1"), row("scpo", "s0"))
    families = (Family("part", "", ("scpo",), frozenset({0}), runs=rows[1:]),
                Family("whole", "", ("gigpo", "scpo"), frozenset({0, 1}), runs=rows))  # fmt: skip
    part = replace(section("part", "whole"), rows=rows, families=families, differs="a=1")
    assert names.asked_by(part, rows) == "; of whole"
    assert names.asked_by(part, rows[1:]) == "; of part, whole"
    assert names.asked_by(replace(part, families=families[:1]), rows) == ""
    assert names.asked_by(replace(part, differs=""), rows) == ""


def test_named_experiments_come_first():
    assert missing_runs("runs", [section("ablation")], "cost").command == "python sweep.py +experiment=cost"


def test_recorded_experiments_are_to_be_finished():
    parts = [section("ablation", "hosts"), section("ablation")]
    assert missing_runs("runs", parts).command.splitlines() == [
        "python sweep.py +experiment=ablation",
        "python sweep.py +experiment=hosts",
    ]


def test_what_a_wandb_project_lacks_an_experiment_of_ours_makes():
    error = missing_runs("sampled step texts", [section("W&B me/demo", scale="paper")])
    assert error.command == "python sweep.py +experiment=ablation scale=paper"
    assert "no sampled step texts" in str(error)


def test_an_experiment_whose_name_runs_nothing_is_no_remedy():
    parts = [replace(section("one_by_method", scale="study"), unnamed=frozenset({"one_by_method"}))]
    assert missing_runs("runs", parts).command == "python sweep.py +experiment=ablation scale=study"


def test_nothing_recorded_at_all_names_an_experiment():
    assert missing_runs("runs", []).command == "python sweep.py +experiment=ablation"


@pytest.mark.parametrize("first", ["done", "failed"])
def test_a_failed_run_never_hides_a_finished_one_of_its_row_and_seed(tmp_path, first):
    done = write_run(tmp_path, steps=40)
    failed = write_run(tmp_path, state="FAILED", overrides=("method.shaper.theta=0.5",))
    order = [done, failed] if first == "done" else [failed, done]
    write_experiment(tmp_path, {"scpo": order[:1]}, name="a")
    write_experiment(tmp_path, {"scpo": order[1:]}, name="b")
    section, other = collect(tmp_path).sections
    assert section.row("scpo").finished == (done["id"],)
    assert [run.id for run in other.row("scpo").runs] == [failed["id"]]
    assert other.differs == "SCPO (default): method.shaper.theta=0.5 (the others: 0.6)"


def gigpo(folder, seed, *words, **settings):
    return write_run(folder, "gigpo", seed, overrides=("method=gigpo", *words), **settings)


STRONG = "method.estimator.omega=3.0"


@pytest.mark.parametrize("other", ["a_strong", "strong"])
def test_a_row_is_never_a_mean_over_two_configurations(tmp_path, other):
    """Of a seed that demo had not finished, another experiment's run with other settings was taken."""
    rows = {"gigpo": [gigpo(tmp_path, 0, state="INTERRUPTED"), gigpo(tmp_path, 1)]}
    write_experiment(tmp_path, rows, name="demo")
    strong = gigpo(tmp_path, 0, STRONG)
    write_experiment(tmp_path, {"gigpo": [strong]}, name=other, labels={"gigpo": "GiGPO strong"})
    data = collect(tmp_path)
    found = {part.experiments: part.row("gigpo").finished for part in data.sections}
    assert found == {("demo",): (rows["gigpo"][1]["id"],), (other,): (strong["id"],)}
    (chosen,) = Selection(experiments=("demo",)).of(data).sections
    assert chosen.row("gigpo").count == "1/2"
    (chosen,) = Selection(experiments=(other,)).of(data).sections
    assert (chosen.row("gigpo").label, chosen.row("gigpo").finished) == ("GiGPO strong", (strong["id"],))
    apart = {part.experiments: part.differs for part in data.sections if part.differs}
    assert list(apart.values()) in (
        ["GiGPO strong: method.estimator.omega=3.0 (the others: 1.0)"],
        ["gigpo: method.estimator.omega=1.0 (the others: 3.0)"],
    )
    frame = scpo.load_runs(tmp_path)
    assert (frame.groupby("row")["configuration"].nunique() == 1).all()


def test_planned_runs_that_have_not_started_are_not_those_of_another_configuration(tmp_path):
    planned = [gigpo(tmp_path, 0)]
    write_experiment(tmp_path, {"gigpo": planned}, name="demo")
    shutil.rmtree(tmp_path / planned[0]["id"])
    write_experiment(tmp_path, {"gigpo": [gigpo(tmp_path, 0, STRONG)]}, name="strong")
    (chosen,) = Selection(experiments=("demo",)).of(collect(tmp_path)).sections
    assert chosen.row("gigpo").count == "0/1"


def test_an_experiment_without_runs_of_a_row_shows_none_of_others(tmp_path):
    """demo ran rows=[grpo] only; its row gigpo was the one of another experiment, under demo's label."""
    grpo = write_run(tmp_path, "grpo", 0, overrides=("method=grpo",))
    write_experiment(tmp_path, {"grpo": [grpo], "gigpo": []}, name="demo")
    write_experiment(tmp_path, {"gigpo": [gigpo(tmp_path, 0, STRONG)]}, name="strong")
    (chosen,) = Selection(experiments=("demo",)).of(collect(tmp_path)).sections
    assert [row.name for row in chosen.rows] == ["grpo"]


def test_single_runs_fill_no_row_of_an_experiment_that_has_none(tmp_path):
    """After an edit of a method's file, the runs of the old settings are in no experiment."""
    grpo = write_run(tmp_path, "grpo", 0, overrides=("method=grpo",))
    gigpo(tmp_path, 0)
    write_experiment(tmp_path, {"grpo": [grpo], "gigpo": []}, name="demo")
    (chosen,) = Selection(experiments=("demo",)).of(collect(tmp_path)).sections
    assert [row.name for row in chosen.rows] == ["grpo"]


def two_experiments(folder, second="beyond"):
    """``main_table`` with seeds 0 and 1, and another experiment with seeds 1 to 3 of the same row."""
    runs = {seed: write_run(folder, seed=seed) for seed in range(4)}
    others = [write_run(folder, "gigpo", seed, overrides=("method=gigpo",)) for seed in (1, 2, 3)]
    write_experiment(folder, {"scpo": [runs[0], runs[1]]}, name="main_table")
    write_experiment(folder, {"scpo": [runs[1], runs[2], runs[3]], "gigpo": others}, name=second)
    (section,) = collect(folder).sections
    return section


def seeds(row):
    return [run.seed for run in row.runs]


@pytest.mark.parametrize("second", ["beyond", "zeta"])
def test_a_row_shows_the_seeds_that_its_experiment_asks_for(tmp_path, second):
    section = two_experiments(tmp_path, second)
    assert seeds(section.row("scpo")) == [0, 1]  # of the main table, whatever the others are called
    assert seeds(section.row("gigpo")) == [1, 2, 3]
    families = {family.experiment: family for family in section.families}
    assert seeds(families["main_table"].row("scpo")) == [0, 1]
    assert seeds(families[second].row("scpo")) == [1, 2, 3]
    assert seeds(section.as_asked_by(second).row("scpo")) == [1, 2, 3]


def test_the_command_of_missing_runs_names_the_experiment_that_asked_for_them(tmp_path):
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path, seed=0)]}, name="main_table")
    missing = [write_run(tmp_path, seed=seed, state="FAILED") for seed in (1, 2)]
    write_experiment(tmp_path, {"scpo": missing}, name="beyond")
    (section,) = collect(tmp_path).sections
    assert section.commands == ("python sweep.py +experiment=beyond 'seeds=[1,2]'",)


def at_rate(folder, row, rate, *more, seeds=(0, 1)):
    words = (f"method={row}", f"trainer.optimizer.learning_rate={rate}", *more)
    return [write_run(folder, row, seed, overrides=words) for seed in seeds]


def test_the_same_runs_of_two_experiments_are_one_section_where_either_setting_could_be_the_usual_one(tmp_path):
    scpo, gigpo, grpo = (at_rate(tmp_path, *row) for row in (("scpo", 4e-3), ("gigpo", 2e-3), ("grpo", 2e-3)))
    write_experiment(tmp_path, {"grpo": grpo, "gigpo": gigpo, "scpo": scpo}, name="demo")
    write_experiment(tmp_path, {"gigpo": gigpo, "scpo": scpo}, name="one_by_method")
    (section,) = collect(tmp_path).sections
    assert section.experiments == ("demo", "one_by_method")
    assert [(row.name, row.differs) for row in section.rows if row.differs] == [
        ("scpo", "trainer.optimizer.learning_rate=0.004 (the others: 0.002)")
    ]


def test_a_row_that_only_prompts_has_no_learning_rate(tmp_path):
    prompted = write_run(tmp_path, "plain", overrides=("method=plain", "trainer.optimizer.learning_rate=0.7"))
    rows = {"scpo": [write_run(tmp_path)], "grpo": [write_run(tmp_path, "grpo", overrides=("method=grpo",))]}
    write_experiment(tmp_path, rows | {"plain": [prompted]}, name="main_table")
    (part,) = collect(tmp_path).sections
    assert [row.differs for row in part.rows] == ["", "", ""]


def test_a_heading_claims_only_what_all_rows_have_and_the_rows_say_the_rest(tmp_path):
    first = {
        "grpo": at_rate(tmp_path, "grpo", 2e-3),
        "gigpo": at_rate(tmp_path, "gigpo", 2e-3),
        "scpo": at_rate(tmp_path, "scpo", 4e-3),
    }
    longer = "trainer.group_size=2"
    second = {
        "gigpo": at_rate(tmp_path, "gigpo", 2e-3, longer),
        "scpo": at_rate(tmp_path, "scpo", 4e-3, longer),
    }
    write_experiment(tmp_path, first, name="demo")
    write_experiment(tmp_path, second, name="one_by_method")
    usual, other = collect(tmp_path).sections
    assert usual.differs == ""
    groups = f"trainer.group_size=2 (the others: {config()['trainer']['group_size']})"
    assert other.differs == f"{groups}; trainer.optimizer.learning_rate as marked"
    rate = "trainer.optimizer.learning_rate=0.004 (the others: 0.002)"
    for rows in (other.rows, other.families[0].runs):
        assert {row.name: row.differs for row in rows} == {"gigpo": "", "scpo": rate}


METHODS = sorted(path.stem for path in (ROOT / "conf/method").glob("*.yaml"))


@pytest.mark.parametrize("method", METHODS)
def test_no_shipped_method_compares_in_another_way_than_its_default(method):
    assert unusual_comparison(config("study", "", overrides=(f"method={method}",))) == ""


def test_a_row_with_another_matcher_or_identity_than_its_methods_says_so(tmp_path):
    overrides = {
        "scpo": (),
        "forward": ("method.shaper.matcher=forward", "method.shaper.step_text=action_next_state"),
        "effects": ("method=crbc", "method.estimator.states=effects"),
        "plus": ("method=scpo_plus",),
        "equal": ("method=scpo_plus", "method.estimator.states=exact"),
        "lexical": ("scorer=lexical", "method.shaper.matcher=forward"),
    }
    rows = {name: [write_run(tmp_path, name, overrides=words)] for name, words in overrides.items()}
    write_experiment(tmp_path, rows)
    (section,) = collect(tmp_path).sections
    forward = "method.shaper.matcher=forward (default: kmp)"
    expected = {
        "scpo": "",
        "forward": f"{forward}; method.shaper.step_text=action_next_state (default: action_next_observation)",
        "effects": "method.estimator.states=effects (default: exact)",
        "plus": "",
        "equal": "method.estimator.states=exact (default: effects)",
        "lexical": f"scorer=lexical (the others: minilm); {forward}",
    }
    assert {row.name: row.differs for row in section.rows} == expected
    assert {row.name: row.differs for row in section.families[0].runs} == expected


def with_rollouts(folder, run, rollouts):
    """Let a run have logged this many rollouts at each training step."""
    path = folder / run["id"] / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if "train/episode_length" in line:
            line["train/episodes"] = rollouts
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return run


@pytest.mark.parametrize("sampling", ["{rule: dynamic, rounds: 10}", "null"])
def test_rows_with_more_rollouts_than_their_groups_ask_for_say_so(tmp_path, sampling):
    planned = config()["trainer"]["groups"] * config()["trainer"]["group_size"]
    usual = [with_rollouts(tmp_path, write_run(tmp_path, "gigpo", seed), planned) for seed in (0, 1)]
    words = ("method=gigpo", f"method.sampling={sampling}", "trainer.loss.clip_high=0.28")
    many = [write_run(tmp_path, "gigpo_dynamic", seed, overrides=words) for seed in (0, 1)]
    for run, rollouts in zip(many, (3 * planned, 5 * planned), strict=True):
        with_rollouts(tmp_path, run, rollouts if sampling != "null" else planned)
    write_experiment(tmp_path, {"gigpo": usual, "gigpo_dynamic": many}, name="main_table")
    (section,) = collect(tmp_path).sections
    assert section.row("gigpo").differs == ""
    clip = "trainer.loss.clip_high=0.28"
    more = f"{clip}; {4 * planned} rollouts per training step instead of {planned}"
    assert section.row("gigpo_dynamic").differs == (clip if sampling == "null" else more)
    assert section.families[0].row("gigpo_dynamic").differs == section.row("gigpo_dynamic").differs


def test_a_row_that_is_marked_in_a_section_of_other_settings_keeps_the_note_on_its_rollouts(tmp_path):
    rates = {"gigpo": 2e-3, "scpo": 4e-3}
    usual = {row: at_rate(tmp_path, row, rate) for row, rate in {**rates, "grpo": 2e-3}.items()}
    write_experiment(tmp_path, usual, name="demo")
    longer = {row: at_rate(tmp_path, row, rate, "trainer.group_size=2") for row, rate in rates.items()}
    planned = 2 * config()["trainer"]["groups"]
    for run in longer["scpo"]:
        with_rollouts(tmp_path, run, 3 * planned)
    write_experiment(tmp_path, longer, name="one_by_method")
    _, other = collect(tmp_path).sections
    rate = "trainer.optimizer.learning_rate=0.004 (the others: 0.002)"
    assert other.row("scpo").differs == f"{rate}; {3 * planned} rollouts per training step instead of {planned}"
