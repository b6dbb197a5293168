"""What the acceptance script's probes do on a GPU, as far as a CPU can tell."""

from types import SimpleNamespace

import numpy as np
import pytest

from bench import gpu_probes
from sweeps.compose.configuration import compose_run

PAPER = ("scale=paper", "method=scpo", "trainer=verl_1gpu")


def test_the_reranker_is_loaded_onto_the_gpu_in_both_precisions(monkeypatch):
    """float16 is refused on a CPU, as the first run on a GPU showed."""
    made = []

    def make(settings, *, device):
        made.append((settings.dtype, device))
        return SimpleNamespace(score=lambda pairs: np.full(len(pairs), 0.5))

    monkeypatch.setattr(gpu_probes, "make_scorer", make)
    found = gpu_probes.scorer(compose_run(PAPER), dry=False)
    assert made == [("float16", "cuda"), ("float32", "cuda")]
    assert (found["pairs"], found["share_of_flips"]) == (gpu_probes.PAIRS, 0.0)


@pytest.mark.parametrize("fused", [True, False])
def test_the_longest_rows_are_compared_with_the_table_of_the_attention_they_ran_with(fused, monkeypatch):
    monkeypatch.setattr(gpu_probes, "_gpu_gib", lambda: 80.0)
    table = gpu_probes._update_gib(compose_run(PAPER), fused=fused)
    assert (table["logits"] <= 1.0) is fused
