import csv
import io

import pytest

from analysis.sources.collect import collect
from analysis.sources.collected import MissingRunsError
from analysis.tables.tab_cost import PEAKS, build
from tests.support.run_records import write_experiment, write_json, write_lines, write_run


def rows(runs_dir):
    made = build(collect(runs_dir).at_scale("mini"))
    lines = csv.DictReader(io.StringIO(made.csv()))
    return {(row["block"].split(",")[0], row["Quantity"]): row for row in lines}


def hosted(runs_dir, seconds, memory, seed=0):
    run = write_run(runs_dir, "gigpo", seed, overrides=("method=gigpo",))
    peaks = {"perf/max_memory_allocated_gb": memory, "perf/node_gpu_gib": memory + 40, "perf/node_memory_gib": 60}
    lines = ({"step": s, "timing_s/step": seconds, **peaks} for s in (1, 2))
    write_lines(runs_dir / run["id"] / "timing.jsonl", lines)
    return run


def test_a_slow_first_step_does_not_move_the_medians(tmp_path):
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path)]}, name="cost")
    table = rows(tmp_path)
    assert table["Measured", "scorer on reference–failed pairs"]["Value mean"] == "0.50"
    assert table["Measured", "matching"]["Value mean"] == "0.0010"
    assert table["Measured", "sum of the medians"]["Value mean"] == "0.61"
    shares = [float(row["Share (%) mean"]) for row in table.values() if row["Seeds"] and row["Share (%) mean"]]
    assert sum(shares) == pytest.approx(100, abs=0.1)


def test_what_a_step_takes_longer_is_set_against_the_host(tmp_path):
    write_experiment(
        tmp_path, {"scpo": [write_run(tmp_path)], "gigpo": [hosted(tmp_path, 2.0, 33.5)]}, name="cost"
    )  # 2.205 s with
    table = rows(tmp_path)
    added = table["Measured", "added to a training step (mean)"]
    assert (added["Value mean"], added["Share (%) mean"], added["Seeds"]) == ("0.21", "10.3", "1/1; 1/1")
    peaks = {label: table["Measured", f"{label}, gigpo"]["Value mean"] for label in PEAKS.values()}
    assert list(peaks.values()) == ["33.5", "73.5", "60.0"]


def test_what_a_step_takes_longer_has_an_interval_over_seeds(tmp_path):
    hosts = [hosted(tmp_path, 2.0 + 2 * seed, 33.5, seed) for seed in (0, 1, 2)]
    shaped = [write_run(tmp_path, seed=seed) for seed in (0, 1, 2)]
    write_experiment(tmp_path, {"scpo": shaped, "gigpo": hosts}, name="cost")
    block = build(collect(tmp_path).at_scale("mini")).blocks[1]
    added = next(row for row in block.rows if row[0].startswith("added"))
    # 2.205 s against 2, 4 and 6 s: 4.303 standard errors of 2 / sqrt(3)
    assert added[3].text == "−1.79 [−6.76, 3.17]"
    assert added[4].text == "−44.9 [−169.1, 79.3]"


@pytest.mark.parametrize(
    ("host_s", "why"),
    [(6.0, "shorter than the host's"), (0.1, "more than 2 times that sum")],
    ids=["cheaper than nothing", "more than its stages"],
)
def test_a_difference_that_cannot_be_the_shapers_cost_is_marked_and_explained(tmp_path, host_s, why):
    hosts = [hosted(tmp_path, host_s + seed / 10, 33.5, seed) for seed in (0, 1, 2)]
    shaped = [write_run(tmp_path, seed=seed) for seed in (0, 1, 2)]
    write_experiment(tmp_path, {"scpo": shaped, "gigpo": hosts}, name="cost")
    made = build(collect(tmp_path).at_scale("mini"))
    assert [row[0] for row in made.blocks[1].rows if row[0].startswith("added")] == [
        "added to a training step (mean) †"
    ]
    assert made.caption.count("† Not the cost of the shaper") == 1
    assert why in made.caption


def test_types_of_processor_of_the_compared_runs_are_in_the_caption(tmp_path):
    """It stated one machine type of all runs, without a look at their records."""
    runs = {"gigpo": hosted(tmp_path, 2.0, 33.5), "scpo": write_run(tmp_path)}
    write_experiment(tmp_path, {row: [run] for row, run in runs.items()}, name="cost")

    def caption(**processors):
        for row, processor in processors.items():
            records = {"attempts": {"1": {"cpu": processor, "dirty": False}}}
            write_json(tmp_path / runs[row]["id"] / "provenance.json", records)
        return build(collect(tmp_path).at_scale("mini")).caption

    assert "share the type of processor and the setting" in caption(gigpo="EPYC", scpo="EPYC")
    assert "on types of processor (EPYC: gigpo; Xeon: SCPO (default))" in caption(gigpo="EPYC", scpo="Xeon")
    assert "on types of processor (not recorded: gigpo, SCPO (default))" in caption(gigpo=None, scpo=None)


def test_runs_whose_steps_count_what_no_cache_held_are_named(tmp_path):
    runs = {"gigpo": hosted(tmp_path, 2.0, 33.5), "scpo": write_run(tmp_path)}
    write_experiment(tmp_path, {row: [run] for row, run in runs.items()}, name="cost")

    def caption(**more):
        lines = [
            {"step": step, "timing_s/step": 2.0, "timing_s/scpo/matching": 0.1, "timing_s/rollout": 1.0, **more}
            for step in (1, 2)
        ]
        write_lines(tmp_path / runs["scpo"]["id"] / "timing.jsonl", lines)
        return build(collect(tmp_path).at_scale("mini")).caption

    assert "Runs without timing_s/uncached (SCPO (default)) count in their steps" in caption()
    assert "timing_s/uncached" not in caption(**{"timing_s/uncached": 0.0})


def test_a_stage_that_a_seed_did_not_time_says_how_many_did(tmp_path):
    runs = [write_run(tmp_path, seed=seed) for seed in (0, 1, 2)]
    write_lines(tmp_path / runs[2]["id"] / "timing.jsonl", [{"step": step, "timing_s/step": 2.0} for step in (1, 2)])
    write_experiment(tmp_path, {"scpo": runs}, name="cost")
    assert rows(tmp_path)["Measured", "matching"]["Seeds"] == "3/3, measured: 2"


def test_a_row_that_scores_all_pairs_has_a_block_of_its_own(tmp_path):
    dense = write_run(tmp_path, "scpo_dense", overrides=("method=scpo", "method.shaper.dense=true"))
    lines = [
        {"step": s, "timing_s/step": 5.0, "timing_s/scpo/scoring": 3.0, "timing_s/scpo/matching": 0.1} for s in (1, 2)
    ]
    write_lines(tmp_path / dense["id"] / "timing.jsonl", lines)
    runs = {"scpo": [write_run(tmp_path)], "gigpo": [hosted(tmp_path, 2.0, 33.5)], "scpo_dense": [dense]}
    write_experiment(tmp_path, runs, name="cost")
    blocks = build(collect(tmp_path).at_scale("mini")).blocks
    assert ["all pairs scored, as in the paper" in block.title for block in blocks] == [False, False, True]
    shown = {row[0]: row[3].mean for row in blocks[2].rows}
    assert (shown["scorer on reference–failed pairs"], shown["added to a training step (mean)"]) == ("3.00", "3.00")


def test_published_numbers_stand_apart(tmp_path):
    write_experiment(tmp_path, {"scpo": [write_run(tmp_path)]}, name="cost")
    table = rows(tmp_path)
    assert table["Published", "scorer on reference–failed pairs"]["Value mean"] == "23.68"
    assert table["Published", "added to a training step (mean)"]["Share (%) mean"] == "10.4"


def test_no_timed_shaper_names_the_command(tmp_path):
    write_experiment(tmp_path, {"gigpo": [hosted(tmp_path, 2.0, 30)]}, name="cost")
    with pytest.raises(MissingRunsError, match="experiment=cost"):
        build(collect(tmp_path).at_scale("mini"))
