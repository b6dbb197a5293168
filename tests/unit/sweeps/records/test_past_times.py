import pytest

from scpo.records import State
from sweeps.compose.configuration import compose_run
from sweeps.records.past_times import PastTimes
from tests.support import fake_runs as fake


def finish(folder, minutes, *, at="10", **changes):
    times = {"started_at": f"2026-01-01T{at}:00:00+00:00", "updated_at": f"2026-01-01T{at}:{minutes:02}:00+00:00"}
    status = folder.read_status().model_copy(
        update={"state": State.DONE, "attempt": 1, "step": 4, "host": "here", **times, **changes}
    )
    fake.write_status(folder, status)


def seconds(tmp_path, *overrides):
    config = compose_run([*fake.QUICK, f"machine.runs_dir={tmp_path}", *overrides])
    return PastTimes(tmp_path, host="here").seconds(config)


def test_a_run_takes_what_its_kind_took_here_by_steps(tmp_path):
    for seed, minutes in enumerate((2, 4, 12)):
        finish(fake.make_run(tmp_path, f"seed={seed}"), minutes)
    assert seconds(tmp_path, "seed=7") == 240  # the median
    assert seconds(tmp_path, "seed=7", "trainer.steps=8") == 480


def test_its_own_kind_comes_before_others_of_the_benchmark_and_model(tmp_path):
    finish(fake.make_run(tmp_path, "method=grpo"), 2)
    assert seconds(tmp_path, "method=scpo") == 120
    finish(fake.make_run(tmp_path, "method=scpo"), 6)
    assert seconds(tmp_path, "method=scpo", "seed=3") == 360


@pytest.mark.parametrize("changes", [{"host": "there"}, {"attempt": 2}, {"state": State.FAILED}, {"started_at": None}])
def test_runs_of_elsewhere_and_in_pieces_say_nothing(tmp_path, changes):
    finish(fake.make_run(tmp_path), 2, **changes)
    assert seconds(tmp_path) is None


def test_runs_of_another_size_say_nothing(tmp_path):
    finish(fake.make_run(tmp_path), 2)
    assert seconds(tmp_path, "trainer.groups=2") is None
    assert seconds(tmp_path, "env=webshop") is None


def test_all_together_share_the_slots(tmp_path):
    finish(fake.make_run(tmp_path), 2)
    configs = [compose_run([*fake.QUICK, f"machine.runs_dir={tmp_path}", f"seed={seed}"]) for seed in range(4)]
    other = compose_run([*fake.QUICK, f"machine.runs_dir={tmp_path}", "env=webshop"])
    assert PastTimes(tmp_path, host="here").total([*configs, other], slots=2) == (240, 1)
