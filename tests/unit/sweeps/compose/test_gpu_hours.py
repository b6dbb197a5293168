import pytest

from sweeps.compose.configuration import compose_run
from sweeps.compose.gpu_hours import duration, gpu_hours, hours
from tests.support.matrices import expanded


def test_the_papers_twelve_scpo_runs_come_to_about_a_thousand_gpu_hours():
    runs = [cell.config for cell in expanded("paper_runs", "scale=paper").cells if cell.row.name == "scpo"]
    assert len(runs) == 12
    papers = [run.model_copy(update={"env": run.env.model_copy(update={"validation_panels": {}})}) for run in runs]
    total, unknown = gpu_hours(papers, [4] * 12)
    assert unknown == 0
    assert total == pytest.approx(1000, rel=0.01)  # 996: (13 + 7 + 36 + 27) h x 3 seeds x 4 GPUs
    ours, _ = gpu_hours(runs, [4] * 12)
    assert 1.02 * total < ours < 1.1 * total  # 274 or 500 episodes a validation instead of 128


def test_fewer_steps_take_less_time_and_other_sizes_and_gpus_are_scaled():
    whole = duration(compose_run(["scale=paper"]))
    assert (whole.basis, str(whole)) == ("paper", "13.8")
    assert hours(compose_run(["scale=paper", "trainer.steps=75"])) == pytest.approx(whole.hours / 2, rel=0.02)
    assert hours(compose_run(["scale=paper", "trainer=verl_1gpu"])) == pytest.approx(4 * whole.hours)
    small = duration(compose_run(["scale=paper", "model=qwen2_5_0_5b"]))
    assert small.basis == "scaled"
    assert 4 < small.hours < 13


def test_a_closed_model_takes_as_long_as_its_account_may_ask():
    words = ["scale=paper", "method=plain", "model=gpt_4o"]
    slow, fast = (hours(compose_run([*words, f"machine.api.requests_per_minute={rate}"])) for rate in (60, 600))
    assert slow == pytest.approx(0.25 + 274 * 50 / 60 / 60)
    assert fast - 0.25 == pytest.approx((slow - 0.25) / 10)


def test_evaluations_have_an_estimate_and_small_scales_none():
    evaluated = compose_run(["scale=paper", "method=plain"])
    assert str(duration(evaluated)).startswith("~0.")
    assert hours(compose_run([])) is None
    total, unknown = gpu_hours([compose_run([]), compose_run(["scale=paper"])], [0, 4])
    assert (total, unknown) == (pytest.approx(4 * 13.8, rel=0.01), 1)
