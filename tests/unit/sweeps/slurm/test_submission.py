import stat
import subprocess
from pathlib import Path

import pytest

from scpo.errors import ConfigError
from scpo.schema import SlurmLauncher
from scpo.tracking import RunFolder
from sweeps.compose.configuration import compose_run
from sweeps.slurm import submission
from sweeps.slurm.cluster_settings import read_site
from sweeps.slurm.job_records import read_job
from tests.support import fake_runs as fake

pytest.importorskip("submitit", reason="needs submitit: make setup")

SITE = read_site(Path(__file__).parents[4] / "slurm" / "site.yaml")
SLURM = "launcher=slurm_a800x4"


def launcher(*words) -> SlurmLauncher:
    return compose_run([SLURM, *words]).launcher


def made(folder, runs=("a", "b", "c"), site=SITE, limit_min=90, **changes):
    folders = tuple(RunFolder(folder / name) for name in runs)
    settings = launcher().model_copy(update=changes)
    return submission.Submission(folder / "ablation-0a", folders, limit_min, settings, site, folder / "snap shot")


def flags(text):
    return dict(line[10:].partition("=")[::2] for line in text.splitlines() if line.startswith("#SBATCH"))


def test_the_jobs_are_an_array_on_one_node_of_the_papers_size(tmp_path):
    text = submission.sbatch_text(made(tmp_path))
    expected = {
        "array": "0-2%3", "nodes": "1", "gpus-per-node": "4", "cpus-per-task": "32", "time": "90", "requeue": "",
        "signal": "USR2@1800", "job-name": "ablation-0a", "ntasks-per-node": "1", "open-mode": "append",
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


def test_the_code_comes_from_the_snapshot_and_paths_are_quoted(tmp_path):
    text = submission.sbatch_text(made(tmp_path / "a;b $HOME"))
    assert f"export PYTHONPATH='{tmp_path}/a;b $HOME/snap shot'" in text
    assert f"[ ! -O '{tmp_path}/a;b $HOME/ablation-0a' ]" in text
    assert " -P -u -m submitit.core._submit" in text


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
    one.folder.mkdir(mode=0o700)
    guard = submission.sbatch_text(one).partition("# setup")[2].partition("# command")[0]

    def runs():
        return subprocess.run(["bash", "-c", guard + "\necho went on"], capture_output=True, text=True, check=False)

    assert "went on" in runs().stdout
    one.folder.chmod(0o755)
    assert (runs().returncode, "is not private" in runs().stdout) == (77, True)


def test_each_row_gets_the_time_that_the_papers_run_took_and_a_margin():
    small, large = compose_run([SLURM, "scale=paper"]), compose_run([SLURM, "scale=paper", "model=qwen2_5_7b"])
    shop = compose_run([SLURM, "scale=paper", "env=webshop"])
    configs = {"small": small, "large": large, "shop": shop}
    assert submission.by_limit(configs, small.launcher, SITE) == {
        11 * 60: ["shop"],
        20 * 60: ["small"],
        24 * 60: ["large"],
    }
    assert submission.by_limit(configs, launcher("launcher.time_h=2"), SITE) == {120: ["small", "large", "shop"]}


def test_a_run_without_a_figure_needs_a_time_limit():
    with pytest.raises(ConfigError, match=r"say how long a job may run: launcher\.time_h=2"):
        submission.by_limit({"a": compose_run([SLURM])}, launcher(), SITE)
    with pytest.raises(ConfigError, match="warn_s=1800 is no less than the time limit of 600 s"):
        submission.by_limit({"a": compose_run([SLURM])}, launcher("launcher.time_h=0.1666"), SITE)


def test_the_intent_is_on_disk_before_the_scheduler_hears_of_it(tmp_path):
    folders = tuple(fake.make_run(tmp_path, f"seed={seed}") for seed in (0, 1))
    one = made(tmp_path)
    one = submission.Submission(one.folder, folders, 90, one.launcher, SITE, one.snapshot)

    def sbatch(_):
        intents = [read_job(folder) for folder in folders]
        assert [(job.name, job.index, job.job_id) for job in intents] == [
            ("ablation-0a", 0, None),
            ("ablation-0a", 1, None),
        ]
        return ["7_0", "7_1"]

    assert submission.submit(one, sbatch) == ["7_0", "7_1"]
    assert [read_job(folder).job_id for folder in folders] == ["7_0", "7_1"]
