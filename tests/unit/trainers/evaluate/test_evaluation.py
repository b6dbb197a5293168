"""Evaluation of prompting methods on real games, through a loopback endpoint that cannot play."""

import json
import os
import signal

import pytest

from scpo.diagnostics.validation_episodes import PATTERN, read_validation
from scpo.errors import RecordError
from scpo.records import run_config
from scpo.trainers import train
from sweeps.compose.configuration import compose_run
from sweeps.records import attempt as entry
from tests.support import fake_runs as fake
from tests.support.chat_server import ACTION, KEY, Reply, serving
from tests.support.warm_starts import ROOT, WarmStart

pytest.importorskip("alfworld", reason="needs alfworld: make setup")

SMALL = [
    "model=gpt_4o", "env.prompt=verl_agent", "wandb.mode=disabled", "machine.api.requests_per_minute=60000",
    "machine.api.backoff_s=0.01", "machine.api.longest_wait_s=0.02", "machine.api.attempts=2",
    "machine.api.concurrency=2", "env.horizon=2", "env.generated.train=12", "env.generated.valid_seen=6",
    "env.generated.valid_unseen=6", "env.train_panel.games=2", "env.validation_panels.train_games.games=2",
    "env.validation_panels.train_games.repeats=2", "env.validation_panels.valid_seen.games=2",
    "~env.validation_panels.valid_unseen",
]  # fmt: skip
EPISODES = 6  # 2 games twice and 2 games once


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def start(tmp_path, cache, monkeypatch):
    """Start or resume the run; returns its folder and exit status."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(os, "environ", dict(os.environ))

    def run(server, method="plain", *words):
        machine = [f"machine.runs_dir={tmp_path}", f"machine.cache_dir={cache}", f"model.base_url={server.url}"]
        folder = run_config.ensure(compose_run([*SMALL, f"method={method}", *machine, *words]))
        return folder, entry.run(folder, train)

    return run


def transcripts(folder):
    paths = sorted((folder.path / "transcripts").rglob("*.jsonl"))
    return [[json.loads(line) for line in path.read_text().splitlines()] for path in paths]


def metrics(folder):
    return [json.loads(line) for line in folder.metrics.read_text().splitlines()]


def test_an_evaluation_ends_done_with_metrics_tokens_cost_and_a_transcript_for_each_episode(start):
    with serving() as server:
        folder, status = start(server)
    assert status == entry.EXIT_DONE
    first, last = metrics(folder)
    assert (first.pop("step"), last.pop("step")) == (0, run_config.read_config(folder).trainer.steps)
    assert first == last
    assert (first["val/train_games/episodes"], first["val/valid_seen/episodes"]) == (4, 2)
    assert first["val/valid_seen/success_rate"] == 0.0
    assert first["val/valid_seen/invalid_rate"] == 0.0
    assert len(server.requests) == EPISODES * 2
    assert (first["usage/prompt_tokens"], first["usage/response_tokens"]) == (1200, 120)
    assert first["usage/cost_usd"] == pytest.approx((1200 * 2.5 + 120 * 10) / 1e6)
    told = transcripts(folder)
    assert [len(one) for one in told] == [2] * EPISODES
    assert {line["response"] for one in told for line in one} == {ACTION}
    assert sorted(line["prompt"] for one in told for line in one) == sorted(server.prompts)
    (path,) = folder.diagnostics.glob(PATTERN)
    panels = read_validation(path)["panels"]
    assert panels["train_games"]["repeat"] == [0, 1, 0, 1]
    assert panels["valid_seen"]["won"] == [False, False]
    assert [one["episode"] for one in panels["train_games"]["transcripts"]] == [0, 2]
    first = panels["train_games"]["transcripts"][0]
    assert any(prompt.startswith(first["start"][:1000]) for prompt in server.prompts)
    assert [[turn[0], turn[2]] for turn in first["turns"]] == [[line["action"], line["valid"]] for line in told[0]]


def test_repeats_of_a_game_have_seeds_of_their_own_and_a_second_run_the_same(start):
    with serving() as server:
        start(server)
        seeds = sorted(request["seed"] for request in server.requests)
        assert len(set(seeds)) == 4 * 2  # the panels' episodes have the same streams, as in the local trainer
        start(server, "plain", "seed=1")  # the validation's draws do not depend on the run's seed
    assert sorted(request["seed"] for request in server.requests[EPISODES * 2 :]) == seeds


def test_answers_without_tags_are_invalid_steps_and_no_errors(start):
    with serving(lambda *_: Reply("I would look around first.")) as server:
        folder, status = start(server)
    assert status == entry.EXIT_DONE
    assert metrics(folder)[0]["val/train_games/invalid_rate"] == 1.0
    assert all(line["valid"] is False for one in transcripts(folder) for line in one)


def test_a_run_that_failed_goes_on_without_paying_twice(start, caplog):
    """The endpoint refuses from request 9 on: two at a time, two turns each, so four episodes are finished then."""
    caplog.set_level("INFO")
    with serving(lambda _prompt, number: Reply(status=401 if number >= 8 else 200)) as server:
        folder, status = start(server)
        assert status == entry.EXIT_FAILED
        assert "Check the key in the environment variable OPENAI_API_KEY" in folder.read_status().reason
        assert not folder.metrics.exists() or not metrics(folder)
        assert len(transcripts(folder)) == 4
        refused = len(server.requests)
        server.answer = lambda *_: Reply()
        folder, status = start(server)
    assert status == entry.EXIT_DONE
    assert len(server.requests) - refused == (EPISODES - 4) * 2
    assert metrics(folder)[0]["usage/prompt_tokens"] == EPISODES * 2 * 100
    assert "train_games: 4 of 4 episodes are finished already" in caplog.text


def test_a_run_that_is_asked_to_stop_is_interrupted_between_turns_and_goes_on(start):
    with serving() as server:
        folder, _ = start_stopped(start, server, turns=3)
        assert folder.read_status().state == "INTERRUPTED"
        assert (len(server.requests), len(transcripts(folder))) == (6, 2)
        folder, status = start(server)
    assert status == entry.EXIT_DONE
    assert len(server.requests) == 6 + (EPISODES - 2) * 2


def start_stopped(start, server, turns):
    """Send the process the stop signal from within a request of turn ``turns``."""

    def answer(_prompt, number):
        if number == 2 * turns - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return Reply()

    server.answer = answer
    return start(server)


def test_a_second_signal_ends_a_run_at_once_whose_endpoint_drips(tmp_path, cache):
    with serving(lambda *_: Reply(drip_s=0.2)) as server:  # an answer takes 40 s
        machine = [f"machine.runs_dir={tmp_path}", f"machine.cache_dir={cache}", f"model.base_url={server.url}"]
        folder = run_config.ensure(compose_run([*SMALL, "method=plain", *machine]))
        process = WarmStart(ROOT / "train.py", [str(folder.path)], {"OPENAI_API_KEY": KEY})
        fake.wait_until(lambda: len(server.requests) == 2, seconds=60)
        process.send_signal(signal.SIGTERM)
        fake.wait_until(lambda: "once more stops at once" in folder.attempt_log(1).read_text())
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(10)
    assert (process.returncode, "Traceback" in output) == (entry.EXIT_INTERRUPTED, False)
    status = folder.read_status()
    assert (status.state, status.reason) == ("INTERRUPTED", "stopped in the middle of a step")
    assert len(server.requests) == 2


def test_reflexion_carries_what_it_wrote_into_its_next_attempts_at_the_same_task(start):
    def answer(prompt, number):
        return Reply(f"<think>hm</think> PLAN-{number}") if "ended without success" in prompt else Reply()

    with serving(answer) as server:
        folder, status = start(server, "reflexion", "method.agent.trials=3", "method.agent.memory=1")
    assert status == entry.EXIT_DONE
    logged = metrics(folder)[0]
    assert (logged["val/valid_seen/attempts"], logged["val/valid_seen/first_success_rate"]) == (3, 0)
    for told in transcripts(folder):
        assert [line["kind"] for line in told] == ["act", "act", "reflect", "act", "act", "reflect", "act", "act"]
        first, second = (line["response"].split("PLAN")[1] for line in told if line["kind"] == "reflect")
        for line in told:
            remembered = [f"- PLAN{note}\n" in line["prompt"] for note in (first, second)]
            expected = {1: [False, False], 2: [True, False], 3: [False, True]}[line["attempt"]]
            assert remembered == expected


def test_react_reads_its_own_thoughts(start):
    with serving() as server:
        folder, status = start(server, "react")
    assert status == entry.EXIT_DONE
    for first, second in transcripts(folder):
        assert "Thought 1" not in first["prompt"]
        assert (
            f"Thought 1: Nothing to lose.\nAction 1: look\nObservation 1: {first['observation'].split()[0]}"
            in (second["prompt"])
        )


FAULTS = {
    "refused": (lambda *_: Reply(status=401, body=f"no such key: {KEY}"), entry.EXIT_FAILED),
    "failing": (lambda *_: Reply(status=500, body=f"trace: Bearer {KEY}"), entry.EXIT_FAILED),
    "unreadable": (lambda *_: Reply(body=f'{{"echo": "{KEY}"'), entry.EXIT_FAILED),
    "answering": (lambda *_: Reply(f"<action>{KEY}</action>"), entry.EXIT_DONE),
}


@pytest.mark.parametrize(("answer", "ending"), FAULTS.values(), ids=FAULTS)
def test_the_key_is_in_no_file_of_the_run_and_in_no_log(start, caplog, answer, ending):
    caplog.set_level("DEBUG")
    with serving(answer) as server:
        folder, status = start(server, "reflexion")
    assert status == ending
    assert server.keys[0] == f"Bearer {KEY}"
    assert KEY not in caplog.text
    files = [path for path in folder.path.rglob("*") if path.is_file() and path.name != "uncommitted.diff"]
    assert len(files) > 4
    assert not [path for path in files if KEY.encode() in path.read_bytes()]


def test_a_missing_key_fails_before_anything_is_asked(start):
    with serving() as server:
        os.environ.pop("OPENAI_API_KEY")
        folder, status = start(server)
    assert status == entry.EXIT_FAILED
    assert "set the environment variable OPENAI_API_KEY" in folder.read_status().reason
    assert not server.requests


def test_episodes_of_another_panel_are_refused(start):
    with serving(lambda *_: Reply(status=401)) as server:
        folder, _ = start(server)
        log = folder.path / "episodes" / "train_games.jsonl"
        log.parent.mkdir(exist_ok=True)
        record = dict(
            step=0, task="train/other", family="x", repeat=0, won=True, score=None, length=1, invalid=0, attempts=1,
            prompt_tokens=1, response_tokens=1, cost_usd=0.0,
        )  # fmt: skip
        log.write_text(json.dumps(record) + "\n")
        with pytest.raises(RecordError, match="task train/other, repeat 0, which is not in the panel; delete the file"):
            train(run_config.read_config(folder), folder, lambda: False)


def test_episodes_of_another_run_are_refused(start):
    with serving() as server:
        folder, status = start(server)
        assert status == entry.EXIT_DONE
        log = next((folder.path / "episodes").glob("*.jsonl"))
        lines = log.read_text()
        assert f'"run": "{folder.run_id}"' in lines
        log.write_text(lines.replace(folder.run_id, "another-run"))
        with pytest.raises(RecordError, match="an episode of the run another-run; delete the file"):
            train(run_config.read_config(folder), folder, lambda: False)


def test_reflexion_runs_on_a_hugging_face_model(tmp_path, cache):
    pytest.importorskip("torch", reason="needs torch: make setup")
    from tests.support.tiny import tiny_policy

    policy = tiny_policy()
    policy.model.save_pretrained(tmp_path / "model")
    policy.tokenizer.save_pretrained(tmp_path / "model")
    words = [
        *SMALL[1:], "method=reflexion", "model=qwen2_5_1_5b", f"model.path={tmp_path / 'model'}", "model.dtype=float32",
        "trainer.max_prompt_tokens=64", "trainer.max_response_tokens=8", f"machine.runs_dir={tmp_path / 'runs'}",
        f"machine.cache_dir={cache}",
    ]  # fmt: skip
    folder = run_config.ensure(compose_run(words))
    assert entry.run(folder, train) == entry.EXIT_DONE
    logged = metrics(folder)[0]
    assert logged["val/valid_seen/attempts"] == 3
    assert logged["usage/response_tokens"] > 0
    assert "usage/cost_usd" not in logged
