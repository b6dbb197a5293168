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


def test_the_wandb_server_is_the_one_that_the_installed_wandb_uses(monkeypatch, tmp_path):
    wandb = pytest.importorskip("wandb", reason="needs wandb: make setup")
    monkeypatch.delenv("WANDB_BASE_URL", raising=False)
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert services.wandb_url() == wandb.Settings().base_url
    (tmp_path / "settings").write_text("[default]\nbase_url = https://wandb.in.a.file\n")
    assert services.wandb_url() == "https://wandb.in.a.file"
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.in.the.environment")
    assert services.wandb_url() == "https://wandb.in.the.environment"


def test_the_password_of_the_wandb_server_is_not_shown(subject, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "x" * 40)
    monkeypatch.setenv("WANDB_BASE_URL", closed().replace("//", "//me:planted-word@"))
    found = list(services.check_wandb(subject("wandb.mode=online")))
    assert_finds(found, "warning", "does not answer", "wandb.mode=offline")
    assert "planted-word" not in str(found)


def test_the_wandb_server_without_wandb(monkeypatch, tmp_path):
    (tmp_path / "wandb.py").write_text("raise ImportError\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delenv("WANDB_BASE_URL", raising=False)
    assert services.wandb_url() == "https://api.wandb.ai"
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.in.the.environment")
    assert services.wandb_url() == "https://wandb.in.the.environment"


def test_a_key_of_the_address_before_is_one_for_the_present_server(monkeypatch, tmp_path):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".netrc").write_text("machine api.wandb.ai login user password key\n")
    (tmp_path / ".netrc").chmod(0o600)
    assert services._has_key("api.wandb.ai")
    assert services._has_key("api.forge.coreweave.com")
    assert not services._has_key("wandb.example.org")
