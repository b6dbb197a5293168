"""Seconds of a step's parts against the estimates that docs/verl.md prints."""

import re
from pathlib import Path

import pytest

from scpo.memory import PAPER_GPU_GIB, engine_memory, gpu_table, micro_batch, needed_gib, shortage
from scpo.trainers.verl import step_times
from scpo.trainers.verl.step_times import compared, estimated, measured
from scpo.verl_config import cores_needed
from sweeps.compose.configuration import compose_run
from sweeps.estimates import duration

TOOK = {
    "timing_s/gen": 70.0, "timing_s/old_log_prob": 10.0, "timing_s/ref": 10.0,
    "timing_s/update_actor": 60.0, "timing_s/adv": 9.0, "timing_s/diagnostics": 2.0,
    "timing_s/save_checkpoint": 30.0, "timing_s/step": 200.0, "timing_s/testing": 55.0,
    "perf/throughput": 1e4,
}  # fmt: skip


def test_the_parts_of_a_step_add_up_to_the_step_and_its_validation():
    parts = measured(TOOK)
    assert parts == {
        "rollout": 70, "update": 80, "scoring": 7, "checkpoint": 30, "validation": 55,
        "sync and driver": 200 - 70 - 80 - 7 - 30 - 2,
    }  # fmt: skip
    assert sum(parts.values()) == 200 - 2 + 55  # our samples are no part of training


TOTALS = {"1.5B": ("qwen2_5_1_5b", 185), "7B": ("qwen2_5_7b", 585)}


@pytest.mark.parametrize(("model", "seconds"), TOTALS.values(), ids=TOTALS)
def test_the_estimates_of_the_papers_node(model, seconds):
    """As estimated for a mean step; the parameters of 1.5B are 1.544 billion, of 7B 7.6."""
    named = compose_run(["scale=paper", f"model={model}"])
    billions = dict(zip(TOTALS, step_times.SIZES, strict=True))[named.model.name]
    column = [pair[step_times.SIZES.index(billions)] for pair in step_times.SECONDS.values()]
    assert sum(column) == pytest.approx(seconds, abs=1)
    assert sum(estimated(named).values()) == pytest.approx(seconds, rel=0.1)


def test_fewer_gpus_take_longer_and_rarer_checkpoints_less():
    four = estimated(compose_run(["scale=paper"]))
    one = estimated(compose_run(["scale=paper", "trainer=verl_1gpu"]))
    assert one["update"] == pytest.approx(4 * four["update"])
    rare = estimated(compose_run(["scale=paper", "trainer.checkpoint_every=25"]))
    assert rare["checkpoint"] == pytest.approx(four["checkpoint"] / 5)


def test_a_step_is_logged_with_the_estimate_of_each_part_that_it_had():
    config = compose_run(["scale=paper"])
    line = compared(config, TOOK)
    assert line["part_s/rollout"] == 70
    assert line["estimate_s/rollout"] == pytest.approx(60, rel=0.02)
    # A single validation takes five times its share of a mean step.
    assert line["estimate_s/validation"] == pytest.approx(5 * 14, rel=0.02)
    usual = {
        name: seconds for name, seconds in TOOK.items() if name not in ("timing_s/testing", "timing_s/save_checkpoint")
    }
    assert not [name for name in compared(config, usual) if "validation" in name or "checkpoint" in name]


def test_other_scales_have_parts_and_no_estimate():
    line = compared(compose_run(["trainer=verl_cpu"]), TOOK)
    assert estimated(compose_run(["scale=paper", "env=webshop"])) is None  # shorter episodes
    assert {name.partition("/")[0] for name in line} == {"part_s"}


@pytest.mark.parametrize("word", ["trainer.groups=2", "trainer.group_size=4", "env.horizon=10"])
def test_a_step_of_other_episodes_than_the_papers_has_no_estimate(word):
    assert estimated(compose_run(["scale=paper", word])) is None


PAGE = (Path(__file__).parents[4] / "docs" / "verl.md").read_text()


def cells(first):
    """The rows of the page's table whose header begins so, as lists of cells."""
    lines = PAGE[PAGE.index(f"| {first}") :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_pages_estimates_are_those_that_are_logged():
    table = {part: (float(small), float(large)) for part, small, large, *_ in cells("part | estimate 1.5B")}
    total = table.pop("step")
    assert table == step_times.SECONDS
    assert total == tuple(sum(pair[place] for pair in step_times.SECONDS.values()) for place in range(2))
    measured_cells = [row[-2:] for row in cells("part | estimate 1.5B")]
    assert measured_cells == [["", ""]] * 7  # nobody has measured yet


def test_the_pages_hours_are_those_of_the_dry_run():
    rows = cells("hardware | command | h a run")
    assert len(rows) == 10
    for _, command, hours in rows:
        assert str(duration(compose_run([*command.strip("`").split(), "method=scpo"]))) == hours


def test_the_pages_hardware_holds_its_runs():
    for hardware, command, _ in cells("hardware | command | h a run"):
        config = compose_run([*command.strip("`").split(), "method=scpo"])
        assert shortage(config, PAPER_GPU_GIB if "80 GB" in hardware else 23.6) is None
        assert config.trainer.verl.gpus == (1 if hardware.startswith("one") else int(hardware[0]))


def test_the_pages_cores_are_those_that_verl_needs():
    text = " ".join(PAGE.split())
    needed = [cores_needed(compose_run(["scale=paper", f"trainer.verl.gpus={gpus}"]).trainer) for gpus in (8, 4, 2)]
    assert "A run on 8 needs {} CPU cores, on 4 {}, on 2 {}.".format(*needed) in text


def test_the_pages_memory_of_cards_of_24_gb():
    """One card with 0.5B in verl, and one process of trainer=local."""
    words = ["scale=paper", "method=scpo"]
    verl = [*words, "trainer=verl_1gpu", "model=qwen2_5_0_5b", "trainer.micro_batch_rows=4"]
    smaller = [*verl, "trainer.verl.engine_memory=0.4"]
    default, small = (round(100 * needed_gib(gpu_table(compose_run(run), 22.5)) / 22.5) for run in (verl, smaller))
    engine = "`trainer.verl.engine_memory=0.4`"
    assert f"22.5 GiB (A10, L4) are at {default} %; with {engine} at {small} %" in " ".join(PAGE.split())
    models = ("qwen2_5_1_5b", "qwen2_5_0_5b")
    local = [needed_gib(gpu_table(compose_run([*words, "trainer=local", f"model={model}"]), 48)) for model in models]
    assert "takes {:.0f} GiB at 1.5B and {:.1f} GiB at 0.5B".format(*local) in " ".join(PAGE.split())


def test_the_pages_memory_is_that_of_the_table():
    models = {"1.5B": "qwen2_5_1_5b", "7B": "qwen2_5_7b"}
    methods = {"SCPO": "scpo", "GiGPO and others": "gigpo", "PPO": "ppo"}
    for model, method, rows, engine, *gib, fullest in cells("model | method | rows of a micro-batch"):
        words = ["scale=paper", f"model={models[model]}", f"method={methods[method]}"]
        runs = [compose_run([*words, f"env={env}"]) for env in ("alfworld", "webshop")]
        tables = [gpu_table(run, PAPER_GPU_GIB) for run in runs]
        assert rows == ", ".join(str(micro_batch(run, run.trainer)[0]) for run in runs)
        assert float(engine) == engine_memory(runs[0], runs[0].trainer)[0]
        assert gib == [
            f"{sum(part.update_gib for part in table):.1f} / {sum(part.rollout_gib for part in table):.1f}"
            for table in tables
        ]
        share = max(needed_gib(table) for table in tables) / PAPER_GPU_GIB
        assert int(re.match(r"\d+", fullest)[0]) == round(100 * share)
