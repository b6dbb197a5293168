"""Weights that are replaced under one path: recorded by each attempt, and not resumed unnoticed."""

import pytest

from scpo.records import weights
from scpo.records.weights import weights_sums
from sweeps.compose.configuration import compose_run
from sweeps.records import attempt as entry
from tests.faults import fake_train
from tests.support import fake_runs as fake
from tests.unit.sweeps.records.test_attempt import stopped_at_step_2


@pytest.fixture
def reranker(tmp_path):
    folder = tmp_path / "reranker"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"one")
    return folder


@pytest.fixture
def folder(tmp_path, reranker):
    return fake.make_run(tmp_path / "runs", "scorer=minilm", f"scorer.path={reranker}")


def recorded(folder):
    return [attempt["weights"] for attempt in folder.read_attempts()]


def test_the_content_of_a_folder_is_its_checksum(tmp_path, reranker):
    config = compose_run(["scale=paper", f"model.path={reranker}", f"scorer.path={reranker}"])
    first = weights_sums(config)
    assert first.keys() == {f"model.path={reranker}", f"scorer.path={reranker}"}
    (reranker / "README.md").write_text("which no model reads")
    assert weights_sums(config) == first
    (reranker / "model.safetensors").write_bytes(b"two")
    second = weights_sums(config)
    assert all(first[key] != second[key] for key in first)
    reranker.rename(tmp_path / "elsewhere")
    assert weights_sums(config) == {}


def test_a_name_on_the_hub_has_the_commit_that_is_cached(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    config = compose_run(["scale=paper", "method=grpo"])  # which reads no scorer
    assert weights_sums(config) == {}
    reference = tmp_path / "models--Qwen--Qwen2.5-1.5B-Instruct" / "refs" / "main"
    reference.parent.mkdir(parents=True)
    reference.write_text("0a1b2c\n")
    assert weights_sums(config) == {"model.path=Qwen/Qwen2.5-1.5B-Instruct": "0a1b2c"}


def test_an_installed_packages_weights_are_its_version():
    assert weights_sums(compose_run(["scale=mini"])) == {}


def test_each_attempt_records_its_weights(folder, reranker):
    stopped_at_step_2(folder)
    assert entry.run(folder, fake_train.train) == entry.EXIT_DONE
    first, second = recorded(folder)
    assert first == second
    assert first.keys() == {f"scorer.path={reranker}"}


def test_a_run_does_not_go_on_with_other_weights(tmp_path, folder, reranker, caplog):
    """The id has the path only: other credit from step 3 on was not noticed."""
    stopped_at_step_2(folder)
    (reranker / "model.safetensors").write_bytes(b"two")
    assert entry.run(folder, fake_train.train) == entry.EXIT_FAILED
    refusal = f"stopped at step 2 with other weights. Changed since: scorer.path={reranker}. Restore it, or add"
    assert refusal in caplog.text
    (reranker / "model.safetensors").write_bytes(b"one")
    assert entry.run(folder, fake_train.train) == entry.EXIT_DONE
    (reranker / "model.safetensors").write_bytes(b"two")
    assert entry.run(folder, fake_train.train) == entry.EXIT_DONE
    assert f"what gave its numbers has changed since: scorer.path={reranker}. To run it again" in caplog.text


def test_other_weights_are_allowed_across_versions(tmp_path, reranker):
    words = ("scorer=minilm", f"scorer.path={reranker}", "machine.resume_across_versions=true")
    folder = fake.make_run(tmp_path / "runs", *words)
    stopped_at_step_2(folder)
    (reranker / "model.safetensors").write_bytes(b"two")
    assert entry.run(folder, fake_train.train) == entry.EXIT_DONE
    first, second = recorded(folder)
    assert first != second


def test_a_large_folder_is_read_once_in_a_process(reranker, monkeypatch):
    read = []
    file_sum = weights.file_sum
    monkeypatch.setattr(weights, "file_sum", lambda path: read.append(path.name) or file_sum(path))
    config = compose_run(["scale=paper", f"model.path={reranker}", "method=grpo"])
    assert weights_sums(config) == weights_sums(config)
    assert read == ["config.json", "model.safetensors"]
