"""The doctor against planted defects, one test each: it must see it, say the right level, and name the fix."""

import socket

import pytest

from sweeps.doctor import services
from tests.support.doctor_findings import assert_finds

API = ("method=plain", "model=gpt_4o", "env.prompt=verl_agent")


@pytest.fixture
def listening():
    """The address of a server that takes connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def closed():
    """An address where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"


def test_an_endpoint_without_its_key(subject, monkeypatch, listening):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    found = services.check_endpoints(subject(*API, f"model.base_url={listening}"))
    assert_finds(found, "error", "OPENAI_API_KEY is not set", "export OPENAI_API_KEY")


def test_an_endpoint_that_does_not_answer_and_a_key_that_is_not_shown(subject, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    found = list(services.check_endpoints(subject(*API, f"model.base_url={closed()}")))
    assert_finds(found, "error", "does not answer: Connection refused", "model.base_url=")
    assert "sk-secret" not in str(found)


def test_wandb_online_without_a_key(subject, monkeypatch, tmp_path, listening):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WANDB_BASE_URL", listening)
    found = services.check_wandb(subject("wandb.mode=online"))
    assert_finds(found, "warning", "no key for", "wandb login")


def test_wandb_online_and_unreachable(subject, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "x" * 40)
    monkeypatch.setenv("WANDB_BASE_URL", closed())
    found = services.check_wandb(subject("wandb.mode=online"))
    assert_finds(found, "warning", "does not answer", "wandb.mode=offline")
