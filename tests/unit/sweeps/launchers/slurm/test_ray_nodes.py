"""The shell lines of a job of several nodes, run with commands that stand in for Slurm's and Ray's."""

import os
import subprocess

import pytest

from sweeps.launchers.slurm import submission
from sweeps.launchers.slurm.submission import ray_lines
from sweeps.resources import Resources

THREE = Resources(nodes=3, gpus=4, cpus=32, memory_gb=104)


def test_a_job_of_one_node_starts_no_ray():
    assert ray_lines(Resources(1, 4, 32, 128)) == []


@pytest.fixture
def job(tmp_path, monkeypatch):
    """``job(lines)``: what each command of a job was called with, in the order of their names."""
    commands = {
        "scontrol": 'printf "n1\\nn2\\nn3\\n"',
        # its own options first, then the command, which it runs here
        "srun": 'n=$$; while [ "${1#--}" != "$1" ]; do echo "$1" >>$CALLS/srun.$n; shift; done; exec "$@"',
        "ray": """
[ "$1" = start ] || { echo "$RAY_AUTH_MODE" >$CALLS/token; exit; }
echo "$@" >"$CALLS/ray${2%%=*}"; kill -USR2 $$; echo lived >"$CALLS/lived.$$"
""",
    }
    for name, body in commands.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o700)
    monkeypatch.setattr(submission.sys, "executable", str(tmp_path / "python"))
    calls = tmp_path / "calls"
    calls.mkdir()

    def run(lines):
        script = "\n".join([*lines, "wait", 'echo "$RAY_ADDRESS" >$CALLS/address'])
        env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "CALLS": str(calls)}
        env |= {"SLURM_JOB_ID": "1234567", "SLURM_JOB_NODELIST": "n[1-3]"}
        subprocess.run(["bash", "-c", script], env=env, check=True, timeout=60, capture_output=True)
        return {path.name: path.read_text().split() for path in sorted(calls.iterdir())}

    return run


def test_ray_is_started_on_the_first_node_and_on_the_others_which_join_it(job):
    found = job(ray_lines(THREE))
    port = 20000 + 1234567 % 20000
    assert found["address"] == [f"n1:{port}"]
    assert found["token"] == ["token"]
    resources = ["--num-gpus=4", "--num-cpus=32", "--block", "--disable-usage-stats"]
    head, others = found["ray--head"], found["ray--address"]
    assert head == ["start", "--head", f"--port={port}", "--temp-dir=/tmp/ray-1234567", *resources]
    assert others == ["start", f"--address=n1:{port}", *resources]
    steps = sorted((one for name, one in found.items() if name.startswith("srun.")), key=lambda one: one[0])
    assert [one[:2] for one in steps] == [["--nodes=1", "--ntasks=1"], ["--nodes=2", "--ntasks=2"]]
    assert [one[-1] for one in steps] == ["--nodelist=n1", "--exclude=n1"]
    assert all("--overlap" in one and "--cpus-per-task=32" in one for one in steps)


def test_slurms_warning_does_not_end_ray(job):
    found = job(ray_lines(THREE))
    assert len([name for name in found if name.startswith("lived.")]) == 2
