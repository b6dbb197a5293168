import errno
import os
import stat
import subprocess
from pathlib import Path

import pytest

from scpo.errors import ConfigError, RecordWriteError
from scpo.records import provenance
from sweeps.launchers.slurm import snapshot


@pytest.fixture
def code(tmp_path, monkeypatch):
    """A small checkout in the place of ours."""
    root = tmp_path / "code"
    for name, text in {
        "train.py": "1",
        "scpo/a.py": "2",
        "conf/c.yaml": "3",
        "tests/t.py": "4",
        ".gitignore": "*.log",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    git = ["git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "start"]):
        subprocess.run([*git, *words], check=True)
    for module in (provenance, snapshot):
        monkeypatch.setattr(module, "REPOSITORY", root)
    return root


def content(folder):
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_a_snapshot_is_the_working_tree_s_code_private_and_read_only(code, tmp_path):
    (code / "scpo" / "a.py").write_text("edited")
    (code / "scpo" / "new.py").write_text("not committed")
    (code / "scpo" / "x.log").write_text("ignored by git")
    made = snapshot.freeze(tmp_path / "runs")
    files = content(made)
    assert files.pop(provenance.SNAPSHOT_RECORD)
    assert files == {"train.py": "1", "scpo/a.py": "edited", "scpo/new.py": "not committed", "conf/c.yaml": "3"}
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    assert stat.S_IMODE((made / "train.py").stat().st_mode) == 0o400


def test_a_disk_without_room_for_a_snapshot_is_named_with_what_it_needs(code, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")  # as of a write: without a name

    monkeypatch.setattr(Path, "write_bytes", full)
    said = (
        rf"cannot write the snapshot of the code, {tmp_path}/runs/\.snapshots/\w+: No space left on device\. It has 3 "
        r"files of 3 bytes in all; \d+ bytes were free then.*machine\.runs_dir"
    )
    with pytest.raises(RecordWriteError, match=said):
        snapshot.freeze(tmp_path / "runs")
    assert not list((tmp_path / "runs" / ".snapshots").iterdir())


def test_later_edits_change_nothing_and_make_another_snapshot(code, tmp_path):
    first = snapshot.freeze(tmp_path / "runs")
    assert snapshot.freeze(tmp_path / "runs") == first == snapshot.locate(tmp_path / "runs")
    (code / "train.py").write_text("edited")
    assert snapshot.freeze(tmp_path / "runs") != first
    assert (first / "train.py").read_text() == "1"


def test_from_a_snapshot_a_run_records_the_commit_it_was_frozen_at(code, tmp_path, monkeypatch):
    commit = provenance.git_commit()
    (code / "train.py").write_text("edited")
    made = snapshot.freeze(tmp_path / "runs")
    monkeypatch.setattr(provenance, "REPOSITORY", made)
    assert provenance.git_commit() == commit
    assert "+edited" in provenance.code_state()["uncommitted"]


def test_untracked_code_is_in_the_diff_from_which_git_restores_it(code):
    assert provenance.code_state()["uncommitted"] == ""
    index = (code / ".git/index").read_bytes()
    new = {"scpo/leap.py": "leap = 1\n", "conf/scale/leap.yaml": "a: 1", "scpo/empty.py": "", "scpo/é x.py": "b = 2\n"}
    others = {"data.py": "no code of runs", "scpo/a.npy": "data", "scpo/x.log": "ignored"}
    for name, text in {**new, **others}.items():
        (code / name).parent.mkdir(exist_ok=True)
        (code / name).write_text(text)
    (code / "train.py").write_text("edited")
    diff = provenance.code_state()["uncommitted"]
    assert (code / ".git/index").read_bytes() == index
    for name in new:
        (code / name).unlink()
    (code / "train.py").write_text("1")
    subprocess.run(["git", "-C", str(code), "apply", "-"], input=diff, text=True, check=True)
    assert {name: (code / name).read_text() for name in new} == new
    assert (code / "train.py").read_text() == "edited"
    assert not [name for name in others if name in diff]


def test_an_untracked_file_that_is_too_large_to_be_shown_counts_by_its_checksum(code, monkeypatch):
    monkeypatch.setattr(provenance, "SHOWN_BYTES", 3)
    states = []
    for text in ("a = 1", "a = 2"):
        (code / "scpo/large.py").write_text(text)
        states.append(provenance.code_state()["uncommitted"])
        assert "a = " not in states[-1]
    assert states[0] != states[1]


def test_outside_a_checkout_all_but_compiled_files_are_frozen(code, tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "none"))
    (code / "scpo" / "__pycache__").mkdir()
    (code / "scpo" / "__pycache__" / "a.pyc").write_text("compiled")
    assert set(content(snapshot.freeze(tmp_path / "runs"))) == {"train.py", "scpo/a.py", "conf/c.yaml", "snapshot.json"}


def test_a_secret_in_the_code_is_refused_with_its_place_and_copied_nowhere(code, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "planted-in-the-tree")
    (code / "conf" / "c.yaml").write_text("a: 1\nkey: planted-in-the-tree\n")
    with pytest.raises(ConfigError, match=r"conf/c\.yaml, line 2 holds the value of \$WANDB_API_KEY") as caught:
        snapshot.freeze(tmp_path / "runs")
    assert "planted" not in str(caught.value)
    assert not (tmp_path / "runs").exists()


def test_the_recorded_diff_has_its_secrets_blacked_out(code, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "planted-in-the-tree")
    (code / "tests" / "t.py").write_text("planted-in-the-tree")
    assert "+[redacted]" in provenance.code_state()["uncommitted"]


def test_a_snapshot_that_others_may_write_is_refused(code, tmp_path):
    made = snapshot.freeze(tmp_path / "runs")
    made.chmod(0o777)
    with pytest.raises(ConfigError, match=r"mode 777.*must be yours"):
        snapshot.freeze(tmp_path / "runs")
    made.chmod(0o700)
    if os.getuid() == 0:
        os.chown(made, 12345, -1)
        with pytest.raises(ConfigError, match="belongs to user 12345"):
            snapshot.freeze(tmp_path / "runs")


def test_nothing_in_the_shipped_code_looks_like_a_secret():
    """An example in a comment is found too, and every submission was refused for it."""
    assert snapshot.locate(Path("runs")).parent.name == snapshot.SNAPSHOTS


def test_the_same_snapshot_of_another_sweep_at_the_same_moment_is_used(code, tmp_path, monkeypatch):
    rename = Path.rename

    def meanwhile(draft, target):
        """The other sweep's snapshot appears just before ours is renamed."""
        target.mkdir(mode=0o700)
        (target / "train.py").write_text("1")
        return rename(draft, target)

    monkeypatch.setattr(Path, "rename", meanwhile)
    made = snapshot.freeze(tmp_path / "runs")
    assert content(made) == {"train.py": "1"}
    assert [path.name for path in made.parent.iterdir()] == [made.name]
