import pytest

from sweeps.launchers.slurm.refusal import UNSURE, explain_refusal

# Messages of Slurm (src/common/slurm_errno.c), some with the line that sbatch prints before them.
FAILED = "sbatch: error: Batch job submission failed: "
KEYS = (
    ("partition", "sbatch: error: invalid partition specified: gpuu\n" + FAILED + "Invalid partition name specified"),
    ("partition", FAILED + "User's group not permitted to use this partition"),
    ("partition", FAILED + "Required partition not available (inactive or drain)"),
    ("partition", FAILED + "No partition specified or system default partition"),
    ("partition", FAILED + "Node count specification invalid"),
    ("partition", FAILED + "CPU count specification invalid"),
    ("partition", FAILED + "More processors requested than permitted"),
    ("partition", FAILED + "Requested node configuration is not available"),
    ("account", FAILED + "Invalid account or account/partition combination specified"),
    ("account", FAILED + "Invalid or unknown association"),
    ("qos", FAILED + "Invalid qos specification"),
    ("qos", FAILED + "Requested account has breached requested QOS usage threshold"),
    ("gres", "sbatch: error: Invalid GRES specification (a900:4)"),
    ("gres", FAILED + "Invalid generic resource (gres) specification"),
    ("gres", FAILED + "Invalid GRES specification (with and without type identification)"),
    ("gres", FAILED + "RestrictedCoresPerGPU: Not enough unique cores per GPU"),
    ("constraint", FAILED + "Invalid feature specification"),
    ("max_time_h", FAILED + "Requested time limit is invalid (missing or exceeds some limit)"),
    ("memory_gb", "sbatch: error: Memory specification can not be satisfied"),
    ("memory_gb", FAILED + "Memory required by task is not available"),
    ("more", FAILED + "Invalid license specification"),
    ("more", FAILED + "Requested reservation is invalid"),
    ("more", FAILED + "Access denied to requested reservation"),
    ("more", FAILED + "Invalid wckey specification"),
)  # fmt: skip


@pytest.mark.parametrize(("key", "words"), KEYS)
def test_sbatchs_words_are_one_line_with_the_key_they_are_about(key, words):
    text = explain_refusal(words, "4 GPUs", "slurm/site.yaml")
    assert "\n" not in text
    assert f"slurm/site.yaml: {key}; set {key}: " in text
    assert words.rpartition("error: ")[2] in text
    assert not UNSURE.search(words)


POLICY = FAILED + "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
LIMITS = (
    ("jobs that are queued and running", f"sbatch: error: QOSMaxSubmitJobPerUserLimit\n{POLICY}"),
    ("jobs that are queued and running", f"sbatch: error: AssocMaxSubmitJobLimit\n{POLICY}"),
    ("jobs that are queued and running", f"sbatch: error: QOSGrpSubmitJobsLimit\n{POLICY}"),
    ("jobs that are queued and running", FAILED + "MaxJobCount limit reached"),
    ("max_time_h in slurm/site.yaml", f"sbatch: error: QOSMaxWallDurationPerJobLimit\n{POLICY}"),
    ("max_time_h in slurm/site.yaml", f"sbatch: error: AssocMaxWallDurationPerJobLimit\n{POLICY}"),
    ("size of a job or on what is in use: set launcher.gpus", f"sbatch: error: QOSMaxGRESPerUser\n{POLICY}"),
    ("size of a job", f"sbatch: error: QOSMinGRES\n{POLICY}"),
    ("size of a job", f"sbatch: error: QOSMaxCpuPerUserLimit\n{POLICY}"),
    ("size of a job", f"sbatch: error: AssocMaxNodePerJobLimit\n{POLICY}"),
    ("size of a job", f"sbatch: error: QOSMaxMemoryPerJob\n{POLICY}"),
    ("of the QOS or the account", POLICY),
    ("later", FAILED + "Rate limit exceeded, please retry later"),
    ("later", FAILED + "System submissions disabled"),
)


@pytest.mark.parametrize(("answer", "words"), LIMITS)
def test_a_limit_is_answered_as_a_limit_and_not_as_a_wrong_account(answer, words):
    text = explain_refusal(words, "4 GPUs", "slurm/site.yaml")
    assert "\n" not in text
    assert answer in text
    assert "; set " not in text
    assert not UNSURE.search(words)


def test_words_that_nobody_has_seen_yet_are_shown_as_they_are():
    assert "sbatch: out of paper (4 GPUs)" in explain_refusal("sbatch: error: out of paper", "4 GPUs", "site.yaml")


def test_silence_of_the_controller_is_no_refusal():
    assert UNSURE.search("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation")


def test_a_node_without_these_gpus_is_about_gres_where_a_type_was_asked_for():
    words = "sbatch: error: Batch job submission failed: Requested node configuration is not available"
    assert "site.yaml: gres; set gres: " in explain_refusal(words, "gres gpu:h100, 4 GPUs", "site.yaml")
    assert "site.yaml: partition; set partition: " in explain_refusal(words, "4 GPUs", "site.yaml")
