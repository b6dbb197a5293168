import pytest

from sweeps.compose.configuration import compose_run
from sweeps.compose.gpu_hours import gpu_hours, hours
from sweeps.compose.matrix import expand


def test_the_papers_twelve_scpo_runs_come_to_about_a_thousand_gpu_hours():
    runs = [cell.config for cell in expand("main_table", ["scale=paper"]).cells if cell.row.name == "scpo"]
    assert len(runs) == 12
    total, unknown = gpu_hours(runs)
    assert unknown == 0
    assert total == pytest.approx(1000, rel=0.01)  # 996: (13 + 7 + 36 + 27) h x 3 seeds x 4 GPUs


def test_fewer_steps_take_less_time():
    assert hours(compose_run(["scale=paper"])) == 13
    assert hours(compose_run(["scale=paper", "trainer.steps=75"])) == 6.5
    assert hours(compose_run(["scale=paper", "env=webshop", "env.setting=paper"])) == 7


def test_what_the_paper_does_not_tell_has_no_figure():
    evaluated = compose_run(["scale=paper", "method=plain"])
    assert hours(evaluated) is None
    assert hours(compose_run([])) is None
    assert gpu_hours([evaluated, compose_run(["scale=paper"])]) == (52, 1)
