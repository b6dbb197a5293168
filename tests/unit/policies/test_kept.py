"""What is made once for all runs: whole, checked each time, and made again when it is not what was made."""

import fcntl

import pytest

from scpo.errors import RecordWriteError
from scpo.policies.kept import SUMS, made_once
from tests.support.damage import cut, flip_a_bit


@pytest.fixture
def kept(tmp_path):
    """The folder, and what it was made how often."""
    made = []

    def make(folder):
        made.append(folder)
        (folder / "tokenizer").mkdir()
        (folder / "tokenizer" / "words").write_text("go to desk 1")
        (folder / "weights").write_bytes(b"\x00\x01\x02\x03")

    def get():
        return made_once(tmp_path / "warm_start" / "0a1b", make, lambda: False)

    return get, made


def test_it_is_made_once_and_leaves_nothing_else(kept):
    get, made = kept
    assert get() == get()
    assert len(made) == 1
    assert sorted(path.name for path in get().parent.iterdir()) == ["0a1b", "0a1b.lock"]


DAMAGES = {
    "a flipped bit": lambda folder: flip_a_bit(folder / "weights", 2),
    "a cut file": lambda folder: cut(folder / "tokenizer" / "words", 5),
    "a lost file": lambda folder: (folder / "weights").unlink(),
    "a flipped bit of the checksums": lambda folder: flip_a_bit(folder / SUMS, 30),
    "no checksums": lambda folder: (folder / SUMS).unlink(),
    "no object": lambda folder: (folder / SUMS).write_text("[]"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_one_that_was_damaged_is_made_again(kept, damage):
    get, made = kept
    damage(get())
    folder = get()
    assert (len(made), (folder / "weights").read_bytes()) == (2, b"\x00\x01\x02\x03")
    get()
    assert len(made) == 2


def test_what_killed_processes_left_is_removed(kept, tmp_path):
    get, _ = kept
    (tmp_path / "warm_start" / "0a1b.tmp-1").mkdir(parents=True)
    assert not list(get().parent.glob("*.tmp-*"))


def test_a_full_disk_is_one_line_with_a_remedy_and_leaves_nothing(tmp_path):
    def full(folder):
        (folder / "part").write_text("some")
        raise OSError(28, "No space left on device")

    with pytest.raises(RecordWriteError, match=r"0a1b could not be made .*No space left.*machine\.cache_dir"):
        made_once(tmp_path / "0a1b", full, lambda: False)
    assert [path.name for path in tmp_path.iterdir()] == ["0a1b.lock"]


def test_a_run_that_waits_for_another_names_what_it_waits_for(tmp_path, caplog):
    """A hash alone stood there for minutes."""
    lock = tmp_path / "warm_start" / "0a1b.lock"
    lock.parent.mkdir()
    with lock.open("w") as held, caplog.at_level("INFO"):
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(KeyboardInterrupt):
            made_once(lock.with_suffix(""), lambda folder: None, lambda: True)
    assert caplog.messages == ["waiting for the warm start 0a1b, which another run makes"]
