"""A real Slurm on this machine (`make test-slurm` brings it up): an array of 4-GPU jobs to which everything happens."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import yaml

from scpo.records import JsonLines, RunFolder, run_folders, verify
from sweeps.launchers.slurm.job_limits import JobLimits
from sweeps.launchers.slurm.job_records import read_job
from sweeps.launchers.slurm.scheduler import Slurm
from tests.e2e.local_run import OVERRIDES

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(
    "SCPO_SLURM" not in os.environ, reason="needs a Slurm of its own: `make test-slurm` (root, Debian) brings one up"
)
STEPS = 10
# Seconds a step, by order and seed: long enough to act on a run while it is under way, on a busy machine too.
PACE = {"balanced-1": 1.5, "balanced-2": 1.5, "chronological-0": 11.0, "chronological-1": 6.0}
SECRETS = {"WANDB_API_KEY": "0123456789abcdef" * 2 + "planted0", "OPENAI_API_KEY": "sk-planted-0123456789abcdef0123"}


class Cluster:
    """`sweep.py` and `python -m sweeps` of one checkout, on the test's Slurm."""

    def __init__(self, home: Path, checkout: Path, *words: str) -> None:
        self.home, self.checkout, self.words = home, checkout, words
        self.runs = home / "runs"
        self.site()

    def site(self, **settings: str) -> None:
        """Settings of the cluster's own file, without the lines of the shipped one."""
        shipped = yaml.safe_load((ROOT / "slurm" / "site.yaml").read_text())
        (self.home / "site.yaml").write_text(yaml.safe_dump(shipped | settings))

    def call(self, *words: str, code: int = 0) -> str:
        env = {**os.environ, **SECRETS, "STEP_S": json.dumps(PACE), "PYTHONPATH": ""}
        command = [sys.executable, *words]
        done = subprocess.run(command, cwd=self.checkout, env=env, capture_output=True, text=True, check=False)
        print(f"$ {' '.join(words[:4])}\n{done.stdout}{done.stderr}", flush=True)  # noqa: T201 (shown on failure)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + (done.stderr if code else "")

    def sweep(self, *words: str, code: int = 0) -> str:
        machine = [f"machine.runs_dir={self.runs}", f"machine.cache_dir={self.home / 'cache'}"]
        launcher = ["launcher=slurm_a800x4", f"launcher.site={self.home / 'site.yaml'}"]
        return self.call("sweep.py", *self.words, *machine, *launcher, *words, code=code)

    def sweeps(self, command: str, *words: str) -> str:
        return self.call("-m", "sweeps", command, *words, "--runs-dir", str(self.runs))

    def states(self) -> dict[str, str]:
        return {one["run_id"]: one["state"] for one in json.loads(self.sweeps("status", "--json"))}

    def run(self, row: str, seed: int) -> RunFolder:
        (found,) = self.runs.glob(f"*-{row}s{seed}-*")
        return RunFolder(found)


def slurm(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def wait_until(true, seconds: float = 150) -> None:
    limit = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < limit, f"not within {seconds} s\n{state_of_slurm()}"
        time.sleep(0.3)


def state_of_slurm() -> str:
    """The queue, the nodes with Slurm's reason where one takes no jobs, the jobs so far, the ends of the logs."""
    questions = (["squeue"], ["sinfo", "--Node", "--long"], ["sinfo", "--list-reasons"], ["sacct", "--allocations"])
    logs = [["tail", "--lines=30", str(log)] for log in (Path(os.environ["SCPO_SLURM"]) / "log").glob("slurm*.log")]
    answers = []
    for command in (*questions, *logs):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        answers.append(f"$ {' '.join(command)}\n{done.stdout}{done.stderr}")
    return "\n".join(answers)


def steps(folder: RunFolder) -> list[int]:
    return [record["step"] for record in JsonLines(folder.metrics).records()]


def under_way(folder: RunFolder) -> bool:
    return folder.read_status().state == "RUNNING" and len(steps(folder)) > 1


def preempt() -> None:
    """An urgent job takes the node for a moment, all of it: a run of a tiny policy holds cores and no GPU."""
    slurm("sbatch", "--partition=urgent", "--exclusive", "--gpus-per-node=4", "--output=/dev/null", "--wrap=sleep 3")


def restart_controller() -> None:
    pid_file = Path(os.environ["SCPO_SLURM"]) / "run" / "slurmctld.pid"
    subprocess.run(["scontrol", "shutdown", "slurmctld"], check=True, capture_output=True)
    wait_until(lambda: not pid_file.exists() or not Path(f"/proc/{pid_file.read_text().strip()}").exists(), 30)
    with contextlib.suppress(KeyError):
        slurm("setpriv", "--reuid=slurm", "--regid=slurm", "--init-groups", "slurmctld")
    wait_until(lambda: subprocess.run(["scontrol", "ping"], capture_output=True, check=False).returncode == 0, 30)


@pytest.fixture
def checkout(tmp_path):
    """A copy of the code whose train.py is the stand-in; jobs of a test that failed do not hold up the next one's."""
    for part in ("scpo", "sweeps", "conf"):
        shutil.copytree(ROOT / part, tmp_path / "checkout" / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "sweep.py", tmp_path / "checkout")
    shutil.copy(Path(__file__).with_name("train.py"), tmp_path / "checkout")
    yield tmp_path / "checkout"
    if slurm("squeue", "--noheader").strip():
        slurm("scancel", "--user=root")
        wait_until(lambda: not slurm("squeue", "--noheader").strip(), 60)


@pytest.mark.timeout(600)
def test_preempted_killed_timed_out_and_cancelled_jobs_leave_one_done_for_each_run(tmp_path, checkout):
    words = ("+experiment=ablation_order", f"trainer.steps={STEPS}", "trainer.checkpoint_every=2")
    limits = ("launcher.gpus=4", "launcher.time_h=0.033", "launcher.warn_s=30")
    cluster = Cluster(tmp_path, checkout, *words, "wandb.mode=disabled", *limits)
    assert "submitted 6 runs" in cluster.sweep()
    assert "submitted" not in cluster.sweep()  # whoever calls again finds them queued

    preempted, killed = cluster.run("scpo-", 1), cluster.run("scpo-", 2)
    timed_out, cancelled = cluster.run("chronological-", 0), cluster.run("chronological-", 1)
    wait_until(lambda: under_way(preempted))
    preempt()
    wait_until(lambda: under_way(killed))
    os.kill(killed.read_status().pid, signal.SIGKILL)
    wait_until(lambda: killed.read_status().state == "FAILED")
    restart_controller()
    wait_until(lambda: under_way(cancelled), 240)  # behind the one that runs into its time limit of two minutes
    cluster.sweeps("cancel", cancelled.run_id)
    wait_until(lambda: not slurm("squeue", "--noheader").strip(), 240)

    states = cluster.states()
    assert states.pop(killed.run_id) == "FAILED"
    assert states.pop(cancelled.run_id) == "CANCELLED"
    # Its steps take longer than this Slurm's KillWait.
    assert cancelled.complete_checkpoints()[-1] == steps(cancelled)[-1]
    assert set(states.values()) == {"DONE"}, states
    assert (read_job(preempted).preemptions, read_job(preempted).timeouts) == (1, 0)
    assert (read_job(timed_out).preemptions, read_job(timed_out).timeouts) == (0, 1)

    assert "submitted 1 run" in cluster.sweep()
    wait_until(lambda: killed.read_status().state == "DONE")
    assert "submitted" not in cluster.sweep()
    assert list(cluster.states().values()).count("DONE") == 5
    for folder in run_folders.list_runs(cluster.runs):
        assert not verify.problems(folder)
        if folder.run_id != cancelled.run_id:
            assert steps(folder) == list(range(STEPS + 1))
        assert set((folder.path / "starts").read_text().split()) == {"0,1,2,3"}
    assert not found_in(tmp_path, SECRETS.values())


@pytest.mark.timeout(240)
def test_a_wrong_partition_is_one_line_and_a_mixed_table_gets_the_gpus_that_each_row_needs(tmp_path, checkout):
    """The API row, the evaluations and the methods of the paper's table; train.py is the stand-in."""
    words = ("+experiment=main_table", "scale=paper", "env=alfworld", "model=qwen2_5_1_5b", "seeds=[0]")
    cluster = Cluster(tmp_path, checkout, *words, "trainer.steps=5", "wandb.mode=disabled", "launcher.time_h=0.6")
    cluster.site(partition="gpuu")
    said = cluster.sweep(code=2)
    (line,) = (line for line in said.splitlines() if "error" in line)
    assert "invalid partition specified: gpuu" in line
    assert f"{tmp_path / 'site.yaml'}: partition; set partition: " in line
    assert set(cluster.states().values()) == {"PENDING"}

    cluster.site(partition="gpu", gres="gpu:a800:4")
    assert "submitted 13 runs as jobs" in cluster.sweep()
    wait_until(lambda: not slurm("squeue", "--noheader").strip(), 200)
    assert set(cluster.states().values()) == {"DONE"}
    seen = {
        one.run_id: set((one.path / "starts").read_text().split("\n")) - {""}
        for one in run_folders.list_runs(cluster.runs)
    }
    counts = {run_id: {len(gpus.split(",")) if gpus != "none" else 0 for gpus in each} for run_id, each in seen.items()}
    for run_id, found in counts.items():
        prompted = any(f"-{name}-" in run_id for name in ("plain", "react", "reflexion"))
        api = "gpt" in run_id or "gemini" in run_id
        assert found == {0 if api else 1 if prompted else 4}, (run_id, found)


@contextlib.contextmanager
def room_for(jobs: int):
    """MaxSubmitJobs of this user's association, in Slurm's accounting."""
    change = ("sacctmgr", "--immediate", "modify", "user", "where", "name=root", "set")
    slurm(*change, f"MaxSubmitJobs={jobs}")
    try:
        yield
    finally:
        slurm(*change, "MaxSubmitJobs=-1")


@pytest.mark.timeout(400)
def test_arrays_keep_within_the_limits_of_cluster_account_and_launcher(tmp_path, checkout):
    """Six runs, four jobs an array (slurm/one_node.sh), five submitted at a time, two running of four that could."""
    words = ("+experiment=ablation_order", "trainer.steps=1", "trainer.checkpoint_every=1", "wandb.mode=disabled")
    limits = ("launcher.gpus=1", "launcher.parallelism=2", "launcher.time_h=0.1", "launcher.warn_s=60")
    cluster = Cluster(tmp_path, checkout, *words, *limits)
    with room_for(5):
        assert Slurm().limits() == JobLimits(array_size=4, submitted=5)
        said = cluster.sweep(code=2)
    assert "the account may have 5 jobs queued and running" in said
    assert "submitted before that: 5 runs" in said
    arrays = [read_job(one) for one in run_folders.list_runs(cluster.runs) if read_job(one)]
    assert sorted(Counter(job.name for job in arrays).values()) == [2, 3]

    running = []

    def is_over() -> bool:
        running.append(len(slurm("squeue", "--noheader", "--states=RUNNING").splitlines()))
        return not slurm("squeue", "--noheader").strip()

    wait_until(is_over, 200)
    assert max(running) == 2
    assert sorted(cluster.states().values()) == ["DONE"] * 5 + ["PENDING"]
    assert "submitted 1 run" in cluster.sweep()
    wait_until(lambda: set(cluster.states().values()) == {"DONE"})


def found_in(home: Path, secrets) -> list[Path]:
    """Files under ``home`` that hold any of the secrets."""
    files = [path for path in home.rglob("*") if path.is_file()]
    return [path for path in files if any(secret.encode() in path.read_bytes() for secret in secrets)]


@pytest.mark.timeout(480)
def test_the_mini_trainer_ends_with_the_same_bytes_after_a_preemption(tmp_path):
    pytest.importorskip("alfworld", reason="needs alfworld: make setup")
    pytest.importorskip("torch", reason="needs torch: make setup")
    longer = ("trainer.steps=", "trainer.validation.every=", "trainer.probe_every=", "trainer.sample_every=")
    words = [word for word in OVERRIDES if not word.startswith(("method=", *longer))]
    words += [f"{key}60" for key in longer]  # six steps would be over before the urgent job takes the node
    row = ("+experiment=ablation_order", "seeds=[0]")
    cluster = Cluster(tmp_path, ROOT, *row, *words, "launcher.time_h=0.5", "launcher.warn_s=60")
    cluster.sweep()
    preempted = cluster.run("scpo-", 0)
    cluster.sweeps("cancel", cluster.run("chronological-", 0).run_id)
    wait_until(lambda: under_way(preempted), 200)
    preempt()
    wait_until(lambda: preempted.read_status().state == "DONE", 200)
    assert set(cluster.states().values()) == {"DONE", "CANCELLED"}
    assert read_job(preempted).preemptions == 1
    undisturbed = tmp_path / "undisturbed"
    command = [
        "train.py",
        "method=scpo",
        *words,
        f"machine.runs_dir={undisturbed}",
        f"machine.cache_dir={tmp_path / 'cache'}",
    ]
    cluster.call(*command)
    assert (undisturbed / preempted.run_id / "metrics.jsonl").read_bytes() == preempted.metrics.read_bytes()
