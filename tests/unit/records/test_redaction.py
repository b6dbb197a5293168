import base64

import pytest

from scpo.records.redaction import LISTED, Leak, assigned, leaks, redact

ENVIRONMENT = {
    "MY_API_KEY": "hunter2-hunter2",
    "PATH": "/usr/bin:/bin",
    "SHORT_TOKEN": "abc",
    "TOKENIZERS_PARALLELISM": "false",
    "DATABASE_URL": "postgres://me:open-sesame@db.example/x",
    "DEPLOY_PAT": "pat-pat-pat-pat",
    "API_KEYS": "first-of-keys",
    "OPENAI_API_KEY_2": "the-second-of-them",
    "MY_LLM": "what-it-is-called-is-no-matter",
    "PEM_KEY": "line-one-of-it\nline-two-of-it",
}
SHAPED = {
    "W&B": "WANDB_API_KEY: " + "0a" * 20,
    "W&B in Python's environment": 'os.environ["WANDB_API_KEY"] = "' + "0a" * 20 + '"',
    "W&B as a default": 'os.environ.setdefault("WANDB_API_KEY", "' + "0a" * 20 + '")',
    "W&B login in Python": 'wandb.login(relogin=True, key="' + "0a" * 20 + '")',
    "W&B client": "wandb.Api(api_key='" + "0a" * 20 + "')",
    "W&B in .netrc": "machine api.wandb.ai login user password " + "0a" * 20,
    "W&B of a local server": "export WANDB_API_KEY=local-" + "0a" * 20,
    "W&B in a variable": 'WANDB_KEY = "' + "0a" * 20 + '"',
    "new W&B": "wandb_v1_" + "a" * 30,
    "OpenAI": "key = sk-proj-" + "a1" * 12,
    "Hugging Face": "hf_" + "aB" * 17,
    "GitHub": "ghp_" + "a" * 36,
    "Google": "AIza" + "a" * 35,
    "AWS": "AKIA" + "A" * 16,
    "private key": "-----BEGIN OPENSSH PRIVATE KEY-----\nabc",
    "address": "postgres://me:hunter2@db.example/x",
    "address without a user": "http://:hunter2hunter2@llm.example/v1",
    "query": "https://llm.example/v1?model=x&api_key=" + "aB3" * 4,
    "Slack bot": "xoxb-" + "12345-67890-" + "aB3" * 8,
    "GitLab": "glpat-" + "a1B2" * 5,
    "npm": "npm_" + "aB3" * 12,
    "npm in .npmrc": "//registry.example/:_authToken=aB3aB3aB3aB3",
    "Stripe": "sk_live_" + "aB3" * 8,
    "JSON web token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
    "bearer": "-H 'Authorization: Bearer aB3aB3aB3aB3aB3aB3'",
    "basic": "Authorization: Basic bWU6aHVudGVyMg==",
    "PyPI": "pypi-" + "AgE" * 20,
    "SendGrid": "SG." + "a" * 22 + "." + "b" * 43,
    "AWS secret": "aws_secret_access_key = " + "aB3/" * 10,
    "Groq": "gsk_" + "aB3" * 10,
    "Docker": "dckr_pat_" + "aB3" * 9,
    "Telegram": "123456789:AA" + "a" * 33,
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
    [
        "commit " + "0a" * 20,
        "sha256: " + "0a" * 32,
        "max_response_tokens: 512",
        "sk-learn",
        "/usr/bin:/bin false abc",
        "wandb.project=scpo",
        "a bearer token of the endpoint",
        "alfworld-tiny-scpo-theta0.4-s12-4c541560",
        "https://host:8000/v1/models, http://[::1]:8080/x",
        "def key_variables(configs: Iterable[RunConfig]) -> set[str]:",
    ],
)
def test_text_without_a_secret_does_not_change(text):
    assert not leaks(text, ENVIRONMENT)
    assert redact(text, ENVIRONMENT) == text


def test_every_occurrence_is_blacked_out():
    assert redact("x=hunter2-hunter2; y=hunter2-hunter2", ENVIRONMENT) == "x=[redacted]; y=[redacted]"


@pytest.mark.parametrize("name", ["DATABASE_URL", "DEPLOY_PAT", "API_KEYS", "OPENAI_API_KEY_2"])
def test_variables_whose_values_are_credentials_are_known(name):
    assert ENVIRONMENT[name] not in redact(f"-url = {ENVIRONMENT[name]}\n", ENVIRONMENT)


def test_the_password_of_an_address_is_a_secret_of_its_own():
    """Only the whole address was found."""
    environment = {"LAB_DB_URL": "postgres://me:planted-Secret%2F0002@db/x", "OTHER_URL": "http://me:postgres@db/x"}
    text = "a\npassword = planted-Secret%2F0002\n"
    assert leaks(text, environment) == [Leak(2, "the password of the address in $LAB_DB_URL")]
    assert redact(text, environment) == "a\npassword = [redacted]\n"
    assert redact("planted-Secret/0002", environment) == "[redacted]"
    assert redact("url = postgres://me:planted-Secret%2F0002@db/x", environment) == "url = [redacted]"
    # A default password may be in any file.
    assert redact("a database of postgres", environment) == "a database of postgres"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("http://me:planted-Secret-01#1@proxy:3128", "planted-Secret-01"),
        ("http://me:planted@Secret-01@proxy:3128", "planted@Secret-01"),
        ("postgres://me:pl/anted-Secret@db/x", "pl/anted-Secret"),
        ("me:planted-Secret-07@proxy:3128", "planted-Secret-07"),
    ],
)
def test_a_password_with_characters_of_an_address_is_found_as_a_library_quotes_it(value, shown):
    environment = {"HTTPS_PROXY": value}
    assert redact(f"Invalid port: '{shown}'", environment) == "Invalid port: '[redacted]'"


@pytest.mark.parametrize("value", ["http://proxy:3128", "http://proxy:3128/path?to=me@home", "http://u:training#1@h"])
def test_a_port_or_a_common_word_is_no_password(value):
    text = "port 3128 of training, path?to=me@home"
    assert redact(text, {"HTTPS_PROXY": value}) == text


@pytest.mark.parametrize("password", ["sunflower42", "topsecretpw77", "sunflower", "proxypass"])
def test_the_password_of_an_address_may_look_like_a_word(password):
    """A word of up to 15 characters with up to two digits was recorded in clear."""
    environment = {"WANDB_BASE_URL": f"https://me:{password}@wandb.lab.example"}
    assert redact(f"+PW = '{password}'\n", environment) == "+PW = '[redacted]'\n"
    assert [leak.line for leak in leaks(f"a\nPW = '{password}'\n", environment)] == [2]


def test_the_address_of_notices_is_a_secret_and_their_command_is_none():
    address = "https://chat.lab.example/hooks/x8k2m1planted"
    assert redact(f"+URL = '{address}'\n", {"SCPO_NOTIFY": address}) == "+URL = '[redacted]'\n"
    assert assigned(f"export SCPO_NOTIFY={address}") == {"SCPO_NOTIFY": address}
    assert redact("+notify-send\n", {"SCPO_NOTIFY": "notify-send"}) == "+notify-send\n"
    assert assigned("export SCPO_NOTIFY=notify-send") == {}


def test_the_variable_that_a_configuration_names_is_secret_under_any_name():
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


@pytest.mark.parametrize("around", ["", "x", "xy", "Bearer "])
def test_a_value_is_found_in_base64_and_hex_wherever_it_begins(around):
    text = f"{around}hunter2-hunter2, and more"
    for written in (
        base64.b64encode(text.encode()).decode(),
        base64.urlsafe_b64encode(text.encode()).decode(),
        text.encode().hex(),
    ):
        cleaned = redact(f"echo {written}", ENVIRONMENT)
        assert "[redacted]" in cleaned
        # What is left encodes at most the neighbouring characters of the secret.
        assert "hunter2-hunter2"[1:-1] not in decoded(cleaned)


def decoded(text):
    parts = text.removeprefix("echo ").split("[redacted]")
    padded = [part + "=" * (-len(part) % 4) for part in parts]
    return "".join(base64.b64decode(part, altchars=None, validate=False).decode(errors="ignore") for part in padded)


def test_a_secret_within_a_longer_one_leaves_nothing_of_it():
    environment = {"A_KEY": "abcdefgh", "B_KEY": "abcdefgh-ijklmnop"}
    assert redact("abcdefgh-ijklmnop", environment) == "[redacted]"


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("export WANDB_API_KEY=abc", {"WANDB_API_KEY": "abc"}),
        ("MY_TOKEN='a b' run --password=\"c d\"; true", {"MY_TOKEN": "'a b'", "password": '"c d"'}),
        ('export API_KEY=$(cat ~/.key) OTHER_KEY="$API_KEY" MAX_TOKENS=4096', {}),
        ("export HF_HOME=/data TOKENIZERS_PARALLELISM=false BYPASS=everything", {}),
        ("export DB_PASS=hunter MYPASS=hunter2", {"DB_PASS": "hunter", "MYPASS": "hunter2"}),
    ],
)
def test_a_value_is_a_secret_by_the_name_of_its_variable(line, values):
    assert assigned(line) == values


def test_in_a_list_of_variables_a_value_may_have_blanks():
    assert assigned("ALL,A_KEY=b c,HOME=/d,B_TOKEN=e", form=LISTED) == {"A_KEY": "b c", "B_TOKEN": "e"}
    assert assigned("ALL,MY_LLM=b", ["MY_LLM"], LISTED) == {"MY_LLM": "b"}
