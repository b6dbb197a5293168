import threading

import pytest

from bench import gpu_acceptance
from sweeps.compose.configuration import compose_run


def test_the_report_tells_what_was_found_beside_what_is_expected():
    metrics = {"step": 2, "training/rollout_probs_diff_mean": 0.005, "credit/descents": 2.0}
    training = {"exit": 0, "peak_gib": [61.24, 58.0], "metrics": metrics, "timing": {"timing_s/gen": 65.04, "step": 2}}
    report = {"training": training, "scorer": {"pairs": 132, "theta_flips": 0}, "estimated_gib": 70.2}
    lines = {name: (found, expected) for name, found, expected in gpu_acceptance.checks(report)}
    assert lines["peak GiB of each GPU"] == ([61.2, 58.0], "70 estimated")
    assert lines["mean |p rollout - p update|"] == (0.005, "below 0.02")
    assert lines["seconds of gen"] == (65.0, "")
    assert lines["scorer: theta_flips"] == (0, "0 flips")


def test_a_scorer_without_precisions_is_timed_alone():
    pytest.importorskip("rapidfuzz", reason="needs rapidfuzz: make setup")
    found = gpu_acceptance.score(compose_run(["scale=study", "method=scpo", "scorer=lexical"]))
    assert found["pairs"] == 132
    assert "theta_flips" not in found


def test_a_scorer_that_cannot_be_loaded_costs_its_own_part_of_the_report(tmp_path):
    config = compose_run(["scale=paper", "method=scpo", f"scorer.path={tmp_path / 'none'}"])
    found = gpu_acceptance._or_why_not(gpu_acceptance.score, config)
    assert found["failed"].startswith("ScorerError: scorer 'bge_reranker_v2_m3'")


def test_a_wrong_word_is_one_line_and_nothing_is_started(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert gpu_acceptance.main(["scale=paper", "trainer=verl_1gpu", "trainer.verl.tensor_parallel=2"]) == 2
    assert capsys.readouterr().err.startswith("error: trainer: trainer.verl.tensor_parallel=2 does not divide")
    assert not list(tmp_path.iterdir())


def test_every_word_that_it_adds_is_one_of_the_configuration():
    for words in (gpu_acceptance.DRY, ("scale=paper", "method=scpo", "trainer=verl_1gpu")):
        panels = [f"env.validation_panels.{panel}.games=8" for panel in gpu_acceptance.PANELS]
        assert compose_run([*words, *gpu_acceptance.FEW, *panels]).trainer.steps == gpu_acceptance.STEPS


def test_the_peak_of_each_gpu_is_kept(monkeypatch):
    seen = threading.Event()
    used = [[1.0, 5.0], [3.0, 2.0]]

    def look():
        if used:
            return dict(enumerate(used.pop(0)))
        seen.set()
        return {0: 0.0, 1: 0.0}

    monkeypatch.setattr(gpu_acceptance, "used_gib", look)
    monkeypatch.setattr(gpu_acceptance, "POLL_S", 0.001)
    with gpu_acceptance.peaks() as gib:
        assert seen.wait(10)
    assert gib == [3.0, 5.0]
