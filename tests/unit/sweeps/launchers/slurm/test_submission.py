import os
import pickle
import shlex
import signal
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from scpo.errors import ConfigError
from scpo.records import RunFolder
from scpo.records.status import JobState
from scpo.schema.run import SlurmLauncher
from sweeps.compose.configuration import compose_run
from sweeps.launchers.slurm import submission
from sweeps.launchers.slurm.cluster_settings import OWN_OPTIONS, Site, read_site
from sweeps.launchers.slurm.job import RunJob
from sweeps.launchers.slurm.job_records import read_job
from sweeps.launchers.slurm.node_probe import ProbedPartition
from sweeps.launchers.slurm.scheduler import ListedJob, SchedulerError
from sweeps.resources import Resources
from tests.support import fake_runs as fake

pytest.importorskip("submitit", reason="needs submitit: make setup")

SITE = read_site(Path(__file__).parents[5] / "slurm" / "site.yaml")
SLURM = "launcher=slurm_a800x4"
PAPER = Resources(nodes=1, gpus=4, cpus=32, memory_gb=128)


def launcher(*words) -> SlurmLauncher:
    return compose_run([SLURM, *words]).launcher


def made(folder, runs=("a", "b", "c"), site=SITE, limit_min=90, needed=PAPER, **changes):
    folders = tuple(RunFolder(folder / name) for name in runs)
    settings = launcher().model_copy(update=changes)
    request = submission.Request(limit_min, needed, site.partition_for(needed.gpus))
    snapshot = folder / "snap shot"
    return submission.Submission(
        folder / "ablation-0a", folders, request, settings, site, snapshot, settings.parallelism
    )


def flags(text):
    return dict(line[10:].partition("=")[::2] for line in text.splitlines() if line.startswith("#SBATCH"))


def test_the_jobs_are_an_array_on_one_node_of_the_papers_size(tmp_path):
    text = submission.sbatch_text(made(tmp_path))
    expected = {
        "array": "0-2%3", "nodes": "1", "gpus-per-node": "4", "cpus-per-task": "32", "time": "90", "requeue": "",
        "signal": "USR2@1800", "mem": "131072M", "job-name": "ablation-0a", "ntasks-per-node": "1",
        "open-mode": "append",
    }  # fmt: skip
    assert expected.items() <= flags(text).items()
    (command,) = (line for line in text.splitlines() if line.startswith("srun"))
    assert "--cpus-per-task=32" in command


def test_no_more_jobs_of_an_array_run_at_a_time_than_allowed(tmp_path):
    assert flags(submission.sbatch_text(made(tmp_path, parallelism=2)))["array"] == "0-2%2"
    assert "array" not in flags(submission.sbatch_text(made(tmp_path, runs="a")))


def test_the_sites_settings_are_in(tmp_path):
    changes = dict(partition="gpu", account="lab", gres="gpu:a800:4", memory_gb=1.5, more={"reservation": "rl"})
    text = submission.sbatch_text(
        made(tmp_path, site=SITE.model_copy(update={**changes, "setup": ("module load cuda",)}))
    )
    expected = {"partition": "gpu", "account": "lab", "gres": "gpu:a800:4", "mem": "1536M", "reservation": "rl"}
    assert expected.items() <= flags(text).items()
    assert "gpus-per-node" not in flags(text)
    assert "module load cuda" in text.splitlines()


@pytest.mark.parametrize(
    ("gres", "gpus", "asked"),
    [
        (None, 4, {"gpus-per-node": "4", "gres": "nvme:1"}),
        ("gpu", 4, {"gres": "gpu:4,nvme:1"}),
        ("gpu", 0, {"gres": "nvme:1"}),
    ],
)
def test_a_job_asks_for_other_resources_as_well(tmp_path, gres, gpus, asked):
    site = Site(gres=gres, more={"gres": "nvme:1"})
    found = flags(submission.sbatch_text(made(tmp_path, site=site, needed=Resources(1, gpus, 32, 128))))
    assert {name: value for name, value in found.items() if name in ("gres", "gpus-per-node")} == asked


@pytest.mark.parametrize("gres", [None, "gpu:a800"])
def test_no_option_of_a_job_may_be_set_by_more(tmp_path, gres):
    site = Site(partition="gpu", account="lab", qos="q", constraint="c", gres=gres)
    options = flags(submission.sbatch_text(made(tmp_path, site=site)))
    # wckey is submitit's mark of its jobs, which nothing here reads.
    assert options.keys() - {"wckey"} <= OWN_OPTIONS.keys()


def test_the_code_comes_from_the_snapshot_and_paths_are_quoted(tmp_path):
    text = submission.sbatch_text(made(tmp_path / "a;b $HOME"))
    assert f"export PYTHONPATH='{tmp_path}/a;b $HOME/snap shot'" in text
    assert f"[ ! -O '{tmp_path}/a;b $HOME/ablation-0a' ]" in text
    assert " -P -u -m submitit.core._submit" in text


def guard_of(one):
    """The lines of its job before Python, in a folder that passes them."""
    one.folder.mkdir(mode=0o700)
    one.snapshot.mkdir()
    (one.snapshot / "train.py").touch()
    return submission.sbatch_text(one).partition("# setup")[2].partition("# command")[0]


def test_slurms_signals_do_not_end_python_while_it_starts(tmp_path):
    (command,) = (line for line in submission.sbatch_text(made(tmp_path)).splitlines() if line.startswith("srun"))
    (tmp_path / "srun").write_text('#!/bin/sh\nwhile [ "$1" != sh ]; do shift; done\nexec "$@"\n')
    (tmp_path / "srun").chmod(0o700)
    # The interpreter's first lines, as long as they may take on a shared disk.
    start = command.partition(" -P ")[0] + " -c 'import signal; print(signal.getsignal(signal.SIGUSR2)); input()'"
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with subprocess.Popen(["bash", "-c", f"exec {start}"], stdin=-1, stdout=-1, text=True, env=env) as process:
        assert process.stdout.readline().strip() == "1"  # SIG_IGN
        for number in (signal.SIGUSR2, signal.SIGTERM):
            process.send_signal(number)
        process.communicate("\n", 10)
    assert process.returncode == 0


@pytest.mark.parametrize(("runs", "job"), [("ab", "15_1"), ("b", "15")])
def test_jobs_find_their_task_where_their_sweep_died_before_it_could_name_it(tmp_path, monkeypatch, runs, job):
    one = made(tmp_path, runs=runs)
    guard = guard_of(one)
    monkeypatch.setattr(submission, "_submit", lambda *_: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        submission.call_sbatch(one)

    array, _, index = job.partition("_")
    ids = {"SLURM_ARRAY_JOB_ID": array, "SLURM_ARRAY_TASK_ID": index} if index else {}
    for _ in range(2):  # and again after a requeue
        env = {**os.environ, "SLURM_JOB_ID": "15", **ids}
        subprocess.run(["bash", "-ec", guard], env=env, check=True)
    task = pickle.loads((one.folder / f"{job}_submitted.pkl").read_bytes())  # noqa: S301 (written above)
    assert task.function == RunJob(str(tmp_path / "b"))
    assert not list(one.folder.glob("*.new"))


def test_a_submission_folder_is_new_and_private(tmp_path):
    one, other = (submission.new_folder(tmp_path, "My; Table") for _ in range(2))
    assert one != other
    assert one.name.startswith("my_table-")
    assert stat.S_IMODE(one.stat().st_mode) == 0o700
    one.parent.chmod(0o755)
    with pytest.raises(ConfigError, match="must be yours"):
        submission.new_folder(tmp_path, "table")


def test_a_job_leaves_before_it_loads_anything_from_a_folder_that_is_open_to_others(tmp_path):
    one = made(tmp_path)
    guard = guard_of(one)

    def runs():
        return subprocess.run(["bash", "-c", guard + "\necho went on"], capture_output=True, text=True, check=False)

    assert "went on" in runs().stdout
    one.folder.chmod(0o755)
    assert (runs().returncode, "is not private" in runs().stdout) == (77, True)


def test_a_job_whose_node_lacks_the_code_ends_in_one_line(tmp_path):
    one = made(tmp_path)
    one.folder.mkdir(mode=0o700)  # the snapshot lies on a disk that the node does not share
    guard = submission.sbatch_text(one).partition("# setup")[2].partition("# command")[0]
    done = subprocess.run(["bash", "-c", guard], capture_output=True, text=True, check=False)
    assert done.returncode == submission.NOT_REACHABLE
    (line,) = done.stdout.splitlines()
    assert "cannot read the snapshot of the code" in line
    assert "It must lie on a file system that the nodes share" in line


def test_each_row_gets_the_time_that_the_papers_run_took_and_a_margin():
    small, large = compose_run([SLURM, "scale=paper"]), compose_run([SLURM, "scale=paper", "model=qwen2_5_7b"])
    shop = compose_run([SLURM, "scale=paper", "env=webshop"])
    configs = {"small": small, "large": large, "shop": shop}
    hours = {
        tuple(names): one.limit_min / 60 for one, names in submission.by_request(configs, launcher(), SITE).items()
    }
    assert hours == {("shop",): 13, ("small",): 21, ("large",): 24}
    limits = submission.by_request(configs, launcher("launcher.time_h=2"), SITE)
    assert {one.limit_min for one in limits} == {120}


def test_a_mixed_table_becomes_arrays_of_jobs_that_ask_for_the_same():
    rows = {"api": ["method=plain", "model=gpt_4o"], "one": ["method=react"], "four": ["method=scpo"]}
    configs = {name: compose_run([SLURM, "scale=paper", *words]) for name, words in rows.items()}
    site = SITE.model_copy(update={"partition": "a800", "cpu_partition": "cpu", "gres": "gpu:a800:4"})
    found = {names[0]: one for one, names in submission.by_request(configs, launcher(), site).items()}
    assert {name: (one.resources.gpus, one.partition) for name, one in found.items()} == {
        "four": (4, "a800"), "one": (1, "a800"), "api": (0, "cpu"),
    }  # fmt: skip
    assert site.gpu_flags(1) == {"gres": "gpu:a800:1"}
    assert site.gpu_flags(0) == {}


def test_a_job_without_a_gpu_asks_for_none(tmp_path):
    text = submission.sbatch_text(made(tmp_path, needed=Resources(1, 0, 2, 8)))
    assert not {"gpus-per-node", "gres"} & flags(text).keys()
    assert flags(text)["cpus-per-task"] == "2"


@pytest.mark.parametrize(
    ("gpus", "asked"), [(0, "(no GPU, 2 CPUs, 1.5 h)"), (1, "(gres gpu:a800, 1 GPU, 2 CPUs, 1.5 h)")]
)
def test_a_refusal_names_what_the_job_asked_for(tmp_path, monkeypatch, gpus, asked):
    (tmp_path / "bin").mkdir()
    for name in ("sbatch", "srun"):
        (tmp_path / "bin" / name).write_text("#!/bin/sh\necho 'sbatch: error: Invalid qos specification' >&2\nexit 1\n")
        (tmp_path / "bin" / name).chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    site = SITE.model_copy(update={"gres": "gpu:a800"})
    one = made(tmp_path, runs=("a",), site=site, needed=Resources(1, gpus, 2, 8))
    one = replace(one, folder=submission.new_folder(tmp_path, "table"))
    with pytest.raises(ConfigError) as refused:
        submission.call_sbatch(one)
    assert asked in str(refused.value)


def test_a_run_of_two_nodes_is_a_job_of_two_and_its_process_runs_on_the_first(tmp_path):
    nodes = compose_run([SLURM, "scale=paper", "trainer.verl.nodes=2"])
    (request,) = submission.by_request({"a": nodes}, launcher(), SITE)
    text = submission.sbatch_text(made(tmp_path, needed=request.resources))
    assert (flags(text)["nodes"], flags(text)["ntasks-per-node"], flags(text)["gpus-per-node"]) == ("2", "1", "4")
    *rays, command = (line for line in text.splitlines() if line.startswith("srun"))
    assert "--nodes=1 --ntasks=1 --overlap" in command
    assert len(rays) == 2
    assert not [line for line in submission.sbatch_text(made(tmp_path)).splitlines() if "ray start" in line]


def test_what_fits_no_gpu_is_refused_before_anything_is_queued():
    large = compose_run([SLURM, "scale=paper", "model=qwen2_5_7b", "trainer=verl_1gpu"])
    with pytest.raises(ConfigError, match=r"7B with trainer=verl needs about \d+ GiB of each GPU"):
        submission.by_request({"a": large}, launcher(), SITE)


def test_a_run_without_a_figure_needs_a_time_limit():
    with pytest.raises(ConfigError, match=r"give the longest time of a job, e\.g\. launcher\.time_h=4"):
        submission.by_request({"a": compose_run([SLURM])}, launcher(), SITE)
    with pytest.raises(ConfigError, match="warn_s=1800 is not less than the time limit of 600 s"):
        submission.by_request({"a": compose_run([SLURM])}, launcher("launcher.time_h=0.1666"), SITE)
    with pytest.raises(ConfigError, match=r"longer launcher.time_h \(at most 0.4, max_time_h of slurm/site.yaml\)"):
        submission.by_request({"a": compose_run([SLURM])}, launcher("launcher.time_h=4"), Site(max_time_h=0.4))


NOTES = {
    "enough": ([], Site(max_time_h=48), []),
    "large models": ([], SITE, ["2 runs of up to 37.2 h, by estimate, and a time limit of 24 h (max_time_h of slurm/"]),
    "the launcher's": (
        ["launcher.time_h=10"],
        SITE,
        ["3 runs of up to 37.2 h, by estimate, and a time limit of 10 h (launcher.time_h): a job that reaches it is"],
    ),
    "more than the site's": (
        ["launcher.time_h=30"],
        SITE,
        ["2 runs of up to 37.2 h, by estimate, and a time limit of 24"],
    ),
    "close to the warning": (
        [],
        Site(max_time_h=0.51),
        [
            "4 runs of up to 37.2 h",
            "a time limit of 0.52 h with launcher.warn_s=1800: a job has 1 min until it is warned",
        ],
    ),
    "twice the warning": (["launcher.time_h=1"], SITE, ["4 runs of up to 37.2 h"]),
}


@pytest.mark.parametrize(("words", "site", "said"), NOTES.values(), ids=NOTES)
def test_time_limits_that_runs_reach_or_that_leave_no_time_are_named(words, site, said):
    rows = {
        "7B": ["model=qwen2_5_7b"],
        "7B shop": ["model=qwen2_5_7b", "env=webshop"],
        "1.5B": [],
        "shop": ["env=webshop"],
    }
    configs = {name: compose_run([SLURM, "scale=paper", *row]) for name, row in rows.items()}
    groups = submission.by_request(configs, launcher(*words), site)
    notes = list(submission.limit_notes(groups, configs, launcher(*words), site))
    assert len(notes) == len(said)
    for note, part in zip(notes, said, strict=True):
        assert note.startswith(part)


@pytest.mark.parametrize(
    ("limit_min", "shown"), [(31, "0.52"), (90, "1.5"), (1260, "21"), (1, "0.02"), (60_000, "1000")]
)
def test_hours_have_two_digits_at_most(limit_min, shown):
    assert submission.Request(limit_min, PAPER, None).limit_h == shown


def test_a_time_limit_in_another_unit_than_hours_is_refused():
    config = {"a": compose_run(["launcher=slurm_a800x4", "scale=paper"])}
    assert submission.by_request(config, launcher("launcher.time_h=1000"), SITE)
    with pytest.raises(ConfigError, match=r"launcher.time_h=1e\+09: it is a number of hours, at most 1000"):
        submission.by_request(config, launcher("launcher.time_h=1e9"), SITE)


@pytest.mark.parametrize("warn_s", [1, 20])
def test_a_warning_that_leaves_no_time_for_a_checkpoint_is_refused(warn_s):
    config = {"a": compose_run([SLURM])}
    with pytest.raises(ConfigError, match=rf"warn_s={warn_s}: a run is killed 20 s .* allowed: more than 20\. Give"):
        submission.by_request(config, launcher("launcher.time_h=1", f"launcher.warn_s={warn_s}"), SITE)
    assert submission.by_request(config, launcher("launcher.time_h=1", "launcher.warn_s=21"), SITE)


def refusing_sbatch(tmp_path, monkeypatch, *lines):
    """Put an sbatch that answers with these lines, and refuses, at the beginning of PATH."""
    script = tmp_path / "bin" / "sbatch"
    script.parent.mkdir()
    answers = "".join(f"echo {shlex.quote(line)} >&2\n" for line in lines)
    script.write_text(f"#!/bin/sh\n{answers}exit 1\n")
    script.chmod(0o700)
    (tmp_path / "bin" / "srun").symlink_to(script)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")


def test_what_sbatch_refuses_is_one_line_with_its_words_and_the_runs_are_as_they_were(tmp_path, monkeypatch):
    refusing_sbatch(
        tmp_path,
        monkeypatch,
        "sbatch: error: invalid partition specified: gpuu",
        "sbatch: error: Batch job submission failed: Invalid partition name specified",
    )
    folders = tuple(fake.make_run(tmp_path, f"seed={seed}") for seed in (0, 1))
    one = made(tmp_path, site=SITE.model_copy(update={"partition": "gpuu"}))
    one = replace(one, folder=submission.new_folder(tmp_path, "table"), runs=folders)
    with pytest.raises(ConfigError) as refused:
        submission.submit(one, submission.call_sbatch)
    message = str(refused.value)
    assert "\n" not in message
    assert "invalid partition specified: gpuu; Batch job submission failed" in message
    assert "slurm/site.yaml: partition; set partition: <one that `sinfo` shows>" in message
    assert [read_job(folder) for folder in folders] == [None, None]


def test_a_refusal_does_not_quote_a_secret_of_the_site_file(tmp_path, monkeypatch):
    refusing_sbatch(tmp_path, monkeypatch, "sbatch: unrecognized option '--token=site-secret-1'")
    one = made(tmp_path, site=SITE.model_copy(update={"more": {"token": "site-secret-1"}}))
    one = replace(one, folder=submission.new_folder(tmp_path, "table"), runs=(fake.make_run(tmp_path, "seed=0"),))
    with pytest.raises(ConfigError, match=r"unrecognized option '--token=\[redacted\]'"):
        submission.submit(one, submission.call_sbatch)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 1", "sbatch: exit status 1 without a reason"),
        ("kill -9 $$", "sbatch: killed by SIGKILL"),
        ("echo sbatch: note: busy >&2; kill -9 $$", "sbatch: killed by SIGKILL"),
        ("echo Submitted batch job 7; echo disk full >&2; exit 1", "sbatch: exit status 1 without a reason"),
        ("exit 0", "sbatch named no job"),
        ("echo sbatch: info: job 42 of 100 left this month", "sbatch named no job"),
        ("echo Submitted batch job 7; echo Submitted batch job 8", "sbatch named no job"),
        ("echo 'sbatch: error: Socket timed out' >&2; exit 1", "sbatch: Socket timed out"),
    ],
)
def test_an_sbatch_that_ends_without_a_reason_may_have_queued_its_jobs(tmp_path, monkeypatch, script, said):
    """It was "not submitted", and the next call queued each job a second time."""
    path = tmp_path / "bin" / "sbatch"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
    (tmp_path / "bin" / "srun").symlink_to(path)
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")
    folder = fake.make_run(tmp_path)
    one = replace(made(tmp_path), folder=submission.new_folder(tmp_path, "table"), runs=(folder,))
    with pytest.raises(SchedulerError) as unsure:
        submission.submit(one, submission.call_sbatch)
    assert str(unsure.value) == f"{said}; what it queued is found by the next call"
    job = read_job(folder)
    assert (job.name, job.job_id) == (one.name, None)
    listed = {"7": ListedJob(one.name, JobState.QUEUED, "Priority")}
    assert job.state(listed) is JobState.ORPHANED


@pytest.mark.parametrize("cluster", ["", " on cluster c1"])
def test_the_job_is_read_from_sbatchs_own_line(tmp_path, monkeypatch, cluster):
    """The jobs were recorded as 42_0 and 42_1: their runs were LOST, and the next call submitted them again."""
    path = tmp_path / "bin" / "sbatch"
    path.parent.mkdir()
    before, after = "sbatch: info: job 42 of 100 left this month", "see job 43 for the bill"
    path.write_text(f"#!/bin/sh\necho '{before}'\necho 'Submitted batch job 103{cluster}'\necho '{after}'\n")
    path.chmod(0o700)
    (tmp_path / "bin" / "srun").symlink_to(path)
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")
    for seeds, ids in [((0, 1), ["103_0", "103_1"]), ((2,), ["103"])]:
        folders = tuple(fake.make_run(tmp_path, f"seed={seed}") for seed in seeds)
        one = replace(made(tmp_path), folder=submission.new_folder(tmp_path, "table"), runs=folders)
        assert submission.submit(one, submission.call_sbatch) == ids
        assert [read_job(folder).job_id for folder in folders] == ids


def test_where_slurm_gave_no_answer_the_intent_stays_so_that_the_job_is_found(tmp_path):
    folder = fake.make_run(tmp_path)
    one = replace(made(tmp_path), runs=(folder,))

    def unsure(_):
        raise SchedulerError("sbatch: Socket timed out on send/recv operation")

    with pytest.raises(SchedulerError):
        submission.submit(one, unsure)
    assert read_job(folder).job_id is None


def test_the_intent_is_on_disk_before_the_scheduler_hears_of_it(tmp_path):
    folders = tuple(fake.make_run(tmp_path, f"seed={seed}") for seed in (0, 1))
    one = made(tmp_path)
    one = replace(one, runs=folders)

    def sbatch(_):
        intents = [read_job(folder) for folder in folders]
        assert [(job.name, job.index, job.job_id) for job in intents] == [
            ("ablation-0a", 0, None),
            ("ablation-0a", 1, None),
        ]
        return ["7_0", "7_1"]

    assert submission.submit(one, sbatch) == ["7_0", "7_1"]
    assert [read_job(folder).job_id for folder in folders] == ["7_0", "7_1"]


@pytest.mark.parametrize(("name", "said"), [("50%", "'%'"), ("a\nb", r"'\\n'")])
def test_a_folder_that_sbatch_would_misread_is_refused_before_it_is_made(tmp_path, name, said):
    with pytest.raises(ConfigError, match=f"machine.runs_dir=.* has {said} in it: sbatch reads % as a pattern"):
        submission.new_folder(tmp_path / name, "ablation")
    assert not (tmp_path / name).exists()


def test_each_partition_is_asked_once_and_with_gpus_if_any_of_its_jobs_asks_for_them():
    site = Site()
    asked = [
        submission.Request(60, Resources(nodes=1, gpus=gpus, cpus=8, memory_gb=8), partition)
        for gpus, partition in [(4, "gpu"), (1, "gpu"), (0, "gpu"), (0, "cpu")]
    ]
    assert submission.probed_partitions(asked, site) == [
        ProbedPartition("gpu", site, gpus=True),
        ProbedPartition("cpu", site, gpus=False),
    ]
