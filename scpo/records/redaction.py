"""Redaction: detect keys and passwords before a text is copied or recorded."""

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import quote

REDACTED = "[redacted]"


SHORTEST = 8  # a shorter value is no key, and would be found in every second file


SECRET_NAME = re.compile(
    r"(KEYS?|TOKENS?|SECRETS?|PASSWORDS?|PASSWD|PASSPHRASE|CREDENTIALS?|WEBHOOKS?|WEBHOOK_URL|(^|_)(PAT|DSN|AUTH))$"
)


WITH_PASSWORD = re.compile(
    r"[a-zA-Z][a-zA-Z0-9+.-]*://[^\s/:@'\"{}$]*:(?!/)[^\s/@'\"{}$]+@"
)  # in an address


SHAPES = {  # what keys look like, by their issuers' prefixes
    "a W&B key": re.compile(r"(?i)(?<=wandb_api_key)\W{1,4}[0-9a-f]{40}\b|\bwandb_v\d_\w{20,}"),
    "an OpenAI or Anthropic key": re.compile(r"\bsk-[A-Za-z0-9_-]{20,}"),
    "a Hugging Face token": re.compile(r"\bhf_[A-Za-z0-9]{30,}"),
    "a GitHub token": re.compile(r"\b(gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,})"),
    "a Google key": re.compile(r"\bAIza[0-9A-Za-z_-]{35}"),
    "an AWS key": re.compile(r"\bAKIA[0-9A-Z]{16}\b"),
    "a chat webhook": re.compile(
        r"https://(hooks\.slack\.com/services|([a-z]+\.)?discord(app)?\.com/api/webhooks)/[\w/-]+"
    ),
    "a password in an address": WITH_PASSWORD,
    # In a diff each line of it begins with + or -, and its end may have been cut off: then all that follows goes.
    "a private key": re.compile(
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
    ),
}


@dataclass(frozen=True)
class Leak:
    """A secret in a text: where, and whose, never what."""

    line: int
    what: str


def leaks(
    text: str, environment: Mapping[str, str] = os.environ, names: Collection[str] = ()
) -> list[Leak]:
    """The secrets in a text: values of this process's secret variables, and what has the shape of a key.

    Args:
        text: Any text.
        environment: The variables.
        names: Of variables that are secret whatever they are called, as ``model.key_variable`` names one.
    """
    found = _matches(text, environment, names)
    return [Leak(text.count("\n", 0, match.start()) + 1, what) for what, match in found]


def redact(
    text: str, environment: Mapping[str, str] = os.environ, names: Collection[str] = ()
) -> str:
    """The text with every secret replaced."""
    for _, match in list(_matches(text, environment, names)):
        text = text.replace(match.group(), REDACTED)
    return text


def _matches(
    text: str, environment: Mapping[str, str], names: Collection[str]
) -> Iterator[tuple[str, re.Match[str]]]:
    for name, value in environment.items():
        if name in names or SECRET_NAME.search(name.upper()) or WITH_PASSWORD.search(value):
            for form in _forms(value):
                for match in re.finditer(re.escape(form), text):
                    yield f"the value of ${name}", match
    for what, shape in SHAPES.items():
        for match in shape.finditer(text):
            yield what, match


def _forms(value: str) -> set[str]:
    """How a value may stand in a text: line by line, as JSON writes it, as an address does."""
    lines = {line.strip() for line in value.splitlines()}
    forms = (
        lines
        | {json.dumps(line)[1:-1] for line in lines}
        | {quote(line, safe="") for line in lines}
    )
    return {form for form in forms if len(form) >= SHORTEST}
