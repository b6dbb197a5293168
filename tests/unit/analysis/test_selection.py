"""Rows, experiments and environments that a user asks for, and what is said of runs without samples."""

from dataclasses import replace

import pytest

from analysis.build import build_from
from analysis.figures import fig_learning
from analysis.figures.curves import row_styles
from analysis.names import compared
from analysis.rendering.table import Table
from analysis.selection import Selection, missing_samples
from analysis.sources.archive_writing import write_archive
from analysis.sources.code_versions import section_notes
from analysis.sources.collect import collect
from analysis.sources.rows import Row
from scpo.errors import ConfigError
from tests.support.run_records import write_ablation, write_experiment, write_run
from tests.support.study_runs import rising, write_study, write_study_run

CURVES = {name: (lambda seed: rising(0.8, 0.01 * seed)) for name in ("scpo", "gigpo", "grpo", "chronological")}


@pytest.fixture
def data(tmp_path):
    experiments = {"main_table": ("scpo", "gigpo", "grpo"), "ablation": ("scpo", "chronological")}
    write_study(tmp_path, experiments, CURVES)
    return collect(tmp_path)


def rows(data):
    return [row.name for part in data.sections for row in part.rows]


def test_nothing_asked_for_is_everything(data):
    assert Selection().of(data) is data


def test_rows_are_drawn_in_the_order_in_which_they_were_named(tmp_path):
    write_ablation(tmp_path, rows=("scpo", "no_monotonicity", "chronological"), seeds=(0,))
    chosen = Selection(rows=("chronological", "scpo")).of(collect(tmp_path))
    assert rows(chosen) == ["chronological", "scpo"]
    made = fig_learning.build(chosen.at_scale("mini"))
    first = [row[1] for row in made.numbers.blocks[0].rows][:2]
    assert first == ["chronological order", "SCPO"]


def test_rows_of_one_name_with_other_settings_are_told_apart_by_these_and_not_by_seeds(tmp_path):
    gigpo = write_run(tmp_path, "gigpo", overrides=("method=gigpo",))
    for experiment, alpha in (("first", 0.5), ("second", 2.0)):
        mine = write_run(tmp_path, "mine", overrides=(f"method.shaper.alpha={alpha}",))
        write_experiment(tmp_path, {"gigpo": [gigpo], "mine": [mine]}, name=experiment)
    first, second = Selection(rows=("gigpo", "mine")).of(collect(tmp_path)).sections
    assert (first.seeds, second.seeds) == ("", "")
    assert second.differs.startswith("mine: method.shaper.alpha=2.0 (the others: 0.5)")


def test_a_row_looks_the_same_whichever_rows_are_selected(tmp_path):
    # Three rows whose names would give them one shade.
    overrides = {"forward_matcher": "matcher=forward", "theta_0.5": "theta=0.5", "minilm": "soft_base=0.3"}
    runs = {name: [write_run(tmp_path, name, overrides=(f"method.shaper.{o}",))] for name, o in overrides.items()}
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path)], **runs})
    whole = collect(tmp_path)
    (part,) = whole.at_scale("mini").sections
    every = row_styles(whole.at_scale("mini"), part.rows)
    assert len({style["color"] for style in every.values()}) == 4
    for chosen in (("scpo", "minilm"), ("minilm", "theta_0.5"), tuple(reversed(overrides))):
        selected = Selection(rows=chosen).of(whole).at_scale("mini")
        styles = row_styles(selected, selected.sections[0].rows)
        assert styles == {name: every[name] for name in chosen}


def test_variants_that_were_named_are_compared_with_methods():
    known = [
        Row("scpo", "SCPO", (), "scpo"),
        Row("gigpo", "GiGPO", (), "gigpo"),
        Row("variant", "a variant", (), "scpo"),
    ]
    assert [row.name for row in compared(known)] == ["gigpo", "scpo"]
    assert [row.name for row in compared(known, ("variant", "gigpo"))] == ["variant", "gigpo"]


def test_chosen_rows_that_several_sections_share_stand_in_one(tmp_path):
    default = [write_run(tmp_path, seed=seed) for seed in (0, 1)]
    usual = {name: [write_run(tmp_path, name)] for name in ("chronological", "no_monotonicity")}
    others = {name: [write_run(tmp_path, name, seed=1, steps=20)] for name in ("chronological", "shortest_reference")}
    write_experiment(tmp_path, {"scpo": default, **usual}, name="main_table")
    write_experiment(tmp_path, {"scpo": default, **others}, name="ablation")
    data = collect(tmp_path)
    assert [[row.name for row in part.rows if row.finished] for part in data.sections] == [
        ["scpo", "chronological", "no_monotonicity"],
        ["scpo", "chronological", "shortest_reference"],
    ]
    (part,) = Selection(rows=("scpo",)).of(data).sections
    assert part.experiments == ("main_table", "ablation")
    assert len(Selection(rows=("scpo", "chronological")).of(data).sections) == 2


def test_an_experiment_has_its_own_rows_and_seeds(tmp_path):
    few = [write_run(tmp_path, seed=seed) for seed in (0, 1)]
    more = [*few, *(write_run(tmp_path, seed=seed) for seed in (2, 3))]
    other = [write_run(tmp_path, "no_monotonicity", seed) for seed in (0, 1)]
    write_experiment(tmp_path, {"scpo": few, "no_monotonicity": other}, name="ablation_monotonicity")
    write_experiment(tmp_path, {"scpo": more}, name="more_seeds")
    (part,) = Selection(experiments=("ablation_monotonicity",)).of(collect(tmp_path)).sections
    assert {row.name: row.count for row in part.rows} == {"scpo": "2/2", "no_monotonicity": "2/2"}
    assert part.experiments == ("ablation_monotonicity",)


@pytest.mark.parametrize(
    ("selection", "said"),
    [
        (Selection(rows=("gigpo", "nobody")), "--rows nobody: .*\nthey have chronological, gigpo, grpo, scpo"),
        (Selection(rows=("gigop",)), "--rows gigop: .*; did you mean gigpo\\?"),
        (Selection(experiments=("none",)), "--experiment none: .*\nthey have ablation, main_table"),
        (Selection(envs=("webshop",)), "--env webshop: .*\nthey have alfworld"),
        (
            Selection(rows=("scpo", "grpo"), experiments=("ablation",)),
            "--rows grpo: the runs of --experiment ablation have none of this name\nthey have chronological, scpo",
        ),
    ],
)
def test_an_unknown_name_is_answered_with_those_there_are(data, selection, said):
    with pytest.raises(ConfigError, match=said):
        selection.of(data)


def test_an_archive_says_that_it_has_no_diagnostics(data, tmp_path):
    write_archive(data.by_id.values(), data.metrics, data.experiments, tmp_path / "archive")
    error = missing_samples(collect(tmp_path / "archive").at_scale("study"), "finished run that has sampled a group")
    assert "all 12 finished runs were read from an archive, which holds metrics and no diagnostics" in error.needed
    assert error.command.count("python") == 1


def test_run_folders_without_samples_name_one_command(tmp_path):
    write_ablation(tmp_path, seeds=(0,))
    error = missing_samples(collect(tmp_path).at_scale("mini"), "finished run that has sampled a group")
    assert (error.needed, error.command) == ("finished run that has sampled a group", "python train.py method=scpo")


def test_common_seeds_are_those_that_every_row_has_finished(tmp_path):
    runs = {
        "scpo": [write_run(tmp_path, "scpo", seed) for seed in (0, 1, 2)],
        "chronological": [write_run(tmp_path, "chronological", seed) for seed in (1, 2, 3)],
        "no_monotonicity": [
            write_run(tmp_path, "no_monotonicity", seed, state="FAILED" if seed == 2 else "DONE") for seed in (1, 2)
        ],
        "shortest_reference": [write_run(tmp_path, "shortest_reference", 0, state="FAILED")],
    }
    write_experiment(tmp_path, runs)
    (part,) = Selection(common_seeds=True).of(collect(tmp_path)).sections
    assert {row.name: [run.seed for run in row.runs] for row in part.rows} == {
        "scpo": [1],
        "chronological": [1],
        "no_monotonicity": [1],
    }


def test_a_prompted_row_keeps_its_seed_and_decides_none(tmp_path):
    seeds = {"scpo": (1, 2), "gigpo": (1, 2, 3), "plain": (0,)}
    runs = {row: [write_study_run(tmp_path, row, seed, rising(0.5)) for seed in own] for row, own in seeds.items()}
    write_experiment(tmp_path, runs, name="main_table", scale="study")
    (part,) = Selection(common_seeds=True).of(collect(tmp_path)).sections
    assert {row.name: [run.seed for run in row.runs] for row in part.rows} == {
        "scpo": [1, 2],
        "gigpo": [1, 2],
        "plain": [0],
    }


def test_a_caption_says_which_seeds_and_rows_were_left_out(tmp_path):
    runs = {
        "scpo": [write_run(tmp_path, "scpo", seed) for seed in (0, 1, 2)],
        "chronological": [write_run(tmp_path, "chronological", seed) for seed in (0, 1)],
        "shortest_reference": [write_run(tmp_path, "shortest_reference", 0, state="FAILED")],
    }
    write_experiment(tmp_path, runs)
    apart = [write_run(tmp_path, "scpo", 0, steps=20), write_run(tmp_path, "chronological", 1, steps=20)]
    write_experiment(tmp_path, {"scpo": apart[:1], "chronological": apart[1:]}, name="ablation")
    data = Selection(common_seeds=True).of(collect(tmp_path))
    (output,) = build_from(data, tmp_path / "out", only=["fig_learning"]).outputs
    caption = output.made.numbers.full_caption
    shown = "seeds 0, 1 alone (--seeds common); left out: seed 2 of SCPO; shortest reference, without"
    assert f"Note: ablation_monotonicity on ALFWorld: {shown} a finished run." in caption
    assert "Note: left out (--seeds common): no seed is finished in all of scpo, chronological (mini scale" in caption


def test_the_note_on_common_seeds_names_the_setting_of_its_section(data):
    part = replace(data.sections[0], differs="trainer.steps=20 (the others: 40)", left_out="seed 1 alone")
    (note,) = section_notes([part], data.by_id)
    assert note.endswith(" on ALFWorld; trainer.steps=20 (the others: 40): seed 1 alone")


def test_a_note_calls_no_rows_the_others_that_are_not_shown(data):
    def notes(*rows):
        chosen = Selection(rows=rows).of(data)
        return {row.name: row.differs for part in chosen.sections[:1] for row in part.rows}

    rate = "trainer.optimizer.learning_rate=0.004"
    assert notes("scpo", "gigpo")["scpo"] == f"{rate} (the others: 0.002)"
    assert notes("scpo")["scpo"] == f"{rate} (other rows: 0.002)"


def test_without_a_common_seed_the_row_to_leave_out_is_named(tmp_path):
    seeds = {"scpo": (0, 1, 2), "chronological": (1, 2), "no_monotonicity": (3,)}
    runs = {row: [write_run(tmp_path, row, seed) for seed in own] for row, own in seeds.items()}
    write_experiment(tmp_path, runs)
    reason = r"--seeds common: no seed is .*; without no_monotonicity, 2 seeds are \(--rows\)$"
    with pytest.raises(ConfigError, match=reason):
        Selection(common_seeds=True).of(collect(tmp_path))


def two_sections(folder, seeds):
    """The main table, of whose rows most have GiGPO's rate, and an ablation, most of whose have SCPO's."""
    experiments = {"main_table": ("scpo", "gigpo", "grpo"), "ablation": ("scpo", "gigpo", "chronological")}
    for name, own in experiments.items():
        runs = {row: [write_study_run(folder, row, seed, CURVES[row](seed)) for seed in seeds[name]] for row in own}
        write_experiment(folder, runs, name=name, scale="study")
    return collect(folder)


@pytest.mark.parametrize("common", [False, True])
def test_rows_that_only_their_seeds_set_apart_are_headed_by_these(tmp_path, common):
    data = two_sections(tmp_path, {"main_table": (0, 1), "ablation": (5, 6, 7)})
    assert data.sections[1].differs.endswith("learning_rate as marked")
    chosen = Selection(rows=("scpo", "gigpo"), common_seeds=common).of(data)
    assert [part.seeds for part in chosen.sections] == ["seeds 0, 1", "seeds 5 to 7"]
    assert [part.differs for part in chosen.sections] == ["", ""]
    built = build_from(chosen, tmp_path / "out", only=["tab_main", "tab_beyond", "fig_learning", "fig_profiles"])
    for output in built.outputs:
        table = getattr(output.made, "numbers", output.made)
        if isinstance(table, Table):
            titles = " ".join(block.title for block in table.blocks)
            assert all(own in titles for own in ("seeds 0, 1", "seeds 5 to 7"))
            assert "as marked" not in titles
            assert "SCPO, GiGPO on seeds 5 to 7" in table.caption or "GiGPO, SCPO on seeds 5 to 7" in table.caption


@pytest.mark.parametrize("common", [False, True])
def test_a_section_whose_rows_a_later_one_has_too_is_not_drawn_twice(tmp_path, common):
    data = two_sections(tmp_path, {"main_table": (0, 1), "ablation": (0, 1)})
    chosen = Selection(rows=("scpo", "gigpo", "chronological"), common_seeds=common).of(data)
    (part,) = chosen.sections
    assert ([row.name for row in part.rows], part.differs) == (["scpo", "gigpo", "chronological"], "")
    assert part.experiments == ("main_table", "ablation")


@pytest.mark.parametrize("common", [False, True])
def test_chosen_rows_are_paired_on_the_seeds_of_the_experiment_that_has_both(tmp_path, common):
    """Each showed those of the first experiment that has it: 2 and 1 seeds, none of them in common."""
    rows_and_seeds = [(row, seed) for row in ("scpo", "gigpo") for seed in range(4)]
    runs = {key: write_study_run(tmp_path, *key, CURVES[key[0]](key[1])) for key in rows_and_seeds}
    planned = {
        "first": {"gigpo": (0, 1)},
        "follow_up": {"scpo": (3,)},
        "one_by_method": {"scpo": (0, 1, 2), "gigpo": (0, 1, 2)},
    }
    for name, own in planned.items():
        listed = {row: [runs[row, seed] for seed in seeds] for row, seeds in own.items()}
        write_experiment(tmp_path, listed, name=name, scale="study")
    data = collect(tmp_path)
    (part,) = Selection(rows=("gigpo", "scpo"), common_seeds=common).of(data).sections
    assert [row.count for row in part.rows] == ["3/3", "3/3"]
