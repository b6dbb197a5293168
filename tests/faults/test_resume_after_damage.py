"""A real run that was killed, damaged and started again: it ends with the same bytes, or says which file is lost."""

import shutil

import pytest

from scpo.errors import RecordError
from scpo.records import RunFolder
from tests.support import training_in_process
from tests.support.damage import flip_a_bit, keep_lines
from tests.support.training_in_process import STUDY, Killed

pytest.importorskip("alfworld", reason="needs alfworld: make setup")
pytest.importorskip("torch", reason="needs torch: make setup")

WORDS = [*STUDY, "trainer.checkpoint_every=1", "trainer.keep_checkpoints=2", "env.horizon=6"]


def run(runs, cache, **killed):
    return training_in_process.run(runs, cache, *WORDS, **killed)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, cache):
    return run(tmp_path_factory.mktemp("whole"), cache).metrics.read_bytes()


@pytest.fixture(scope="module")
def killed(tmp_path_factory, cache):
    """Killed behind the record of step 3: checkpoints 1 and 2 are there."""
    runs = tmp_path_factory.mktemp("killed")
    with pytest.raises(Killed):
        run(runs, cache, killed_after=3)
    return runs


@pytest.fixture
def damaged(killed, tmp_path):
    """A copy of the killed run, to be damaged."""
    (source,) = (path for path in killed.iterdir() if path.is_dir())
    shutil.copytree(source, tmp_path / source.name)
    folder = RunFolder(tmp_path / source.name)
    assert folder.complete_checkpoints() == [1, 2]
    return folder


def another_step(folder):
    marker = folder.checkpoint(2) / "COMPLETE"
    marker.write_text(marker.read_text().replace('"step": 2', '"step": 3'))


def a_copy_beside_it(folder):
    for path in (folder.checkpoint(2), folder.path / "attempt_1"):
        path.mkdir(exist_ok=True)
        shutil.copytree(path, path.with_name(f"{path.name}.bak"))


DAMAGES = {
    "the log's last lines are lost": lambda folder: keep_lines(folder.metrics, 2),
    "a line behind the checkpoint is damaged": lambda folder: flip_a_bit(folder.metrics, -20),
    "the marker names another step": another_step,
    "a weight has another bit": lambda folder: flip_a_bit(folder.checkpoint(2) / "model.safetensors", -9),
    "the optimizer has another bit": lambda folder: flip_a_bit(folder.checkpoint(2) / "optimizer.safetensors", -9),
    "copies lie beside checkpoint and log": a_copy_beside_it,
}


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_run_goes_on_from_what_is_whole_and_ends_with_the_same_bytes(damage, damaged, whole, cache):
    damage(damaged)
    assert run(damaged.path.parent, cache).metrics.read_bytes() == whole


@pytest.mark.usefixtures("threads")
def test_a_run_whose_checkpoints_are_all_damaged_stops_and_overwrites_nothing(damaged, cache):
    logged = damaged.metrics.read_bytes()
    for step in (1, 2):
        flip_a_bit(damaged.checkpoint(step) / "optimizer.safetensors", -9)
    with pytest.raises(RecordError, match=r"step_00002: optimizer\.safetensors .*no other one is whole.*loses 2 steps"):
        run(damaged.path.parent, cache)
    assert damaged.metrics.read_bytes() == logged


@pytest.mark.usefixtures("threads")
def test_a_run_whose_checkpoints_all_lost_their_markers_stops_and_deletes_nothing(damaged, cache):
    logged = damaged.metrics.read_bytes()
    for step in (1, 2):
        (damaged.checkpoint(step) / "COMPLETE").unlink()
    with pytest.raises(RecordError, match=r"step_00002/COMPLETE is lost: .*no other one is whole.*loses 2 steps"):
        run(damaged.path.parent, cache)
    assert damaged.metrics.read_bytes() == logged
    assert all((damaged.checkpoint(step) / "model.safetensors").exists() for step in (1, 2))


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("kept", [1, 0])
def test_a_run_that_lost_lines_before_every_checkpoint_is_refused(damaged, cache, kept):
    keep_lines(damaged.metrics, kept)
    with pytest.raises(RecordError, match=r"metrics\.jsonl ends with .*lines were lost.*move the run folder away"):
        run(damaged.path.parent, cache)


@pytest.mark.usefixtures("threads")
def test_a_run_whose_earlier_lines_were_changed_is_refused(damaged, cache):
    lines = damaged.metrics.read_text()
    damaged.metrics.write_text(lines.replace('"train/rows": ', '"train/rows": 1', 1))
    with pytest.raises(RecordError, match=r"metrics\.jsonl: the lines up to step 2 are not those"):
        run(damaged.path.parent, cache)
