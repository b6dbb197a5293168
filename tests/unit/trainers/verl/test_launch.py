"""What the launcher refuses before anything is prepared, and how a wish to stop reaches the process that trains."""

import threading
import time
from importlib import metadata

import pytest

from scpo.errors import ConfigError
from scpo.tracking import RunFolder
from scpo.trainers.verl.launch import _check_engine, _stop_file, prepare
from sweeps.compose.configuration import compose_run

pytest.importorskip("torch", reason="needs torch: make setup")


def test_without_a_gpu_only_the_cpu_trainer_is_allowed(tmp_path):
    for words in (["scale=paper"], ["trainer=verl_cpu", "trainer.verl.engine=vllm"]):
        with pytest.raises(ConfigError, match="torch sees no CUDA device here; allowed without one: trainer=verl_cpu"):
            prepare(compose_run([*words, "machine.device=cpu"]), RunFolder(tmp_path), lambda: False)
    assert not list(tmp_path.iterdir())


def test_the_cpu_build_of_vllm_is_allowed_and_no_other(monkeypatch):
    config = compose_run(["trainer=verl_cpu", "trainer.verl.engine=vllm"])
    monkeypatch.setattr(metadata, "version", lambda _: "0.31.0+cpu")
    _check_engine(config, on_cpu=True)
    monkeypatch.setattr(metadata, "version", lambda _: "0.31.0")
    with pytest.raises(ConfigError, match="with the CPU build of vLLM also trainer=verl_cpu"):
        _check_engine(config, on_cpu=True)


def test_on_a_gpu_the_engine_for_the_cpu_is_refused():
    with pytest.raises(ConfigError, match=r"engine=hf is Hugging Face generate, for the CPU only"):
        _check_engine(compose_run(["trainer=verl_cpu"]), on_cpu=False)


def test_a_wish_to_stop_becomes_a_file_while_the_process_waits_and_is_gone_after(tmp_path):
    path, asked = tmp_path / "stop", threading.Event()
    path.touch()  # left behind by a run that was killed
    with _stop_file(path, asked.is_set):
        assert not path.exists()
        asked.set()
        for _ in range(100):
            if path.exists():
                break
            time.sleep(0.05)
        assert path.exists()
    assert not path.exists()
