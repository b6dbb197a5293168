"""The doctor against planted defects, one test each: it must see it, say the right level, and name the fix."""

import json

import pytest

from scpo.findings import Level
from sweeps.doctor import deep, model_files, packages
from tests.support.doctor_findings import assert_finds


def model_folder(tmp_path, files):
    folder = tmp_path / "model"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    return f"model.path={folder}"


SHARDS = json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}})
WHOLE = {"config.json": "{}", "tokenizer.json": "{}", "model.safetensors": "w"}
BROKEN_MODELS = {
    "no weights": ({"config.json": "{}", "tokenizer.json": "{}"}, "lacks model.safetensors"),
    "empty weights": ({**WHOLE, "model.safetensors": ""}, "lacks model.safetensors"),
    "no tokenizer": ({**WHOLE, "tokenizer.json": ""}, "lacks a tokenizer"),
    "no configuration": ({**WHOLE, "config.json": ""}, "lacks config.json"),
    "lost shard": (
        {**WHOLE, "model.safetensors.index.json": SHARDS, "model-1.safetensors": "w"},
        "lacks model-2.safetensors",
    ),
    "damaged index": ({**WHOLE, "model.safetensors.index.json": "{"}, "a readable model.safetensors.index.json"),
}
LARGE = ("model=qwen2_5_1_5b", "env.prompt=verl_agent")


@pytest.mark.parametrize(("files", "text"), BROKEN_MODELS.values(), ids=BROKEN_MODELS)
def test_a_model_folder_that_lacks_a_part(subject, tmp_path, files, text):
    assert_finds(model_files.check_models(subject(*LARGE, model_folder(tmp_path, files))), "error", text, "model.path=")


def test_a_whole_model_folder(subject, tmp_path):
    assert [one.level for one in model_files.check_models(subject(*LARGE, model_folder(tmp_path, WHOLE)))] == [Level.OK]


def test_a_model_path_that_is_not_there(subject):
    found = model_files.check_models(subject(*LARGE, "model.path=/no/such/model"))
    assert_finds(found, "error", "there is no folder /no/such/model")


def test_a_model_that_is_still_to_be_downloaded(subject, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(model_files, "why_unreachable", lambda url: None)
    assert_finds(
        model_files.check_models(subject(*LARGE)), "warning", "the first run downloads it", "hf download Qwen/"
    )
    monkeypatch.setattr(model_files, "why_unreachable", lambda url: "no route")
    assert_finds(
        model_files.check_models(subject(*LARGE)), "error", "does not answer (no route)", "then model.path=DIR"
    )
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert_finds(model_files.check_models(subject(*LARGE)), "error", "HF_HUB_OFFLINE is set")


def test_a_scorer_whose_package_is_missing(subject):
    found = model_files.check_scorers(subject("scorer.path=package:no_such_scorer"))
    assert_finds(found, "error", "package no_such_scorer is not installed", "pip install no-such-scorer")


def test_a_language_model_with_the_tiny_policys_tokens_is_warned_of(subject):
    assert_finds(model_files.check_tokens(subject(*LARGE)), "warning", "256 + 8 tokens", "scale=paper trainer=local")
    assert not list(model_files.check_tokens(subject()))


@pytest.mark.parametrize(
    "words", [("method=grpo",), ("method=plain", "model=gpt_4o", "env.prompt=verl_agent")], ids=["grpo", "prompted"]
)
def test_a_scorer_that_no_run_opens_is_not_asked_for(subject, words):
    lacking = subject(*words, "scorer.path=package:no_such_scorer")
    assert not list(model_files.check_scorers(lacking))
    assert not list(deep.check_loaded_scorer(lacking))
    needed = packages.needed_extras(subject("trainer=verl_agent", "scale=paper", "method=grpo", "scorer=minilm"))
    assert "local" not in needed
