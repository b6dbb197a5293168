"""What counts as named before the runs: sweeps of a file that is edited between its calls."""

import shutil

import pytest
import yaml

from scpo.records import State, manifest, named_comparisons, run_config
from sweeps.compose.matrix import expand
from tests.support.run_records import write_archive_index

PAIRS = [["gigpo", "grpo"], ["scpo", "gigpo"]]
AREA, LAST = "validation_area", "last_success"


@pytest.fixture
def sweep(tmp_path):
    """Call a sweep of an experiment with these comparisons; returns its record."""

    def call(pairs, *words, measure=AREA, rows=None, name="mine", finish=True):
        rows = rows or {method: method for method in ("grpo", "gigpo", "scpo")}
        experiment = {
            "name": name,
            "title": "Mine",
            "axes": {"env": ["alfworld"], "model": {"mini": ["tiny"]}, "seeds": {"mini": [0]}},
            "rows": [
                {
                    "name": row,
                    "label": f"row {row}",
                    "overrides": [f"method={method}"] if isinstance(method, str) else method,
                }
                for row, method in rows.items()
            ],
        }
        if pairs:
            experiment["primary"] = {"measure": measure, "comparisons": pairs}
        path = tmp_path / f"{name}.yaml"
        path.write_text("# @package _global_\n" + yaml.safe_dump({"experiment": experiment}))
        runs_dir = tmp_path / "runs"
        matrix = expand(str(path), [f"machine.runs_dir={runs_dir}", *words])
        archive = matrix.cells[0].config.machine.archive
        manifest.update(runs_dir, matrix.manifest, archive)
        for config in matrix.runs.values() if finish else ():
            run_config.ensure(config).update_status(state=State.DONE)
        return manifest.with_earlier_runs(runs_dir, matrix.manifest, archive)

    return call


def primary(record):
    return [list(pair) for pair in record.primary.comparisons] if record.primary else []


def late(record):
    return [list(pair) for pair in record.named_late]


def test_comparisons_that_are_named_before_their_runs_stay_named(sweep):
    for _ in range(2):
        record = sweep(PAIRS)
        assert (primary(record), late(record), record.withdrawn) == (PAIRS, [], ())


def test_a_new_experiment_of_finished_runs_names_nothing_before_them(sweep):
    sweep(PAIRS)
    record = sweep(PAIRS, name="another")
    assert (primary(record), late(record)) == ([], PAIRS)


def test_the_order_of_overrides_does_not_hide_an_added_comparison(sweep):
    sweep(PAIRS[:1], "trainer.steps=3", "trainer.validation.every=1")
    record = sweep(PAIRS, "trainer.validation.every=1", "trainer.steps=3")
    assert late(record) == PAIRS[1:]
    assert PAIRS[1] not in primary(record)


def test_other_names_of_rows_do_not_make_another_configuration_the_named_one(sweep):
    sweep(PAIRS[:1])
    # The file's gigpo is SCPO now: its comparison is new, and the named one is that of the row scpo.
    record = sweep(PAIRS[:1], rows={"grpo": "grpo", "scpo": "gigpo", "gigpo": "scpo"})
    assert (primary(record), late(record)) == ([["scpo", "grpo"]], PAIRS[:1])
    assert record.withdrawn == (("scpo", "grpo"),)


def test_a_measure_that_is_chosen_after_the_results_is_late(sweep):
    sweep(PAIRS)
    record = sweep(PAIRS, measure=LAST)
    # Those by the measure that was named before the runs are still tested.
    assert (sorted(primary(record)), record.primary.measure, late(record)) == (PAIRS, AREA, PAIRS)
    record = sweep(PAIRS)
    assert (primary(record), record.primary.measure, late(record)) == (PAIRS, AREA, [])


def test_a_measure_that_is_replaced_after_results_is_late_for_pairs_without_results_too(sweep):
    """With a new pair by the new measure, the earlier comparisons left the test and its correction."""
    rows = {"grpo": "grpo", "gigpo": "gigpo"}
    sweep(PAIRS[:1], rows=rows)
    for _ in range(2):
        record = sweep(PAIRS, measure=LAST, finish=False)
        assert (primary(record), record.primary.measure, late(record)) == (PAIRS[:1], AREA, PAIRS)
    record = sweep(PAIRS[:1])
    assert (primary(record), late(record)) == (PAIRS[:1], [])


def test_a_measure_that_is_replaced_before_results_is_the_named_one(sweep):
    sweep(PAIRS[:1], rows={"grpo": "grpo", "gigpo": "gigpo"}, finish=False)
    record = sweep(PAIRS, measure=LAST)
    assert (primary(record), record.primary.measure, late(record)) == (PAIRS, LAST, [])


@pytest.mark.parametrize("left", [PAIRS[:1], []], ids=["one", "none"])
def test_a_comparison_that_is_taken_out_after_its_results_is_still_tested(sweep, left):
    sweep(PAIRS)
    record = sweep(left)
    assert (primary(record), record.primary.measure) == (PAIRS, AREA)
    assert [list(pair) for pair in record.withdrawn] == [pair for pair in PAIRS if pair not in left]
    restored = sweep(PAIRS)
    assert (primary(restored), late(restored), restored.withdrawn) == (PAIRS, [], ())


def test_a_comparison_that_was_turned_round_between_benchmarks_is_withdrawn_once(sweep):
    sweep(PAIRS[:1])
    turned = [PAIRS[0][::-1]]
    assert primary(sweep(turned, "env=webshop")) == turned
    record = sweep([])
    assert (primary(record), record.withdrawn) == (PAIRS[:1], (tuple(PAIRS[0]),))


def test_a_comparison_whose_row_is_deleted_after_its_results_stays_in_the_correction(sweep):
    three = [*PAIRS, ["scpo", "grpo"]]
    left = {method: method for method in ("gigpo", "scpo")}
    sweep(three)
    for _ in range(2):
        record = sweep([["scpo", "gigpo"]], rows=left)
        assert (sorted(primary(record)), late(record)) == (sorted(three), [])
        assert {pair for pair in record.withdrawn if "grpo" in pair} == set(record.withdrawn)
        # One row on the command line is no deletion: the file still has the others.
        assert primary(sweep([["scpo", "gigpo"]], "rows=[gigpo]", rows=left)) == primary(record)
    record = sweep(three)
    assert (primary(record), late(record), record.withdrawn) == (three, [], ())


def test_a_row_that_is_deleted_before_it_has_results_takes_its_comparisons_along(sweep):
    sweep(PAIRS, finish=False)
    record = sweep(PAIRS[1:], rows={"gigpo": "gigpo", "scpo": "scpo"})
    assert (primary(record), record.withdrawn) == (PAIRS[1:], ())


def test_other_settings_of_all_rows_have_no_comparisons_of_earlier_rows(sweep):
    sweep(PAIRS)
    record = sweep(PAIRS[1:], "trainer.steps=3", rows={"gigpo": "gigpo", "scpo": "scpo"})
    assert (primary(record), record.withdrawn) == (PAIRS[1:], ())


def test_a_comparison_may_be_taken_out_before_it_has_results(sweep):
    sweep(PAIRS, finish=False)
    assert primary(sweep(PAIRS[:1])) == PAIRS[:1]


def test_new_settings_of_a_row_are_a_new_comparison(sweep):
    sweep(PAIRS)
    record = sweep(PAIRS, "trainer.steps=3", finish=False)
    assert (primary(record), late(record)) == (PAIRS, [])


def edited(*overrides):
    """The rows of ``sweep``, where the row scpo has these further overrides."""
    methods = {method: method for method in ("grpo", "gigpo", "scpo")}
    return methods | {"scpo": ["method=scpo", *overrides]}


def test_comparisons_of_settings_before_an_edit_stay_in_the_correction(sweep):
    """Otherwise a row that is edited until its difference is significant would be one test."""
    sweep(PAIRS)
    for edits in (1, 2):
        for _ in range(2):
            record = sweep(PAIRS, rows=edited(f"method.shaper.alpha=0.{edits}"))
            assert (primary(record), late(record), record.withdrawn) == (PAIRS, [], ())
            assert [former.rows for former in record.superseded] == [("scpo", "gigpo")] * edits
    # A call of one row, and one without the row, know of them, too.
    assert len(sweep(PAIRS, "rows=[gigpo]", rows=edited("method.shaper.alpha=0.2")).superseded) == 2
    without = sweep(PAIRS[:1], rows={"grpo": "grpo", "gigpo": "gigpo"})
    assert (without.withdrawn, len(without.superseded)) == ((("scpo", "gigpo"),), 2)
    # With the first settings again, those of the edits are the former ones.
    restored = sweep(PAIRS)
    assert (primary(restored), len(restored.superseded)) == (PAIRS, 2)
    assert len({former.settings for former in restored.superseded}) == 2


def test_a_row_that_is_edited_before_its_results_leaves_no_comparison(sweep):
    sweep(PAIRS, finish=False)
    record = sweep(PAIRS, rows=edited("method.shaper.alpha=0.1"))
    assert (primary(record), record.superseded) == (PAIRS, ())
    # Those of a call with other overrides are an edition of their own.
    other = sweep(PAIRS, "trainer.steps=3")
    assert (primary(other), other.superseded, other.former) == (PAIRS, (), ())


def test_a_row_and_the_measure_that_are_edited_together_are_late(sweep):
    sweep(PAIRS[1:])
    record = sweep(PAIRS[1:], rows=edited("method.shaper.alpha=0.1"), measure=LAST)
    assert (primary(record), late(record)) == ([], PAIRS[1:])
    assert [(former.rows, former.measure) for former in record.superseded] == [(("scpo", "gigpo"), AREA)]


def test_a_row_that_is_edited_and_taken_out_together_still_counts(sweep):
    sweep(PAIRS)
    record = sweep(PAIRS[:1], rows=edited("method.shaper.alpha=0.1"))
    assert (primary(record), record.withdrawn, len(record.superseded)) == (PAIRS[:1], (), 1)
    record = sweep([], rows=edited("method.shaper.alpha=0.1"))
    assert (primary(record), len(record.superseded)) == (PAIRS[:1], 1)


RENAMED = {"grpo": "grpo", "gigpo": "gigpo", "scpo_2": ["method=scpo", "method.shaper.alpha=0.1"]}
DELETED = {"grpo": "grpo", "gigpo": "gigpo"}


@pytest.mark.parametrize(
    ("words", "rows", "pairs", "counts"),
    [
        (["env=webshop"], None, PAIRS, (1, 0)),
        (["rows=[gigpo]"], None, PAIRS, (1, 0)),
        # The row is deleted now, and its latest comparison is withdrawn.
        ([], RENAMED, [PAIRS[0], ["scpo_2", "gigpo"]], (0, 1)),
        ([], DELETED, PAIRS[:1], (1, 1)),
    ],
    ids=["another benchmark", "another row", "renamed", "deleted"],
)
def test_later_calls_keep_the_comparisons_of_settings_before_an_edit(sweep, words, rows, pairs, counts):
    sweep(PAIRS)
    in_file = edited("method.shaper.alpha=0.1")
    assert len(sweep(PAIRS, rows=in_file).superseded) == 1
    for _ in range(2):
        record = sweep(pairs, *words, rows=rows or in_file)
        assert (len(record.superseded), len(record.withdrawn)) == counts
    assert len(sweep(PAIRS, rows=in_file).superseded) == 1


def test_comparisons_before_an_edit_do_not_depend_on_runs_or_records_that_are_deleted(sweep, tmp_path):
    runs = tmp_path / "runs"
    first = sweep(PAIRS)
    rows = edited("method.shaper.alpha=0.1")
    assert len(sweep(PAIRS, rows=rows).superseded) == 1
    named_comparisons.record_path(runs / "experiments").unlink()
    (scpo,) = (row for row in first.rows if row.name == "scpo")
    for run in scpo.runs:
        shutil.rmtree(runs / run.id)
    for _ in range(2):
        record = sweep(PAIRS, rows=rows)
        assert (len(record.superseded), record.former) == (1, ())

    # Nor on the folder: the record of an archive has them, too.
    write_archive_index(tmp_path / "archive", [path.name for path in runs.glob("alfworld*")], [record])
    shutil.rmtree(runs)
    assert len(sweep(PAIRS, f"machine.archive={tmp_path / 'archive'}", rows=rows).superseded) == 1


def test_runs_of_an_edited_row_return_with_its_settings(sweep):
    first = sweep(PAIRS)
    sweep(PAIRS, rows=edited("method.shaper.alpha=0.1"))
    # A call of another row knows which settings the row has now.
    back = sweep(PAIRS, "rows=[gigpo]")
    assert back.rows[2].runs == first.rows[2].runs
    assert len(sweep(PAIRS, rows=edited("method.shaper.alpha=0.2")).superseded) == 2


def test_rows_that_are_run_one_by_one_keep_the_comparisons_of_the_file(sweep):
    sweep(PAIRS, "rows=[grpo]")
    sweep(PAIRS, "rows=[gigpo]")
    record = sweep(PAIRS, "rows=[scpo]")
    assert (primary(record), late(record)) == (PAIRS, [])


def test_manifests_that_are_older_than_the_record_count_as_they_are(sweep, tmp_path):
    sweep(PAIRS)
    experiments = tmp_path / "runs" / "experiments"
    named_comparisons.record_path(experiments).unlink()
    record = sweep([*PAIRS, ["scpo", "grpo"]])
    assert (primary(record), late(record)) == (PAIRS, [["scpo", "grpo"]])
    entries = named_comparisons.read(experiments)
    assert [entry.late for entry in entries] == [False, False, True]
    assert [entry.at is None for entry in entries] == [True, True, False]


def test_a_damaged_record_is_set_aside_and_made_again(sweep, tmp_path):
    sweep(PAIRS)
    experiments = tmp_path / "runs" / "experiments"
    path = named_comparisons.record_path(experiments)
    path.write_text("{")
    planned = manifest.read(next(experiments.glob("*.json")))
    (note,) = manifest.set_aside_damaged(tmp_path / "runs", planned)
    assert f"{path} is damaged" in note
    assert "kept as comparisons.json.damaged and made again from the manifests" in note
    assert primary(sweep(PAIRS)) == PAIRS


def test_runs_that_are_deleted_do_not_make_a_late_comparison_an_early_one(sweep, tmp_path):
    sweep(PAIRS[:1])
    assert late(sweep(PAIRS)) == PAIRS[1:]
    for folder in (tmp_path / "runs").glob("alfworld*"):
        shutil.rmtree(folder)
    assert late(sweep(PAIRS)) == PAIRS[1:]


@pytest.mark.parametrize("named_there", [PAIRS[:1], []], ids=["one", "none"])
def test_runs_of_an_archive_count_as_finished_and_its_experiments_as_named_before(sweep, tmp_path, named_there):
    elsewhere = sweep(named_there)
    runs = tmp_path / "runs"
    write_archive_index(tmp_path / "archive", [path.name for path in runs.glob("alfworld*")], [elsewhere])
    shutil.rmtree(runs)
    words = (f"machine.archive={tmp_path / 'archive'}",)
    record = sweep(PAIRS, *words, finish=False)
    later = [pair for pair in PAIRS if pair not in named_there]
    assert (primary(record), late(record)) == (named_there, later)
    # The record has what was named here; the archive is asked again by each call.
    entries = named_comparisons.read(runs / "experiments")
    assert [entry.late for entry in entries] == [True] * len(later)
    assert (primary(sweep(PAIRS, *words, finish=False)), late(record)) == (named_there, later)


@pytest.mark.parametrize("measure", [AREA, LAST])
def test_an_archive_whose_measure_was_changed_after_results_has_named_by_the_first(sweep, tmp_path, measure):
    sweep(PAIRS)
    elsewhere = sweep(PAIRS, measure=LAST)
    assert (primary(elsewhere), late(elsewhere)) == (PAIRS, PAIRS)
    runs = tmp_path / "runs"
    write_archive_index(tmp_path / "archive", [path.name for path in runs.glob("alfworld*")], [elsewhere])
    shutil.rmtree(runs)
    record = sweep(PAIRS, f"machine.archive={tmp_path / 'archive'}", measure=measure, finish=False)
    assert (primary(record), record.primary.measure) == (PAIRS, AREA)
    assert late(record) == (PAIRS if measure == LAST else [])


def test_a_comparison_of_archived_runs_that_is_taken_out_is_still_tested(sweep, tmp_path):
    elsewhere = sweep(PAIRS)
    runs = tmp_path / "runs"
    write_archive_index(tmp_path / "archive", [path.name for path in runs.glob("alfworld*")], [elsewhere])
    shutil.rmtree(runs)
    record = sweep(PAIRS[:1], f"machine.archive={tmp_path / 'archive'}", finish=False)
    assert (primary(record), late(record), record.withdrawn) == (PAIRS, [], (tuple(PAIRS[1]),))
