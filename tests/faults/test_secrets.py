"""Keys that lie in the environment and in the working tree reach no record, log or script."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import fake_runs as fake

ROOT = Path(__file__).parents[2]
PLANTED = {
    "WANDB_API_KEY": "0123456789abcdef0123456789abcdef01planted",
    "OPENAI_API_KEY": "sk-planted0123456789abcdef0123",
    "MY_DB_PASSWORD": "planted horse battery staple",
}


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout of its own with the fake trainer, the keys in its environment and in an uncommitted change."""
    root = tmp_path / "checkout"
    for part in ("scpo", "sweeps", "conf", "slurm"):
        shutil.copytree(ROOT / part, root / part, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("sweep.py", "train.py"):
        shutil.copy(ROOT / name, root)
    (root / "notes.md").write_text("nothing yet\n")
    git = ["git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "start"]):
        subprocess.run([*git, *words], check=True)
    (root / "notes.md").write_text("".join(f"{name}={value}\n" for name, value in PLANTED.items()))
    for name, value in PLANTED.items():
        monkeypatch.setenv(name, value)
    return root


def leaks(folder):
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if any(value.encode() in path.read_bytes() for value in PLANTED.values())]


def call(checkout, *words):
    command = [sys.executable, "-P", "sweep.py", "+experiment=ablation_order", "seeds=[0]", *fake.QUICK, *words]
    env = {**fake.os.environ, "PYTHONPATH": str(checkout)}
    return subprocess.run(command, cwd=checkout, env=env, capture_output=True, text=True, timeout=100, check=False)


def test_runs_record_the_diff_without_the_keys_and_nothing_of_the_environment(checkout):
    (checkout / "train.py").write_text(
        "import sys, time\n"
        "from scpo.records import RunFolder\n"
        "from sweeps.records import attempt as entry\n"
        "def train(config, folder, stop):\n"
        "    raise ValueError('no reward')\n"
        "sys.exit(entry.run(RunFolder(sys.argv[1]), train, int(sys.argv[3])))\n"
    )
    assert call(checkout).returncode == 1
    (diff, *_) = (checkout / "runs").rglob("uncommitted.diff")
    assert "WANDB_API_KEY=[redacted]" in diff.read_text()
    assert not leaks(checkout / "runs")


def test_the_sbatch_text_and_the_snapshot_hold_no_key_and_code_that_does_is_refused(checkout):
    pytest.importorskip("submitit", reason="needs submitit: make setup")
    words = ("launcher=slurm_a800x4", "launcher.time_h=1", "launcher.warn_s=60")
    shown = call(checkout, *words, "dry_run=true")
    assert shown.returncode == 0, shown.stderr
    assert "#SBATCH" in shown.stdout
    assert not [value for value in PLANTED.values() if value in shown.stdout + shown.stderr]
    (checkout / "conf" / "model" / "tiny.yaml").open("a").write(f"# {PLANTED['WANDB_API_KEY']}\n")
    refused = call(checkout, *words)
    assert refused.returncode == 2
    assert "conf/model/tiny.yaml, line" in refused.stderr
    assert "the value of $WANDB_API_KEY" in refused.stderr
    assert not leaks(checkout / "runs")


def test_a_model_or_task_name_cannot_leave_its_folder_or_reach_a_shell(checkout):
    words = ("launcher=slurm_a800x4", "launcher.time_h=1", "launcher.warn_s=60", "dry_run=true")
    shown = call(checkout, *words, "model.name='../../x; touch pwned'")
    assert shown.returncode == 0, shown.stderr
    assert "alfworld-x_touch_pwned-scpo" in shown.stdout.replace("..", "")
    assert not [
        line for line in shown.stdout.splitlines() if "touch pwned" in line and line.startswith(("#SBATCH", "srun"))
    ]
    assert not list(checkout.rglob("pwned"))
