"""The acceptance script: its dry run, killed in each part, and what it says of each threshold."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from bench import gpu_acceptance
from bench.gpu_acceptance import PARTS, Part, Session, run_parts
from bench.gpu_report import exit_status, new_report
from bench.gpu_thresholds import THRESHOLDS, Verdict
from sweeps.compose.configuration import compose_run

ROOT = Path(__file__).parents[3]
PAPER = ["scale=paper", "method=scpo"]
NAMES = [part.name for part in PARTS]


def start(folder, cache, *words):
    """The script in a folder of its own, as a user starts it."""
    command = [sys.executable, "-m", "bench.gpu_acceptance", "--dry", f"machine.cache_dir={cache}", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (folder / "output.log").open("w") as output:
        return subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT)


def report_of(folder):
    path = folder / "gpu_acceptance" / "report.json"
    return json.loads(path.read_text()) if path.exists() else {}


def status_of(folder, name):
    return report_of(folder).get("parts", {}).get(name, {}).get("status", "not run")


def marked(pid):
    """Processes that a script of this id has started, directly or not."""
    mark, found = f"{gpu_acceptance.MARK}={pid}".encode(), []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in path.read_bytes().split(b"\0"):
                found.append(path.parent.name)
        except OSError:  # it has ended
            continue
    return found


def wait_until(true, process=None):
    end = time.monotonic() + 400
    while not true():
        assert time.monotonic() < end
        assert process is None or process.poll() is None
        time.sleep(0.05)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", NAMES)
def test_killed_in_a_part_it_leaves_a_report_and_no_process(tmp_path, cache, name):
    pytest.importorskip("torch", reason="needs torch: make setup")
    process = start(tmp_path, cache, "--only", name)
    log = tmp_path / "gpu_acceptance" / f"{name}.log"
    try:
        wait_until(lambda: status_of(tmp_path, name) != "not run", process)
        if name != "left_over":  # which starts nothing
            wait_until(log.exists, process)
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: not marked(process.pid))
    report = report_of(tmp_path)
    entry = report["parts"][name]
    assert entry["status"] in ("running", "ended")  # the second: it was over before this process looked
    told = {one["verdict"] for one in report["thresholds"] if one["part"] == name}
    assert told == {"NOT RUN"} if entry["status"] == "running" else "PASS" in told
    later = NAMES[NAMES.index(name) + 1 :]
    assert {report["parts"][other]["status"] for other in later} <= {"not run"}
    page = (tmp_path / "gpu_acceptance" / "report.md").read_text()
    # Two files are written one after the other: the page may be one step ahead of the report.
    assert any(f"| {name} | {status} |" in page for status in (entry["status"], "ended"))
    for needed in next(part for part in PARTS if part.name == name).needs:
        assert report["parts"][needed]["status"] == "ended"


@pytest.mark.timeout(900)
def test_the_dry_run_goes_through_every_part(tmp_path, cache):
    pytest.importorskip("torch", reason="needs torch: make setup")
    status = start(tmp_path, cache).wait(timeout=850)
    report, output = report_of(tmp_path), (tmp_path / "output.log").read_text()
    assert {name: entry["status"] for name, entry in report["parts"].items()} == dict.fromkeys(NAMES, "ended"), output
    failed = [one for one in report["thresholds"] if one["verdict"] == "FAIL"]
    assert failed == []
    assert status == 3  # trainer=local logs none of verl's own figures: those thresholds are not run
    passed = {one["part"] for one in report["thresholds"] if one["verdict"] == "PASS"}
    assert passed == set(NAMES)
    for name in set(NAMES) - {"left_over"}:
        assert (tmp_path / "gpu_acceptance" / f"{name}.log").stat().st_size
    assert not list(tmp_path.glob("gpu_acceptance/*/*/checkpoints"))


def session(folder, words=PAPER, dry=True):
    return Session(list(words), compose_run(list(words)), folder, dry)


def report_for(made):
    return new_report(made.words, made.config, NAMES, dry=made.dry)


def played(folder, **found):
    """A report after parts that found this, or raised it."""
    parts = []
    for name, value in found.items():

        def run(_session, _limit_s, value=value):
            if isinstance(value, Exception):
                raise value
            return value

        parts.append(Part(name, 60, run))
    made = session(folder)
    report = report_for(made)
    run_parts(made, parts, report)
    return report


GOOD = {"exit": 130, "step": 1, "steps": [0, 1], "first_update": {
    "actor/ppo_kl": 1e-4, "actor/pg_clipfrac": 0.0, "actor/entropy": 0.5, "actor/grad_norm": 1.5,
    "actor/lr": 1e-6, "train/invalid_rate": 0.4, "response_length/mean": 90.0,
    "response_length/clip_ratio": 0.01, "training/rollout_probs_diff_mean": 0.005,
    "training/rollout_actor_probs_pearson_corr": 0.998,
}}  # fmt: skip


def verdicts_of(report, part):
    return {one["name"]: one["verdict"] for one in report["thresholds"] if one["part"] == part}


def test_a_healthy_first_update_passes_every_threshold(tmp_path):
    assert set(verdicts_of(played(tmp_path, smoke=GOOD), "smoke").values()) == {"PASS"}


BAD = {
    "a rollout that the update does not recognise": ("training/rollout_probs_diff_mean", 0.2),
    "a gradient that is no number": ("actor/grad_norm", float("nan")),
    "a rate of zero": ("actor/lr", 0.0),
    "responses that never end": ("response_length/clip_ratio", 0.9),
}


@pytest.mark.parametrize(("metric", "value"), BAD.values(), ids=BAD)
def test_one_bad_figure_fails_its_threshold_and_the_exit_status(tmp_path, metric, value):
    report = played(tmp_path, smoke={**GOOD, "first_update": {**GOOD["first_update"], metric: value}})
    assert list(verdicts_of(report, "smoke").values()).count("FAIL") == 1
    assert exit_status(report) == 1


def test_a_figure_that_is_not_logged_is_not_run_and_one_of_a_run_that_died_has_failed(tmp_path):
    silent = played(tmp_path, smoke={**GOOD, "first_update": {}})
    assert verdicts_of(silent, "smoke")["entropy"] == "NOT RUN"
    assert exit_status(silent) == 3
    dead = played(tmp_path, smoke={"exit": 1, "first_update": {}})
    assert verdicts_of(dead, "smoke")["entropy"] == "FAIL"
    assert exit_status(dead) == 1


def test_a_part_that_breaks_or_cannot_run_does_not_cost_the_others(tmp_path):
    report = played(
        tmp_path, sleep=RuntimeError("CUDA error"), attention=gpu_acceptance.NotRunError("no flash-attn"),
        scorer={"share_of_flips": 0.0},
    )  # fmt: skip
    assert set(verdicts_of(report, "sleep").values()) == {"FAIL"}
    assert set(verdicts_of(report, "attention").values()) == {"NOT RUN"}
    assert set(verdicts_of(report, "scorer").values()) == {"PASS"}
    assert report["parts"]["sleep"]["reason"] == "RuntimeError: CUDA error"


def test_what_needs_a_part_that_did_not_end_and_what_comes_after_30_minutes_is_not_run(tmp_path):
    made = session(tmp_path, dry=False)
    report = report_for(made)
    parts = [
        Part("resume", 60, lambda *_: {}, needs=("smoke",)),
        Part("scorer", 60, lambda *_: {"share_of_flips": 0.0}),
    ]
    run_parts(made, parts[:1], report)
    assert report["parts"]["resume"]["reason"] == "smoke did not end"
    made.started -= gpu_acceptance.TOTAL_S
    run_parts(made, parts[1:], report)
    assert report["parts"]["scorer"]["reason"] == "the 30 minutes are over"


def test_the_folder_of_the_report_is_not_committed():
    assert f"/{gpu_acceptance.FOLDER}/" in (ROOT / ".gitignore").read_text().splitlines()


def test_a_command_that_hangs_is_ended_at_its_limit_and_its_output_is_there(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(gpu_acceptance, "GRACE_S", 0.5)
    hangs = "import signal, time; signal.signal(15, signal.SIG_IGN); print('begun', flush=True); time.sleep(600)"
    seen = threading.Event()
    ended = gpu_acceptance.stream(session(tmp_path), "smoke", [sys.executable, "-c", hangs], 3.0, seen.is_set)
    assert (ended["timed_out"], ended["exit"]) == (True, -signal.SIGKILL)
    assert ended["last_words"] == ["begun"]
    assert (tmp_path / "smoke.log").read_text() == "begun\n"
    assert "begun" in capfd.readouterr().out


def test_a_run_that_was_stopped_early_may_write_its_checkpoint_until_the_limit(tmp_path, monkeypatch):
    """On the first GPU, a run that was stopped at 289 of 360 s was killed at 330 s, while it hashed its checkpoint."""
    monkeypatch.setattr(gpu_acceptance, "GRACE_S", 0.2)
    saves = "import signal, sys, time\n"
    saves += "signal.signal(15, lambda *_: (time.sleep(6), print('saved', flush=True), sys.exit(130)))\n"
    saves += "print('begun', flush=True); time.sleep(600)"
    log = tmp_path / "smoke.log"

    def begun():
        return log.exists() and "begun" in log.read_text()

    ended = gpu_acceptance.stream(session(tmp_path), "smoke", [sys.executable, "-c", saves], 8.0, begun)
    assert (ended["timed_out"], ended["exit"], ended["last_words"]) == (False, 130, ["begun", "saved"])


def test_every_threshold_has_its_part_and_the_last_part_gets_what_is_left_of_30_minutes(tmp_path):
    assert {one.part for one in THRESHOLDS} == set(NAMES)
    assert set(Verdict) == {"PASS", "FAIL", "NOT RUN"}
    *others, last = PARTS
    planned = sum(part.limit_s for part in others)
    assert last.limit_s is None
    given = []
    made = session(tmp_path, dry=False)
    made.started -= planned  # every other part took all that it may
    run_parts(made, [Part(last.name, None, lambda _, limit_s: given.append(limit_s) or {})], report_for(made))
    (left_s,) = given
    assert left_s > 400
    assert planned + left_s + gpu_acceptance.GRACE_S <= 30 * 60


WORDS = {
    "the paper's": PAPER,
    "one card": [*PAPER, "trainer=verl_1gpu"],
    "WebShop": [*PAPER, "env=webshop"],
    "7B": [*PAPER, "model=qwen2_5_7b"],
}


@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
def test_every_word_that_it_adds_is_one_of_the_configuration(tmp_path, words):
    """And WebShop does not play its 500 goals at each validation."""
    made = session(tmp_path, words, dry=False)
    for runs, more in (("smoke", gpu_acceptance.SMOKE), ("step", ("trainer.steps=1",))):
        config = compose_run(made.train_command(*more, runs=runs)[2:])
        sizes = [
            getattr(panel, "games", None) or getattr(panel, "goals", None)
            for panel in config.env.validation_panels.values()
        ]
        assert sizes == [gpu_acceptance.PANEL_SIZE] * len(sizes)
        assert config.machine.runs_dir == str(tmp_path / runs)


def test_a_wrong_word_is_one_line_and_nothing_is_started(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert gpu_acceptance.main(["scale=paper", "trainer=verl_1gpu", "trainer.verl.tensor_parallel=2"]) == 2
    assert capsys.readouterr().err.startswith("error: trainer.verl: trainer.verl.tensor_parallel=2 does not divide")
    assert gpu_acceptance.main(["--dry", "--only", "smok"]) == 2
    assert "unknown part; allowed: doctor, smoke" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_peak_of_each_gpu_is_kept(monkeypatch):
    seen = threading.Event()
    used = [[1.0, 5.0], [3.0, 2.0]]

    def look():
        if used:
            return dict(enumerate(used.pop(0)))
        seen.set()
        return {0: 0.0, 1: 0.0}

    monkeypatch.setattr(gpu_acceptance, "used_gib", look)
    monkeypatch.setattr(gpu_acceptance, "MEMORY_POLL_S", 0.001)
    with gpu_acceptance.peaks() as gib:
        assert seen.wait(10)
    assert gib == [3.0, 5.0]


def test_help_says_how_to_call_it(capsys):
    assert gpu_acceptance.main(["--help"]) == 0
    assert "--only scorer" in capsys.readouterr().out
