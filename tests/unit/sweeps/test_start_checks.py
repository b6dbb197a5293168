from pathlib import Path

import pytest

from scpo.errors import ConfigError
from sweeps import start_checks
from sweeps.compose.configuration import compose_run
from sweeps.start_checks import refuse_what_cannot_start

CHAT = ("scale=paper", "method=plain", "model=gpt_4o", "env.games=generated")


def refusal(*overrides):
    with pytest.raises(ConfigError) as caught:
        refuse_what_cannot_start([compose_run(overrides)])
    return str(caught.value)


def test_a_run_that_has_all_it_needs_is_let_start():
    assert refuse_what_cannot_start([compose_run(["method=scpo"]), compose_run(["method=gigpo", "seed=1"])]) is None


def test_a_trainer_that_is_not_installed_is_named_with_its_command(monkeypatch):
    monkeypatch.setattr(start_checks, "installed_version", lambda name: None if name == "verl" else "1")
    monkeypatch.setattr(start_checks.importlib.util, "find_spec", lambda name: None)
    said = refusal("scale=paper", "method=scpo", "env.games=generated")
    assert "verl is not installed; fix: in a virtual environment of its own: pip install -e '.[alfworld,verl]'" in said
    assert "verl-cpu" in refusal("method=scpo", "trainer=verl_cpu")


def test_a_key_that_is_not_set_is_named_and_nothing_is_called(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert refusal(*CHAT) == "model GPT-4o: OPENAI_API_KEY is not set; fix: export OPENAI_API_KEY=<your key>"
    monkeypatch.setenv("OPENAI_API_KEY", "planted")
    refuse_what_cannot_start([compose_run(CHAT)])


def test_a_scorer_that_no_hub_can_give_is_refused_in_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("sweeps.doctor.model_files.why_unreachable", lambda url: "no route")
    said = refusal("method=scpo", "scorer=bge_reranker_v2_m3")
    assert "the Hugging Face hub does not answer (no route)" in said
    assert "scorer=minilm and scorer=lexical need no download" in said
    assert "\n" not in said
    refuse_what_cannot_start([compose_run(["method=gigpo", "scorer=bge_reranker_v2_m3"])])  # which reads no scorer


def test_of_many_runs_with_one_reason_it_is_told_once():
    runs = [compose_run(["env.games=official", f"seed={seed}", "machine.data.alfworld=/no"]) for seed in range(3)]
    with pytest.raises(ConfigError) as caught:
        refuse_what_cannot_start(runs)
    assert str(caught.value).count("\n") == 0
    assert not Path("/no").exists()


def test_what_several_kinds_of_run_read_is_checked_once(monkeypatch, tmp_path):
    """A table of 42 kinds of run asked one process for each, and the hub for each model and scorer."""
    asked = []
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("sweeps.doctor.model_files.why_unreachable", lambda url: asked.append(url) or "no route")
    monkeypatch.setattr("sweeps.doctor.deep._ask", lambda what, config: asked.append(what) or {"findings": []})
    words = ["scale=paper", "trainer=local", "model=qwen2_5_1_5b", "scorer=bge_reranker_v2_m3"]
    runs = [compose_run([*words, f"method={name}"]) for name in ("scpo", "gigpo", "ppo", "plain", "react")]
    assert len(start_checks.obstacles(runs)) == 2
    assert sorted(asked) == ["data", "https://huggingface.co", "https://huggingface.co"]


def test_a_run_with_a_scorer_is_checked_beside_one_that_reads_none(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("sweeps.doctor.model_files.why_unreachable", lambda url: "no route")
    with pytest.raises(ConfigError, match="does not answer"):
        refuse_what_cannot_start(
            [compose_run([f"method={name}", "scorer=bge_reranker_v2_m3"]) for name in ("gigpo", "scpo")]
        )
