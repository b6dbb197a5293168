import json

import pytest

pytest.importorskip("wandb", reason="needs wandb: make setup")

from analysis.sources.wandb_project import HISTORY, Settings, read_project
from scpo.errors import RecordError
from tests.support.damage import cut, flip_a_bit
from tests.support.wandb_server import KEY, HostedRun, fail, serve, slow, truncated


@pytest.fixture
def settings(tmp_path):
    return Settings(cache=tmp_path / "cache", timeout_s=1, attempts=3, first_wait_s=0.05, page=10)


@pytest.fixture
def server(monkeypatch):
    runs = [
        HostedRun(f"r{i}", {"seed": i}, [{"_step": step, "loss": step / 2} for step in range(25)]) for i in range(3)
    ]
    with serve(*runs) as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        monkeypatch.setenv("WANDB_SILENT", "true")
        yield server


def losses(download):
    lines = [json.loads(line) for line in (download.folder / HISTORY).read_text().splitlines()]
    return {line["step"]: line["loss"] for line in lines}


def assert_whole(downloads):
    assert [download.id for download in downloads] == ["r0", "r1", "r2"]
    assert all(losses(download) == {step: step / 2 for step in range(25)} for download in downloads)
    assert [download.config for download in downloads] == [{"seed": i} for i in range(3)]


def test_every_step_of_every_run_comes_page_by_page(server, settings):
    downloads, problems = read_project("me/demo", settings)
    assert_whole(downloads)
    assert problems == ()
    assert server.requests["HistoryPage"] == 9
    assert {(download.state, download.last_step) for download in downloads} == {("finished", 24)}


def test_runs_are_listed_page_by_page(server, settings):
    server.runs = [HostedRun(f"r{i}", {}, []) for i in range(120)]
    assert len(read_project("me/demo", settings)[0]) == 120
    assert server.requests["Runs"] == 3


def test_a_second_build_asks_nobody(server, settings):
    first = read_project("me/demo", settings)
    server.requests.clear()
    assert read_project("me/demo", settings) == first
    assert server.requests == {}


def test_a_refresh_downloads_only_what_went_on(server, settings):
    read_project("me/demo", settings)
    server.requests.clear()
    server.runs[1].history.append({"_step": 25, "loss": 0.0})
    refreshed = Settings(**vars(settings) | {"refresh": True})
    downloads, _ = read_project("me/demo", refreshed)
    assert [download.last_step for download in downloads] == [24, 25, 24]
    assert server.requests["HistoryPage"] == 3


@pytest.mark.parametrize(
    ("operation", "faults"),
    [
        ("Runs", [fail(503), truncated]),
        ("HistoryPage", [fail(502), fail(429)]),
        ("HistoryPage", [truncated]),
        ("HistoryPage", [slow(1.5)]),
        ("RunParquetHistory", [truncated, fail(503)]),
    ],
)
def test_what_passes_is_repeated_until_all_is_there(server, settings, operation, faults):
    server.faults[operation] = list(faults)
    assert_whole(read_project("me/demo", settings)[0])
    assert server.faults[operation] == []


def test_a_server_that_stays_down_is_named_and_leaves_no_copy(server, settings):
    server.faults["HistoryPage"] = [fail(503)] * 100
    with pytest.raises(RecordError, match="cannot download run r0 of me/demo"):
        read_project("me/demo", settings)
    server.faults.clear()
    assert_whole(read_project("me/demo", settings)[0])


def test_a_refresh_that_fails_uses_the_copy_and_says_so(server, settings):
    before, _ = read_project("me/demo", settings)
    server.faults["Runs"] = [fail(503)] * 100
    downloads, problems = read_project("me/demo", Settings(**vars(settings) | {"refresh": True}))
    assert downloads == before
    assert "local copy" in problems[0].reason


@pytest.mark.parametrize("kept", [None, 0], ids=["without its end", "cut to nothing"])
def test_a_history_that_is_cut_is_not_taken_for_whole(server, settings, kept):
    class Cut(list):
        """A history that promises more than it gives."""

        def __getitem__(self, place):
            return {"_step": 99} if place == -1 else super().__getitem__(place)

        def __bool__(self):
            return True

    server.runs[0].history = Cut(server.runs[0].history[:kept])
    with pytest.raises(RecordError, match="not up to step 99"):
        read_project("me/demo", settings)


@pytest.mark.parametrize("project", [7, {"runs": 7}])
def test_an_answer_of_another_form_is_one_line(server, settings, project):
    answer = json.dumps({"data": {"project": project}}).encode()
    server.faults["Runs"] = [lambda _body: (200, answer)] * 9
    with pytest.raises(RecordError, match="cannot list the runs of me/demo"):
        read_project("me/demo", settings)


def test_a_wrong_key_is_refused_at_once(server, settings, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "f" * 40)
    with pytest.raises(RecordError, match=r"WANDB_API_KEY"):
        read_project("me/demo", settings)
    assert server.requests == {}


def test_a_project_that_is_not_there_is_named(server, settings):
    with pytest.raises(RecordError, match="me/other"):
        read_project("me/other", settings)


@pytest.mark.parametrize("name", ["demo", "me/", "a/b/c"])
def test_a_name_that_is_no_project_is_refused(name, settings):
    with pytest.raises(RecordError, match="entity/project"):
        read_project(name, settings)


DAMAGES = {
    "run.json is damaged": lambda folder: (folder / "run.json").write_text("{"),
    "run.json is damaged: its checksum": lambda folder: flip_a_bit(folder / "run.json", 30),
    "history.jsonl does not hold what was written": lambda folder: flip_a_bit(folder / "history.jsonl", 30),
    "history.jsonl holds": lambda folder: cut(folder / "history.jsonl", 50),
}


@pytest.mark.parametrize(("message", "damage"), DAMAGES.items(), ids=DAMAGES)
def test_a_damaged_copy_is_named_and_the_others_are_read(server, settings, message, damage):
    downloads, _ = read_project("me/demo", settings)
    damage(downloads[0].folder)
    left, (problem,) = read_project("me/demo", settings)
    assert [one.id for one in left] == ["r1", "r2"]
    assert problem.path == "me/demo/r0"
    assert message in problem.reason
    assert "--refresh" in problem.reason
    assert_whole(read_project("me/demo", Settings(**vars(settings) | {"refresh": True}))[0])


@pytest.mark.parametrize("name", ["../../../escaped", "/absolute", "..", "a/b", "x" * 129, "", "new\nline"])
def test_a_run_id_that_would_become_another_folder_is_refused(server, settings, tmp_path, name):
    server.runs[0].id = name
    downloads, (problem,) = read_project("me/demo", settings)
    assert [one.id for one in downloads] == ["r1", "r2"]
    assert "is not the id of a run" in problem.reason
    kept = {path.parent for path in tmp_path.rglob("history.jsonl")}
    assert kept == {tmp_path / "cache" / "me" / "demo" / run for run in ("r1", "r2")}


@pytest.mark.parametrize("name", ["../x", "me/..", "./demo"])
def test_a_project_name_that_would_become_another_folder_is_refused(settings, name):
    with pytest.raises(RecordError, match="entity/project"):
        read_project(name, settings)
