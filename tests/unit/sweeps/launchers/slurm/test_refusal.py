import pytest

from sweeps.launchers.slurm.refusal import UNSURE, explain_refusal

WORDS = {
    "partition": "sbatch: error: invalid partition specified: gpuu\n"
    "sbatch: error: Batch job submission failed: Invalid partition name specified",
    "account": "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
    "qos": "sbatch: error: Batch job submission failed: Invalid qos specification",
    "gres": "sbatch: error: Invalid GRES specification (a900:4)",
    "constraint": "sbatch: error: Batch job submission failed: Invalid feature specification",
    "max_time_h": "sbatch: error: Batch job submission failed: Requested time limit is invalid "
    "(missing or exceeds some limit)",
    "memory_gb": "sbatch: error: Memory specification can not be satisfied",
}  # fmt: skip


@pytest.mark.parametrize(("key", "words"), WORDS.items(), ids=WORDS)
def test_sbatchs_words_are_one_line_with_the_key_they_are_about(key, words):
    text = explain_refusal(words, "4 GPUs", "slurm/site.yaml")
    assert "\n" not in text
    assert f"slurm/site.yaml: {key}; set {key}: " in text
    assert words.rpartition("error: ")[2] in text
    assert not UNSURE.search(words)


def test_words_that_nobody_has_seen_yet_are_shown_as_they_are():
    assert "sbatch: out of paper (4 GPUs)" in explain_refusal("sbatch: error: out of paper", "4 GPUs", "site.yaml")


def test_silence_of_the_controller_is_no_refusal():
    assert UNSURE.search("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation")


def test_a_node_without_these_gpus_is_about_gres_where_a_type_was_asked_for():
    words = "sbatch: error: Batch job submission failed: Requested node configuration is not available"
    assert "site.yaml: gres; set gres: " in explain_refusal(words, "gres gpu:h100, 4 GPUs", "site.yaml")
    assert "site.yaml: partition; set partition: " in explain_refusal(words, "4 GPUs", "site.yaml")
