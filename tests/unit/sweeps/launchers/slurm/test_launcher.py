"""Before the first submission a node is asked; what it cannot read is not submitted."""

import shutil
from io import StringIO

import pytest
from rich.console import Console

from scpo.errors import ConfigError
from scpo.records import RunFolder
from sweeps.compose.configuration import compose_run
from sweeps.launchers.slurm import launcher as cluster
from sweeps.launchers.slurm.node_probe import Answer
from tests.support.fake_slurm import FakeSlurm

pytest.importorskip("submitit", reason="needs submitit: make setup")

WORDS = ("launcher=slurm_a800x4", "launcher.time_h=1", "launcher.warn_s=60", "scale=paper")
ROWS = {"trained": ("method=scpo",), "api": ("method=plain", "model=gpt_4o")}


class Nodes:
    """Answers a probe; ``without``: name of the partition whose nodes lack the first path."""

    def __init__(self, without=None):
        self.asked, self.without = [], without

    def __call__(self, partition, needs, wait_s):
        self.asked.append((partition.name, partition.gpus, [need.path for need in needs], wait_s))
        return Answer("node7", needs[:1] if partition.name == self.without else ())


@pytest.fixture
def make(tmp_path, monkeypatch):
    """A launcher outside of its cluster, with two partitions, and a run for each of them."""
    monkeypatch.setattr(cluster, "freeze", lambda runs_dir, *_: runs_dir / "snapshot")
    monkeypatch.setattr(cluster, "check_reachable", lambda _: None)
    site = tmp_path / "site.yaml"
    site.write_text("preset: gpu_and_cpu\n")

    def build(nodes, *words, outside=True):
        runs = {}
        for name, row in ROWS.items():
            folder = RunFolder(tmp_path / name)
            folder.path.mkdir()
            runs[name] = (folder, compose_run([*WORDS, f"launcher.site={site}", *row, *words]))
        settings = runs["trained"][1].launcher
        slurm, console = FakeSlurm(), Console(file=StringIO(), width=300)
        pool = cluster.Cluster(
            settings, tmp_path, slurm, slurm, console=console, probe=nodes, outside=lambda: outside
        )  # fmt: skip
        return pool, slurm, runs

    return build


def test_each_partition_is_asked_before_the_first_job_and_never_again(make, tmp_path):
    nodes = Nodes()
    pool, slurm, runs = make(nodes)
    slurm.before_submit = lambda: nodes.asked.append("sbatch")
    pool.start({"trained": runs["trained"]}, "search")
    pool.start({"api": runs["api"]}, "search")
    pool.start(runs, "search")
    python = cluster.needs_of_jobs(tmp_path, tmp_path)[1].path
    paths = [tmp_path / "snapshot" / "train.py", python, tmp_path]
    assert nodes.asked == [("gpu", True, paths, 60), "sbatch", ("cpu", False, paths, 60), "sbatch", "sbatch", "sbatch"]
    assert "node node7 (partition gpu) can use the snapshot" in pool.console.file.getvalue()


def test_nothing_is_submitted_if_a_node_of_any_partition_lacks_something(make):
    pool, slurm, runs = make(Nodes(without="cpu"))
    with pytest.raises(ConfigError, match=r"node7 \(partition cpu\) cannot read the snapshot .*Nothing was submitted"):
        pool.start(runs, "table")
    assert slurm.submitted == []
    assert not any((folder.path / "job.json").exists() for folder, _ in runs.values())


@pytest.mark.parametrize(("words", "outside"), [(("launcher.probe_s=0",), True), ((), False)])
def test_no_node_is_asked_when_switched_off_or_on_a_node(make, words, outside):
    nodes = Nodes()
    pool, slurm, runs = make(nodes, *words, outside=outside)
    pool.start(runs, "table")
    assert nodes.asked == []
    assert len(slurm.submitted) == 2


def test_without_an_answer_the_runs_are_submitted_all_the_same(make):
    pool, slurm, runs = make(lambda *_: Answer(None, why="no node was free"))
    pool.start(runs, "table")
    assert len(slurm.submitted) == 2
    assert "not tested if nodes can read the code and Python: no node was free" in pool.console.file.getvalue()


@pytest.mark.parametrize("call", ["preview", "start"])
def test_a_model_folder_that_is_not_here_is_named_before_jobs_are_submitted(make, tmp_path, call):
    (tmp_path / "model").mkdir()
    for path, missing in (("/data/Qwen", True), (str(tmp_path / "model"), False), ("Qwen/Qwen2.5-1.5B", False)):
        for name in ROWS:
            shutil.rmtree(tmp_path / name, ignore_errors=True)
        pool, _, runs = make(Nodes())
        folder, config = runs["trained"]
        config = config.model_copy(update={"model": config.model.model_copy(update={"path": path})})
        if call == "start":
            pool.start({"trained": (folder, config)}, "table")
        else:
            pool.preview(pool.console, {"trained": config})
        said = " ".join(pool.console.file.getvalue().split())
        assert (f"note: model.path={path}: there is no such folder on this machine" in said) is missing


def test_a_dry_run_asks_no_node(make):
    nodes = Nodes()
    pool, slurm, runs = make(nodes)
    pool.preview(pool.console, {name: config for name, (_, config) in runs.items()})
    assert "sbatch would read" in pool.console.file.getvalue()
    assert (nodes.asked, slurm.submitted) == ([], [])


@pytest.mark.parametrize("call", ["preview", "start"])
def test_a_time_limit_that_the_partition_does_not_allow_is_cut_with_a_note(make, call):
    pool, _, runs = make(Nodes(), "launcher.time_h=48")
    if call == "start":
        # As a search does, one by one.
        for name, run in runs.items():
            pool.start({name: run}, "search")
    else:
        pool.preview(pool.console, {name: config for name, (_, config) in runs.items()})
    said = " ".join(pool.console.file.getvalue().split())
    assert said.count("note: launcher.time_h=48 is cut to 24 h, max_time_h of") == 1


def test_a_dry_run_shows_the_jobs_at_a_time_of_each_array_and_limits_that_runs_reach(make):
    pool, _, runs = make(Nodes(), "launcher.parallelism=3")
    trained, api = runs["trained"][1], runs["api"][1]
    seeds = {f"t{seed}": trained for seed in range(4)} | {f"a{seed}": api for seed in range(2)}
    pool.preview(pool.console, seeds)
    said = pool.console.file.getvalue()
    header, *rows = (line.split() for line in said.split("asks for", 1)[1].strip().splitlines()[:3])
    assert header[:5] == ["jobs", "at", "a", "time", "nodes"]
    assert [row[:2] for row in rows] == [["4", "2"], ["2", "1"]]
    assert "#SBATCH --array=0-3%2" in said
    note = "note: 6 runs of up to 13.8 h, by estimate, and a time limit of 1 h (launcher.time_h): a job"
    assert " ".join(said.split()).count(note) == 1


@pytest.mark.parametrize(
    ("gpus", "used"), [(8, ["1 run uses 4 of them", "1 run uses no GPU"]), (4, ["1 run uses no GPU"])]
)
@pytest.mark.parametrize("call", ["preview", "start"])
def test_gpus_that_would_be_idle_are_noted_once(make, call, gpus, used):
    """A run on 4 GPUs with launcher.gpus=8 had twice its GPU-hours in a dry run, without a note."""
    pool, _, runs = make(Nodes(), f"launcher.gpus={gpus}")
    for _ in range(2):
        if call == "start":
            pool.start(runs, "table")
        else:
            pool.preview(pool.console, {name: config for name, (_, config) in runs.items()})
    said = " ".join(pool.console.file.getvalue().split())
    assert said.count("would be idle") == len(used)
    for part in used:
        assert said.count(f"note: launcher.gpus={gpus}, and {part}") == 1


def test_no_gpus_are_idle_where_each_run_gets_those_that_it_uses(make):
    pool, _, runs = make(Nodes())
    pool.preview(pool.console, {name: config for name, (_, config) in runs.items()})
    assert "would be idle" not in pool.console.file.getvalue()


@pytest.mark.parametrize("memory", ["memory_gb: 2\n", ""])
def test_a_site_that_gives_a_job_less_memory_than_it_needs_is_named_once(make, tmp_path, memory):
    pool, _, runs = make(Nodes())
    (tmp_path / "site.yaml").write_text(f"preset: gpu_and_cpu\n{memory}")
    for _ in range(2):
        pool.preview(pool.console, {name: config for name, (_, config) in runs.items()})
    said = " ".join(pool.console.file.getvalue().split())
    assert said.count("memory_gb: 2, a job needs 128 GB by estimate: Slurm kills one that") == bool(memory)
    assert said.count("leave memory_gb out") == bool(memory)


SECRETS = """\
preset: gpu_and_cpu
setup: ["module load cuda", "export WANDB_API_KEY=abc"]
more: {export: "ALL,OPENAI_API_KEY=quiet horse,HF_HOME=/f"}
"""


@pytest.mark.parametrize("submitted", [False, True])
def test_a_key_in_the_site_file_is_named_once_and_blacked_out_in_the_dry_run(make, tmp_path, submitted):
    pool, _, runs = make(Nodes())
    (tmp_path / "site.yaml").write_text(SECRETS)
    for _ in range(2):
        if submitted:
            pool.start(runs, "search")
        else:
            pool.preview(pool.console, {name: config for name, (_, config) in runs.items()})
    said = pool.console.file.getvalue()
    assert " ".join(said.split()).count("setup or more holds WANDB_API_KEY, OPENAI_API_KEY in clear") == 1
    if not submitted:
        assert "export WANDB_API_KEY=[redacted]" in said
        assert "ALL,OPENAI_API_KEY=[redacted],HF_HOME=/f" in said
        assert not [line for line in said.splitlines() if "abc" in line or "horse" in line]
