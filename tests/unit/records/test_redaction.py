import pytest

from scpo.records.redaction import Leak, leaks, redact

ENVIRONMENT = {
    "MY_API_KEY": "hunter2-hunter2",
    "PATH": "/usr/bin:/bin",
    "SHORT_TOKEN": "abc",
    "TOKENIZERS_PARALLELISM": "false",
    "DATABASE_URL": "postgres://me:open-sesame@db.example/x",
    "DEPLOY_PAT": "pat-pat-pat-pat",
    "API_KEYS": "first-of-keys",
    "MY_LLM": "what-it-is-called-is-no-matter",
    "PEM_KEY": "line-one-of-it\nline-two-of-it",
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
    "address": "postgres://me:hunter2@db.example/x",
    "Slack": "https://hooks.slack.com/services/T000/B000/abcdef",
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


@pytest.mark.parametrize("name", ["DATABASE_URL", "DEPLOY_PAT", "API_KEYS"])
def test_variables_whose_values_are_credentials_are_known(name):
    assert ENVIRONMENT[name] not in redact(f"-url = {ENVIRONMENT[name]}\n", ENVIRONMENT)


def test_the_variable_that_a_configuration_names_is_secret_whatever_it_is_called():
    text = f"key = {ENVIRONMENT['MY_LLM']}"
    assert redact(text, ENVIRONMENT) == text
    assert redact(text, ENVIRONMENT, names={"MY_LLM"}) == "key = [redacted]"


def test_the_whole_of_a_private_key_that_a_diff_removes_goes():
    body = [f"MIIEow{i}BAAKCAQEA7{i}-x" for i in range(3)]
    key = ["-----BEGIN RSA PRIVATE KEY-----", *body, "-----END RSA PRIVATE KEY-----"]
    for sign in "+-":
        cleaned = redact("".join(f"{sign}{line}\n" for line in [*key, "kept"]), {})
        assert not [line for line in body if line in cleaned]
        assert f"{sign}kept" in cleaned
    assert not [line for line in body if line in redact("\n".join(f"-{line}" for line in key[:-1]), {})]


def test_a_value_of_several_lines_is_found_in_a_diff():
    assert redact("-line-one-of-it\n-line-two-of-it\n", ENVIRONMENT) == "-[redacted]\n-[redacted]\n"


def test_a_value_is_found_as_json_and_addresses_write_it():
    environment = {"A_TOKEN": 'se"cret/value'}
    assert redact(r'{"a": "se\"cret/value"} ?t=se%22cret%2Fvalue', environment) == '{"a": "[redacted]"} ?t=[redacted]'
