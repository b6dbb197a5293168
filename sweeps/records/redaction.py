"""Keys and passwords: found before they are copied or recorded anywhere."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

REDACTED = "[redacted]"
SHORTEST = 8  # a shorter value is no key, and would be found in every second file
SECRET_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$")
SHAPES = {  # what keys look like, by their issuers' prefixes
    "a W&B key": re.compile(r"(?i)(?<=wandb_api_key)\W{1,4}[0-9a-f]{40}\b|\bwandb_v\d_\w{20,}"),
    "an OpenAI or Anthropic key": re.compile(r"\bsk-[A-Za-z0-9_-]{20,}"),
    "a Hugging Face token": re.compile(r"\bhf_[A-Za-z0-9]{30,}"),
    "a GitHub token": re.compile(r"\b(gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,})"),
    "a Google key": re.compile(r"\bAIza[0-9A-Za-z_-]{35}"),
    "an AWS key": re.compile(r"\bAKIA[0-9A-Z]{16}\b"),
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*"),
}


@dataclass(frozen=True)
class Leak:
    """A secret in a text: where, and whose, never what."""

    line: int
    what: str


def leaks(text: str, environment: Mapping[str, str] = os.environ) -> list[Leak]:
    """The secrets in a text: values of this process's secret variables, and what has the shape of a key."""
    return [Leak(text.count("\n", 0, match.start()) + 1, what) for what, match in _matches(text, environment)]


def redact(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """The text with every secret replaced."""
    for _, match in _matches(text, environment):
        text = text.replace(match.group(), REDACTED)
    return text


def _matches(text: str, environment: Mapping[str, str]) -> Iterator[tuple[str, re.Match[str]]]:
    for name, value in environment.items():
        if SECRET_NAME.search(name.upper()) and len(value) >= SHORTEST:
            for match in re.finditer(re.escape(value), text):
                yield f"the value of ${name}", match
    for what, shape in SHAPES.items():
        for match in shape.finditer(text):
            yield what, match
