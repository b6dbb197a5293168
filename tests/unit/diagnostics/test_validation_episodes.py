import gzip
import json

import numpy as np
import pytest

from scpo.diagnostics.validation_episodes import LONGEST_TEXT, TRANSCRIPTS, played, read_validation, save_validation
from scpo.envs.base import StepResult, Task
from scpo.errors import RecordError
from scpo.records import RunFolder
from scpo.records.status import State, Status
from scpo.records.verify import problems
from scpo.rollout import Slot, Trajectory
from tests.support.run_records import write_run


def episode(task, repeat=0, *, won=False, answers=("You see a desk.", "Done.")):
    last = len(answers) - 1
    results = [StepResult(f"go {t}", t != 1, text, 0.0, t == last, won and t == last) for t, text in enumerate(answers)]
    slot = Slot(0, repeat, Task(task, "Pick", "0"))
    return played(Trajectory(slot, anchors=["In a room.", *answers[:-1]], results=results))


def written(folder, panels, step=3):
    save_validation(RunFolder(folder), step, panels)
    return folder / "diagnostics" / f"validation_step_{step:05d}.json.gz"


def test_every_episode_is_there_with_its_outcome_and_its_transcript(tmp_path):
    path = written(tmp_path, {"seen": [episode("a", won=True), episode("a", 1), episode("b")]})
    record = read_validation(path)
    assert record["step"] == 3
    panel = record["panels"]["seen"]
    assert panel["task"] == ["a", "a", "b"]
    assert panel["repeat"] == [0, 1, 0]
    assert panel["won"] == [True, False, False]
    assert panel["length"] == [2, 2, 2]
    assert [one["episode"] for one in panel["transcripts"]] == [0, 2]  # the first episode of each game
    assert panel["transcripts"][0] == {
        "episode": 0,
        "start": "In a room.",
        "turns": [["go 0", "You see a desk.", True], ["go 1", "Done.", False]],
    }


def test_numbers_of_numpy_are_recorded_as_numbers(tmp_path):
    result = StepResult("go", np.bool_(True), "Done.", 0.0, True, np.bool_(True), np.float32(0.5))
    trajectory = Trajectory(Slot(0, np.int64(1), Task("a", "Pick", "0")), anchors=["In a room."], results=[result])
    panel = read_validation(written(tmp_path, {"seen": [played(trajectory)]}))["panels"]["seen"]
    assert (panel["repeat"], panel["won"], panel["score"]) == ([1], [True], [0.5])


def test_of_a_large_panel_a_few_games_are_told_spread_over_it_whoever_won(tmp_path):
    for step, won in ((1, False), (2, True)):
        path = written(tmp_path, {"seen": [episode(f"{k:03d}", won=won) for k in range(80)]}, step)
        told = [one["episode"] for one in read_validation(path)["panels"]["seen"]["transcripts"]]
        assert told == [k * 10 for k in range(TRANSCRIPTS)]


def test_long_answers_are_cut_visibly(tmp_path):
    path = written(tmp_path, {"seen": [episode("a", answers=("x" * (LONGEST_TEXT + 7),))]})
    ((_, text, _),) = read_validation(path)["panels"]["seen"]["transcripts"][0]["turns"]
    assert text == f"{'x' * LONGEST_TEXT} … (7 more characters)"


def test_equal_episodes_are_equal_bytes_and_a_lost_or_changed_file_is_missed(tmp_path):
    run = write_run(tmp_path, steps=4)["id"]
    folder = RunFolder(tmp_path / run)
    panels = {"seen": [episode("a", won=True)]}
    path = written(folder.path, panels)
    before = path.read_bytes()
    assert written(folder.path, panels).read_bytes() == before
    assert "diagnostics/validation_step_00003.json.gz" in folder.read_status().sums
    path.write_bytes(gzip.compress(b"{}"))
    assert any(path.name in problem for problem in problems(folder))
    path.unlink()
    assert any(path.name in problem for problem in problems(folder))


@pytest.mark.parametrize(
    "content",
    [b"no gzip", {}, {"step": 1}, {"step": 1, "panels": {"seen": {"task": ["a"]}}}, {"step": "x", "panels": {}}],
)
def test_a_file_that_is_no_such_record_is_named(content, tmp_path):
    path = tmp_path / "validation_step_00001.json.gz"
    path.write_bytes(content if isinstance(content, bytes) else gzip.compress(json.dumps(content).encode()))
    with pytest.raises(RecordError, match=r"validation_step_00001\.json\.gz is not a record of a validation"):
        read_validation(path)


def test_columns_of_unequal_length_and_transcripts_of_no_episode_are_refused(tmp_path):
    path = written(tmp_path, {"seen": [episode("a"), episode("b")]})
    record = read_validation(path)
    for damage in ("won", "transcripts"):
        broken = json.loads(json.dumps(record))
        if damage == "won":
            broken["panels"]["seen"]["won"].pop()
        else:
            broken["panels"]["seen"]["transcripts"][0]["episode"] = 2
        path.write_bytes(gzip.compress(json.dumps(broken).encode()))
        with pytest.raises(RecordError, match="is not a record of a validation"):
            read_validation(path)


def test_a_run_without_a_status_keeps_its_episodes_too(tmp_path):
    assert written(tmp_path, {"seen": [episode("a")]}).exists()
    assert not RunFolder(tmp_path).status.exists()
    RunFolder(tmp_path).write_status(Status(state=State.RUNNING, steps=1))
    written(tmp_path, {"seen": [episode("a")]}, 1)
    assert len(RunFolder(tmp_path).read_status().sums) == 1
