import pytest

from sweeps.records.redaction import Leak, leaks, redact

ENVIRONMENT = {
    "MY_API_KEY": "hunter2-hunter2",
    "PATH": "/usr/bin:/bin",
    "SHORT_TOKEN": "abc",
    "TOKENIZERS_PARALLELISM": "false",
}
SHAPED = {
    "W&B": "WANDB_API_KEY: " + "0a" * 20,
    "new W&B": "wandb_v1_" + "a" * 30,
    "OpenAI": "key = sk-proj-" + "a1" * 12,
    "Hugging Face": "hf_" + "aB" * 17,
    "GitHub": "ghp_" + "a" * 36,
    "Google": "AIza" + "a" * 35,
    "AWS": "AKIA" + "A" * 16,
    "private key": "-----BEGIN OPENSSH PRIVATE KEY-----\nabc",
}


def test_the_value_of_a_secret_variable_is_found_with_its_line_and_never_shown():
    found = leaks("a\nkey: hunter2-hunter2\n", ENVIRONMENT)
    assert found == [Leak(2, "the value of $MY_API_KEY")]
    assert "hunter2" not in str(found)


@pytest.mark.parametrize("text", SHAPED.values(), ids=SHAPED)
def test_keys_are_known_by_their_shape(text):
    assert leaks(text, {})
    assert not leaks(redact(text, {}), {})


@pytest.mark.parametrize(
    "text",
    ["commit " + "0a" * 20, "max_response_tokens: 512", "sk-learn", "/usr/bin:/bin false abc", "wandb.project=scpo"],
)
def test_what_is_no_secret_is_left_alone(text):
    assert not leaks(text, ENVIRONMENT)
    assert redact(text, ENVIRONMENT) == text


def test_every_occurrence_is_blacked_out():
    assert redact("x=hunter2-hunter2; y=hunter2-hunter2", ENVIRONMENT) == "x=[redacted]; y=[redacted]"
