"""Promises of SWEEPS section 6 on the local pool: whatever is killed, each run is done once and nothing is lost."""

import os
import signal
import socket
import time

import pytest

from tests.support import fake_runs as fake

SEEDS = "seeds=[0,1]"  # two rows: four runs


def running_pids(runs_dir):
    return [one.read_status().pid for one in fake.folders(runs_dir) if one.read_status().state == "RUNNING"]


def test_a_sweep_runs_all_and_a_second_one_starts_none(tmp_path):
    code, output = fake.finish(fake.start_sweep(tmp_path, SEEDS))
    assert (code, fake.states(tmp_path)) == (0, ["DONE"] * 4), output
    assert all(fake.steps(one) == [0, 1, 2, 3, 4] for one in fake.folders(tmp_path))
    code, output = fake.finish(fake.start_sweep(tmp_path, SEEDS))
    assert code == 0
    assert "4 finished before" in output
    assert [fake.starts(one) for one in fake.folders(tmp_path)] == [1] * 4


def test_a_failing_run_stops_no_other_and_is_reported_then_retried(tmp_path):
    code, output = fake.finish(fake.start_sweep(tmp_path, SEEDS, fail_seed=1))
    assert (code, fake.states(tmp_path)) == (1, ["DONE", "DONE", "FAILED", "FAILED"])
    assert "ValueError: seed 1 fails on purpose" in output
    assert "Traceback" in output
    code, _ = fake.finish(fake.start_sweep(tmp_path, SEEDS))
    assert (code, fake.states(tmp_path)) == (0, ["DONE"] * 4)
    assert sorted(fake.starts(one) for one in fake.folders(tmp_path)) == [1, 1, 2, 2]


def test_a_killed_run_is_reported_and_goes_on_from_its_checkpoint(tmp_path):
    sweep = fake.start_sweep(tmp_path, "seeds=[0]", "trainer.steps=8", step_s=0.1)
    folder = None

    def past_a_checkpoint():
        nonlocal folder
        folder = next((one for one in fake.folders(tmp_path) if one.complete_checkpoints()[1:]), None)
        return folder is not None

    fake.wait_until(past_a_checkpoint)
    os.kill(folder.read_status().pid, signal.SIGKILL)
    code, output = fake.finish(sweep)
    assert code == 1
    assert "killed by SIGKILL" in output
    assert fake.states(tmp_path) == ["DONE", "FAILED"]
    assert fake.finish(fake.start_sweep(tmp_path, "seeds=[0]", "trainer.steps=8"))[0] == 0
    assert fake.steps(folder) == list(range(9))
    assert fake.starts(folder) == 2


def test_runs_outlive_a_killed_driver_and_are_not_started_again(tmp_path):
    (held := tmp_path.with_suffix(".held")).touch()  # till a second sweep has looked
    sweep = fake.start_sweep(tmp_path, "seeds=[0]", held=held)
    fake.wait_until(lambda: len(running_pids(tmp_path)) == 2)
    sweep.kill()
    sweep.communicate()
    code, output = fake.finish(fake.start_sweep(tmp_path, "seeds=[0]"))
    assert (code, "2 run by another process" in output) == (3, True), output
    said = " ".join(output.split())
    assert all(f"{pid} on {socket.gethostname()}" in said for pid in running_pids(tmp_path))
    assert f"python -m sweeps status ablation_monotonicity --runs-dir {tmp_path}, or logs -f" in said
    held.unlink()
    fake.wait_until(lambda: fake.states(tmp_path) == ["DONE", "DONE"])
    assert [fake.starts(one) for one in fake.folders(tmp_path)] == [1, 1]


def test_two_sweeps_at_once_start_no_run_twice(tmp_path):
    sweeps = [fake.start_sweep(tmp_path, SEEDS, step_s=0.05) for _ in range(2)]
    results = [fake.finish(one) for one in sweeps]
    # The later one to end finds the other's runs done.
    assert {code for code, _ in results} in ({0}, {0, 3}), results
    fake.wait_until(lambda: fake.states(tmp_path) == ["DONE"] * 4)
    assert [fake.starts(one) for one in fake.folders(tmp_path)] == [1] * 4


def test_ctrl_c_lets_runs_checkpoint_and_the_same_command_goes_on(tmp_path):
    sweep = fake.start_sweep(tmp_path, SEEDS, "trainer.steps=20", step_s=0.1)
    fake.wait_until(lambda: sum(len(fake.steps(one)) > 1 for one in fake.folders(tmp_path)) == 2)
    sweep.send_signal(signal.SIGINT)
    code, output = fake.finish(sweep)
    assert code == 130
    assert "stopping: 2 runs have 120 s to checkpoint" in output
    assert "The same command goes on" in output
    assert fake.states(tmp_path) == ["INTERRUPTED", "INTERRUPTED", "PENDING", "PENDING"]
    stopped = [one for one in fake.folders(tmp_path) if fake.starts(one)]
    assert all(one.complete_checkpoints()[-1] == fake.steps(one)[-1] for one in stopped)
    assert fake.finish(fake.start_sweep(tmp_path, SEEDS, "trainer.steps=20"))[0] == 0
    assert all(fake.steps(one) == list(range(21)) for one in fake.folders(tmp_path))


def test_a_second_signal_does_not_wait(tmp_path):
    sweep = fake.start_sweep(tmp_path, "seeds=[0]", "trainer.steps=1000", step_s=0.1, hang=1)
    # before its first step a run stops at once
    fake.wait_until(lambda: sum(len(fake.steps(one)) > 1 for one in fake.folders(tmp_path)) == 2)
    sweep.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    assert sweep.poll() is None  # the runs do not heed the first one
    sweep.send_signal(signal.SIGTERM)
    assert fake.finish(sweep)[0] == 130
    assert fake.states(tmp_path) == ["INTERRUPTED", "INTERRUPTED"]


def test_a_run_of_another_configuration_is_reported_and_stops_no_other(tmp_path):
    folder = fake.make_run(tmp_path, "method.shaper.monotonic=false")
    folder.identity.write_text(folder.identity.read_text().replace("theta: 0.6", "theta: 0.5"))
    code, output = fake.finish(fake.start_sweep(tmp_path, "seeds=[0]"))
    assert code == 1
    assert "method.shaper.theta is 0.6 in config.yaml and 0.5 in identity.yaml" in output
    assert fake.states(tmp_path) == ["DONE", "PENDING"]


@pytest.mark.slow
def test_runs_that_are_killed_again_and_again_end_as_an_undisturbed_one(tmp_path):
    calm = fake.make_run(tmp_path / "calm", "trainer.steps=12")
    assert fake.finish(fake.start("fake_train.py", calm.path))[0] == 0
    wild = fake.make_run(tmp_path / "wild", "trainer.steps=12")
    for attempt in range(12):
        process = fake.start("fake_train.py", wild.path, step_s=0.05)
        fake.wait_until(lambda count=attempt: fake.starts(wild) > count)
        time.sleep(0.03 * attempt)
        process.kill()
        process.communicate()
        if fake.states(wild.path.parent) == ["DONE"]:
            break
    assert fake.starts(wild) > 4
    assert fake.finish(fake.start("fake_train.py", wild.path))[0] == 0
    assert wild.metrics.read_bytes() == calm.metrics.read_bytes()
