import pytest
from hypothesis import given
from hypothesis import strategies as st

from scpo.errors import ConfigError
from sweeps.compose.configuration import compose_run
from sweeps.compose.overrides import options, parse, parse_all, read_request
from sweeps.terminal import complaint

PARSED = {
    "trainer.steps=3": ("trainer.steps", 3, True, False),
    "+trainer.more=[1,a]": ("trainer.more", [1, "a"], False, False),
    "~wandb": ("wandb", None, False, False),
    "method=scpo": ("method", "scpo", True, True),
    "method={name: x}": ("method", {"name": "x"}, True, False),  # a mapping is merged, not chosen
    "scale/env=mini_alfworld": ("scale.env", "mini_alfworld", True, True),
    "+estimator@method.other=hgpo": ("estimator", "hgpo", False, True),
    "method.host=hgpo": ("method.host", "hgpo", True, True),
    'seed="${machine.threads}"': ("seed", "${machine.threads}", True, False),
}


@pytest.mark.parametrize(("text", "parts"), PARSED.items())
def test_an_override_is_a_key_a_value_and_what_it_does(text, parts):
    override = parse(text)
    assert (override.key, override.value, override.sets, override.is_choice) == parts
    assert str(override) == text


LETTERS = st.sampled_from("aü日é'\"\\\\ \t=,:;()[]{}$%&~*?!#/|<>`\n.")


@given(st.text(LETTERS, max_size=12))
def test_what_is_typed_with_letters_that_ascii_lacks_is_meant_as_it_stands(text):
    value = f"/data/Ü{text}"
    assert parse(f"machine.runs_dir={value}").value == value


@pytest.mark.parametrize("value", ["/data/Ümlaut/a\\b", "C:\\Übung\\", "日本 語's", "ä,b"])
def test_a_path_with_letters_that_ascii_lacks_reaches_the_run(value):
    assert compose_run(["scale=mini", f"machine.runs_dir={value}"]).machine.runs_dir == value


def test_quotes_of_the_user_around_such_letters_stay_as_they_are():
    assert parse("machine.runs_dir='/data/ü'").value == "/data/ü"
    assert parse('machine.runs_dir="/data/ü"').value == "/data/ü"


def test_what_says_where_a_run_runs_is_of_the_machine():
    texts = ("machine.threads=2", "launcher=local", "wandb.mode=offline", "trainer.steps=1", "env=webshop")
    assert [parse(text).of_machine for text in texts] == [True, True, True, False, False]


def test_a_host_selects_its_settings():
    assert parse("method.host=hgpo").for_hydra == "estimator@method.estimator=hgpo"


@pytest.mark.parametrize(
    "text",
    ["wandb.project=quiet-horse-9", "wandb.project='quiet-horse-9'", "a.b=[x,quiet-horse-9]", "a.b={c: quiet-horse-9}",
     "+a.b=quiet-horse-9", "a.b=x,quiet-horse-9"],
)  # fmt: skip
def test_the_value_of_a_secret_variable_is_refused_and_not_shown(text, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "quiet-horse-9")
    with pytest.raises(ConfigError, match=r"the given value is that of \$WANDB_API_KEY, a secret") as refused:
        parse_all(["seed=1", text])
    assert "quiet" not in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "how"),
    [
        ("wandb.entity=xhunter2-sesame-77", "contains that of"),
        ("wandb.entity='xhunter2-sesame-77'", "contains that of"),
        ("a.b=[x,{c: my-hunter2-sesame-77-y}]", "contains that of"),
        ("a.b={my-hunter2-sesame-77: 1}", "contains that of"),
        ("a.b=x,hunter2-sesame-77-y", "contains that of"),
        ("a.b=xaHVudGVyMi1zZXNhbWUtNz", "contains that of"),
        ("a.b='x${oc.env:MY_DB_PASSWORD}'", "refers to"),
        ("a.b='${oc.env:MY_DB_PASSWORD,none}'", "refers to"),
    ],
)
def test_a_value_that_contains_a_secret_is_refused_and_not_shown(text, how, monkeypatch):
    """Only a value that was equal to it was refused, and the other one was recorded."""
    monkeypatch.setenv("MY_DB_PASSWORD", "hunter2-sesame-77")
    with pytest.raises(ConfigError, match=rf"the given value {how} \$MY_DB_PASSWORD, a secret") as refused:
        parse_all(["seed=1", text])
    assert not any(part in str(refused.value) for part in ("hunter2", "HVudGVy", "\n"))


@pytest.mark.parametrize(
    ("text", "how"),
    [
        ("wandb.project=hunter2-Sesame-0077", "is the password of the address in"),
        ("a.b=[x,{c: hunter2-Sesame-0077}]", "is the password of the address in"),
        ("wandb.entity=x-hunter2-Sesame-0077", "contains the password of the address in"),
        ("a.b=xaHVudGVyMi1TZXNhbWUtMDA3N", "contains the password of the address in"),
        ("wandb.entity='postgres://me:hunter2-Sesame-0077@db/x'", "contains the password of the address in"),
        ("a.b='x${oc.env:LAB_DB_URL}'", "refers to"),
    ],
    # pytest would write the address of a name into PYTEST_CURRENT_TEST.
    ids=["equal", "nested", "part", "base64", "address", "reference"],
)
@pytest.mark.parametrize("user", ["me", ""])
def test_the_password_of_an_address_in_any_variable_is_refused_and_not_shown(text, how, user, monkeypatch):
    """Only the variable's name was looked at, and the password was recorded."""
    monkeypatch.setenv("LAB_DB_URL", f"postgres://{user}:hunter2-Sesame-0077@db/x")
    with pytest.raises(ConfigError, match=rf"the given value {how} \$LAB_DB_URL, a secret") as refused:
        parse_all(["seed=1", text])
    assert not any(part in str(refused.value) for part in ("hunter2", "HVudGVy", "\n"))


@pytest.mark.parametrize("typed", ["a%2Fhunter2-sesame", "a/hunter2-sesame"])
def test_the_password_of_an_address_is_refused_in_both_spellings(typed, monkeypatch):
    monkeypatch.setenv("LAB_DB_URL", "postgres://me:a%2Fhunter2-sesame@db/x")
    with pytest.raises(ConfigError, match=r"is the password of the address in \$LAB_DB_URL, a secret"):
        parse_all([f"wandb.project={typed}"])


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("postgres://me:hunter2@db/x", "wandb.project=hunter2"),  # shorter than 8 characters
        ("postgres://me:hunter2@db/x", "wandb.project=a-hunter2-sesame"),
        ("postgres://me:postgres@db/x", "wandb.project=postgres-2"),
        ("http://hunter2-Sesame-0077:8000/v1", "wandb.project=hunter2-Sesame-0077"),
        ("http://hunter2-Sesame-0077@llm:8000/v1", "wandb.project=hunter2-Sesame-0077"),
    ],
)
def test_short_passwords_common_words_and_other_parts_of_an_address_are_not_refused(address, text, monkeypatch):
    monkeypatch.setenv("LAB_URL", address)
    parse_all([text])


@pytest.mark.parametrize(
    ("secret", "text"),
    [
        ("password", "machine.runs_dir=runs/password-study"), ("postgres", "wandb.project=postgres-2"),
        ("my-study", "wandb.project=my-study-2"), ("Password12", "wandb.project=Password12-a"),
        ("100000000", "machine.runs_dir=runs/1000000000"), ("abc12x", "wandb.project=abc12x-long-name"),
        ("qwen2_5_7b", "machine.runs_dir=runs/qwen2_5_7b"), ("/usr/bin/env", "machine.runs_dir=/usr/bin/env/x"),
    ],
)  # fmt: skip
def test_a_value_that_contains_a_common_word_or_a_path_is_not_refused(secret, text, monkeypatch):
    monkeypatch.setenv("MY_PASSWORD", secret)
    parse_all([text])


@pytest.mark.parametrize("typed", ["method= scpo", "method =scpo", "method = scpo"])
def test_blanks_around_an_equals_sign_are_answered_with_the_override(typed):
    """The answer to the first was the search of the name scpo."""
    with pytest.raises(ConfigError) as refused:
        parse_all(["seed=1", *typed.split(), "dry_run=true"])
    assert str(refused.value) == f"{typed}: an override has no blanks around its =; write method=scpo"


def test_a_key_in_an_address_is_not_repeated_with_another_mistake():
    with pytest.raises(ConfigError) as refused:
        parse_all(["model.base_url=https://llm.example/v1?api_key=quiet-horse-9"])
    assert "is not an override" in complaint(refused.value)
    assert "quiet" not in complaint(refused.value)


def test_other_values_and_names_of_files_are_not_taken_for_secrets(monkeypatch):
    monkeypatch.setenv("MODEL_KEY", "qwen2_5_7b")
    monkeypatch.setenv("SHORT_TOKEN", "abc")
    monkeypatch.setenv("PROJECT", "quiet-horse-9")
    parse_all(["model=qwen2_5_7b", "wandb.project=abc", "wandb.entity=quiet-horse-9", "wandb.mode=null"])


def test_options_are_the_files_of_a_group():
    assert {"grpo", "gigpo", "scpo"} <= set(options("method"))


def test_a_search_is_asked_for_as_an_experiment_is():
    request = read_request(["+search=scpo", "search.trials=3"])
    assert (request.group, request.name, request.dry_run) == ("search", "scpo", False)


def test_of_a_key_given_twice_the_last_one_holds():
    request = read_request(["+experiment=ablation", "trainer.steps=3", "trainer.steps=4"])
    assert [override.text for override in request.overrides] == ["trainer.steps=4"]


def test_words_are_experiment_overrides_and_dry_run():
    request = read_request(["+experiment=ablation", "seeds=[0]", "dry_run=true", "+trainer.steps=3"])
    assert (request.group, request.name, [one.text for one in request.overrides], request.dry_run) == (
        "experiment",
        "ablation",
        ["seeds=[0]", "+trainer.steps=3"],
        True,
    )


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["experiment=ablation"], r"write \+experiment=ablation"),
        (["+experiment=ablation", "-m"], "-m: .*: python sweep.py .experiment=ablation$"),
        (["--multirun", "+experiment=ablation"], "--multirun: .*: python sweep.py .experiment=ablation$"),
        (["method=scpo"], "which experiment"),
        (["+experiment=ablation", "dry_run=maybe"], "true or false"),
    ],
)
def test_habits_from_hydra_get_a_hint(words, hint):
    with pytest.raises(ConfigError, match=hint):
        read_request(words)


@pytest.mark.parametrize("text", ["env.validation_panels={}", "method.shaper={}"])
def test_an_empty_mapping_is_refused(text):
    """It was accepted and changed nothing: the panels that were not wanted stayed."""
    with pytest.raises(ConfigError) as caught:
        compose_run(["method=scpo", text])
    key = text.partition("=")[0]
    assert str(caught.value) == (
        f"{text}: a mapping sets the keys that it has, so an empty one changes nothing; delete what is not wanted: "
        f"'~{key}.<key>'"
    )
