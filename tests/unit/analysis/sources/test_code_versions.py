"""Notes on rows whose runs used several versions of the code."""

from dataclasses import replace

import pytest

from analysis.build import build_from
from analysis.rendering.style import Drawing
from analysis.sources.archive_writing import write_archive
from analysis.sources.code_versions import mixed_code, section_notes
from analysis.sources.collect import collect
from scpo.records.code_files import code_files
from scpo.records.files import write_json
from tests.support.run_records import write_ablation, write_experiment, write_run
from tests.support.study_runs import rising, set_processors, write_study


def with_code(runs_dir, run, **changed):
    write_json(runs_dir / run / "code.json", {"files": code_files() | changed})


def archived(runs_dir, folder):
    data = collect(runs_dir)
    write_archive(data.by_id.values(), data.metrics, data.experiments, folder)
    return collect(folder)


def row_of(data, name):
    return next(row for part in data.sections for row in part.rows if row.name == name)


def test_a_folder_names_the_files_and_an_archive_the_commits(tmp_path):
    ids = write_ablation(tmp_path / "runs", seeds=(0, 1))
    for run in ids["scpo"]:
        with_code(tmp_path / "runs", run)
    same = archived(tmp_path / "runs", tmp_path / "same")
    assert section_notes(same.sections, same.by_id) == ()

    with_code(tmp_path / "runs", ids["scpo"][1], **{"scpo/advantages/gigpo.py": "another"})
    data = collect(tmp_path / "runs")
    assert mixed_code(row_of(data, "scpo"), data.by_id).endswith("versions of scpo/advantages/gigpo.py")
    kept = archived(tmp_path / "runs", tmp_path / "mixed")
    note = mixed_code(row_of(kept, "scpo"), kept.by_id)
    commit = kept.by_id[ids["scpo"][1]].commit[:7]
    assert note == f"its seeds ran under several versions of the code (commit {commit}, with other uncommitted changes)"
    other = replace(kept.by_id[ids["scpo"][1]], commit="fedcba9876")
    note = mixed_code(row_of(kept, "scpo"), {**kept.by_id, other.id: other})
    assert note == f"its seeds ran under several versions of the code (commits {commit}, fedcba9)"


def test_an_archived_run_is_not_told_apart_from_a_folder_s_of_the_same_code(tmp_path):
    ids = write_ablation(tmp_path, seeds=(0, 1))
    for run in ids["scpo"]:
        with_code(tmp_path, run)
    # A file that the row does not use: other code, but no other version of what it used.
    with_code(tmp_path, ids["scpo"][1], **{"scpo/advantages/unused.py": "another"})
    data = collect(tmp_path)
    assert mixed_code(row_of(data, "scpo"), data.by_id) == ""
    first, second = ids["scpo"]
    from_an_archive = replace(data.by_id[first], folder=tmp_path / "archive")
    known = {first: from_an_archive, second: data.by_id[second]}
    assert "the code (commit" in mixed_code(row_of(data, "scpo"), known)
    twin = replace(from_an_archive, code=data.by_id[second].code)
    assert mixed_code(row_of(data, "scpo"), {first: twin, second: data.by_id[second]}) == ""


def test_seeds_of_an_estimator_whose_package_is_missing_are_told_apart_by_its_files(tmp_path):
    ids = write_ablation(tmp_path, seeds=(0, 1))
    for run, content in zip(ids["scpo"], ("old", "new"), strict=True):
        with_code(tmp_path, run, **{"my_package/mine.py": content})
    data = collect(tmp_path)
    for run in ids["scpo"]:
        path = tmp_path / run / "config.yaml"
        path.write_text(path.read_text().replace("name: gigpo", "name: mine"))
    note = mixed_code(row_of(data, "scpo"), data.by_id)
    assert "ran under several versions of my_package/mine.py (used or not: the configuration of" in note
    assert "is the package of its estimator missing?" in note


def test_rows_of_one_version_each_are_named_together_with_their_experiment(tmp_path):
    ids = write_ablation(tmp_path, seeds=(0, 1))
    for name, runs in ids.items():
        for run in runs:
            with_code(tmp_path, run, **({"scpo/advantages/gigpo.py": "another"} if name == "scpo" else {}))
    data = collect(tmp_path)
    (note,) = section_notes(data.sections, data.by_id)
    assert note.startswith("the rows of ablation")
    assert note.endswith(" on ALFWorld ran under several versions of scpo/advantages/gigpo.py")


def on_both_benchmarks(runs_dir):
    """Run ids by benchmark and row, all of one code, and of one experiment."""
    rows = {"scpo": [], "grpo": []}
    for row, made in rows.items():
        for env in ("alfworld", "webshop"):
            made += [write_run(runs_dir, row, seed, overrides=(f"method={row}", f"env={env}")) for seed in (0, 1)]
    write_experiment(runs_dir, rows, name="main_table")
    for run in (run for made in rows.values() for run in made):
        with_code(runs_dir, run["id"])
    return {
        (env, row): [run["id"] for run in made if run["env"] == env]
        for row, made in rows.items()
        for env in ("alfworld", "webshop")
    }


def test_a_row_that_ran_under_other_code_on_the_other_benchmark_is_named(tmp_path):
    ids = on_both_benchmarks(tmp_path)
    for run in ids["webshop", "scpo"] + ids["webshop", "grpo"]:
        # The other row does not use it.
        with_code(tmp_path, run, **{"scpo/advantages/gigpo.py": "another"})
    data = collect(tmp_path)
    label = row_of(data, "scpo").label
    assert section_notes(data.sections, data.by_id) == (
        f"{label} ran under several versions of scpo/advantages/gigpo.py (ALFWorld, WebShop)",
    )
    kept = archived(tmp_path, tmp_path / "archive")
    assert not any("(ALFWorld, WebShop)" in note for note in section_notes(kept.sections, kept.by_id))


def test_rows_with_the_same_change_between_the_benchmarks_have_one_note(tmp_path):
    ids = on_both_benchmarks(tmp_path)
    for run in ids["webshop", "scpo"] + ids["webshop", "grpo"]:
        with_code(tmp_path, run, **{"scpo/advantages/groups.py": "another"})
    data = collect(tmp_path)
    (note,) = section_notes(data.sections, data.by_id)
    labels = ", ".join(row_of(data, name).label for name in ("scpo", "grpo"))
    assert note == f"{labels} ran under several versions of scpo/advantages/groups.py (ALFWorld, WebShop)"


@pytest.mark.parametrize(
    "file",
    [
        "scpo/envs/webshop/prompts.py",
        "scpo/envs/alfworld/prompts.py",
        "scpo/policies/choice/webshop_features.py",
        "scpo/advantages/hgpo.py",
    ],
)
def test_files_of_one_benchmark_and_unused_ones_raise_no_note_on_both(tmp_path, file):
    assert file in code_files()
    ids = on_both_benchmarks(tmp_path)
    for run in ids["webshop", "scpo"] + ids["webshop", "grpo"]:
        with_code(tmp_path, run, **{file: "another"})
    data = collect(tmp_path)
    assert not any("WebShop)" in note for note in section_notes(data.sections, data.by_id))


def test_several_versions_on_one_benchmark_are_in_one_note(tmp_path):
    ids = on_both_benchmarks(tmp_path)
    with_code(tmp_path, ids["webshop", "scpo"][1], **{"scpo/advantages/gigpo.py": "another"})
    data = collect(tmp_path)
    (note,) = section_notes(data.sections, data.by_id)
    assert note.endswith("its seeds ran under several versions of scpo/advantages/gigpo.py")


def test_a_run_that_other_code_resumed_is_a_mix_of_versions(tmp_path):
    ids = write_ablation(tmp_path / "runs", seeds=(0,))
    (run,) = ids["scpo"]
    code = code_files()
    before = {"files": code | {"scpo/advantages/gigpo.py": "another"}, "after_step": 0}
    write_json(tmp_path / "runs" / run / "code.json", {"files": code, "after_step": 2, "earlier": [before]})
    data = collect(tmp_path / "runs")
    note = "its seeds ran under several versions of scpo/advantages/gigpo.py"
    assert mixed_code(row_of(data, "scpo"), data.by_id) == note
    kept = archived(tmp_path / "runs", tmp_path / "archive")
    commit = kept.by_id[run].commit[:7]
    assert mixed_code(row_of(kept, "scpo"), kept.by_id).endswith(f"(commits {commit} and those before a resume)")


def test_runs_under_the_condition_for_which_the_first_edition_is_withdrawn_are_named(tmp_path):
    curves = {"scpo": lambda seed: rising(0.9, 0.01 * seed), "gigpo": lambda seed: rising(0.8, 0.01 * seed)}
    write_study(tmp_path, {"main_table": ("scpo", "gigpo")}, curves)
    data = collect(tmp_path)
    assert not any("withdrawn" in note for note in section_notes(data.sections, data.by_id))

    bonus = ("trainer.loss.entropy_coefficient=0.001", "trainer.skip_updates_without_advantage=false")
    write_study(tmp_path, {"earlier": ("scpo", "gigpo")}, curves, seeds=(0, 1), primary={}, overrides=bonus)
    data = collect(tmp_path)
    (note,) = (note for note in section_notes(data.sections, data.by_id) if "withdrawn" in note)
    assert note.startswith("4 runs of earlier on ALFWorld trained with an entropy bonus")


def test_runs_with_uncommitted_changes_are_named(tmp_path):
    curves = {row: lambda seed: rising(0.5) for row in ("scpo", "gigpo")}
    ids = write_study(tmp_path, {"main_table": ("scpo", "gigpo")}, curves)
    for run in ids["scpo"]:
        write_json(tmp_path / run / "provenance.json", {"attempts": {"1": {"cpu": "a processor", "dirty": True}}})
    data = collect(tmp_path)
    (note,) = section_notes(data.sections, data.by_id)
    assert note.startswith("3 runs of main_table on ALFWorld ran with uncommitted changes in the checkout")


def test_uncommitted_changes_of_seeds_that_only_comparisons_show_are_named(tmp_path):
    """``tab_study`` compares the rows of each experiment on its own seeds, and had no note."""
    curves = {row: lambda seed: rising(0.5) for row in ("scpo", "gigpo")}
    write_study(tmp_path / "runs", {"main_table": ("scpo", "gigpo")}, curves)
    named = {"later": [["scpo", "gigpo"]]}
    later = write_study(tmp_path / "runs", {"later": ("scpo", "gigpo")}, curves, seeds=(7, 8), primary=named)
    for run in (*later["scpo"], *later["gigpo"]):
        record = {"attempts": {"1": {"cpu": "a processor", "dirty": True}}}
        write_json(tmp_path / "runs" / run / "provenance.json", record)
    data = collect(tmp_path / "runs")
    (table,) = build_from(data, tmp_path / "out", only=["tab_study"]).outputs
    assert "4 runs of later, main_table on ALFWorld ran with uncommitted changes" in " ".join(table.made.notes)
    # The main table does not show these seeds.
    (table,) = build_from(data, tmp_path / "out", only=["tab_main"]).outputs
    assert "uncommitted" not in " ".join(table.made.notes)


@pytest.mark.parametrize("name", ["tab_main", "tab_beyond", "tab_study", "fig_learning", "fig_study_curves"])
def test_every_output_notes_the_seeds_whose_rows_ran_on_several_types_of_processor(tmp_path, name):
    rows = ("scpo", "gigpo", "grpo")
    write_study(tmp_path / "runs", {"main_table": rows}, {row: lambda seed: rising(0.5, 0.01 * seed) for row in rows})
    set_processors(tmp_path / "runs", "grpo", ("a processor", "another", "a processor"))
    (made,) = build_from(collect(tmp_path / "runs"), tmp_path / "out", only=[name]).outputs
    note = "the rows of main_table on ALFWorld ran seed 1 on several types of processor"
    table = made.made.numbers if isinstance(made.made, Drawing) else made.made
    assert note in " ".join(table.notes)
