"""Redaction: detect keys and passwords before a text is copied or recorded.

The table of key formats follows the prefixes that issuers publish. It replaces the package
detect-secrets, which would add requests to the core's dependencies, because this code runs at the
start of every run. detect-secrets also searches by entropy, and would redact hashes of commits and
games.
"""

import base64
import functools
import json
import math
import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

REDACTED = "[redacted]"

# Least length of a secret: shorter values are not keys, and would match in many files.
SHORTEST = 8
SECRET_NAME = re.compile(
    r"(KEYS?|TOKENS?|SECRETS?|PASSWORDS?|PASSWD|PASSPHRASE|(?<!BY)PASS|CREDENTIALS?|WEBHOOKS?"
    r"|WEBHOOK_URL|(^|_)(PAT|DSN|AUTH))(_?\d{1,4})?$"  # OPENAI_API_KEY_2
)

# Variables that hold an address, which is secret, or a command.
ADDRESS_OR_COMMAND = ("SCPO_NOTIFY",)

# NAME=value in a line of shell.
ASSIGNED = re.compile(
    r"(?<![\w$])(?P<name>[A-Za-z_]\w*)="
    r"(?P<value>('[^']*'|\"[^\"]*\"|\\.|(?!,\w+=)[^\s;&|'\"\\])+)"
)

# NAME=value in a comma-separated list of variables, whose values may have blanks.
LISTED = re.compile(r"(?<![\w$])(?P<name>[A-Za-z_]\w*)=(?P<value>.+?)(?=,\w+=|$)", re.DOTALL)

# A key as an argument: of `wandb login`, and of options such as --token and --password.
PASSED = re.compile(
    r"(?P<what>\bwandb\s+login\b(?=\s)(?:\s+--?(?:host|base-url)[\s=]\S+|\s+--?[\w-]+)*"
    r"|(?<![\w-])--(?:[\w-]+-)?(?:token|password|passphrase|secret|api-key))"
    r"(?:\s+|=)(?P<value>'[^']*'|\"[^\"]*\"|[^\s;&|'\"-][^\s;&|]*)"
)

# Values that are never secret: those that the shell fills in, and numbers of up to seven digits.
FILLED_IN = re.compile(r"\"?[$`].*|\d{1,7}", re.DOTALL)

# A password in an address: between a colon and the @, with or without a user before the colon. This
# comment has no example, because snapshots of the code, which contain it, are searched for secrets.
WITH_PASSWORD = re.compile(
    r"[a-zA-Z][a-zA-Z0-9+.-]*://[^\s/:@'\"{}$]*:(?!/)(?P<password>[^\s/@'\"{}$]+)@"
)

# A value that is one address: its password may have unquoted characters of an address.
WHOLE_WITH_PASSWORD = re.compile(
    r"[a-zA-Z][a-zA-Z0-9+.-]*://[^\s/:@]*:(?!//)(?!\d+(/|$))(?P<password>[^\s'\"{}$]+)@[^\s@]*"
)

# Formats of keys, by their issuers' prefixes.
SHAPES = {
    "a W&B key": re.compile(
        r"(?i)((?<=api_key)|(?<=wandb_key)|(?<=\bpassword))\W{1,8}(local-)?[0-9a-f]{40}\b"
        r"|\bwandb_v\d_\w{20,}"
        r"|(?<=wandb\.login\()[^\n]{0,200}?\b[0-9a-f]{40}\b"
        r"|(?<=wandb login)\b[^\n;&|]{1,200}?\b[0-9a-f]{40}\b"
        r"|\b[0-9a-f]{40}\b(?=\W{1,5}wandb login)"
    ),
    "an OpenAI or Anthropic key": re.compile(r"\bsk-[A-Za-z0-9_-]{20,}"),
    "a Hugging Face token": re.compile(r"\b(hf|api_org)_[A-Za-z0-9]{30,}"),
    "a key of another model provider": re.compile(
        r"\b(gsk_[A-Za-z0-9]{20,}|xai-[A-Za-z0-9]{20,}|pplx-[A-Za-z0-9]{20,}|r8_[A-Za-z0-9]{20,}"
        r"|nvapi-[\w-]{20,}|dapi[0-9a-f]{32})"
    ),
    "a GitHub token": re.compile(r"\b(gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,})"),
    "a GitLab token": re.compile(r"\bgl[a-z]{2,6}-[\w.=-]{20,}"),
    "a Google key": re.compile(r"\bAIza[\w-]{35}|\bya29\.[\w-]{20,}"),
    "an AWS key": re.compile(r"\b(AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}\b"),
    "an AWS secret": re.compile(
        r"(?i)(?<=aws_secret_access_key)\W{1,4}[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+])"
    ),
    "an Azure key": re.compile(r"(?<=AccountKey=)[A-Za-z0-9+/]{86}=="),
    "a Slack token": re.compile(r"\bxox[a-z](-[A-Za-z0-9]{2,}){2,}|\bxapp-[\w-]{20,}"),
    "a chat webhook": re.compile(
        r"https://(hooks\.slack\.com/services|([a-z]+\.)?discord(app)?\.com/api/webhooks)/[\w/-]+"
    ),
    "a Discord token": re.compile(r"\b[MNO][\w-]{23,25}\.[\w-]{6}\.[\w-]{27,}"),
    "a Telegram token": re.compile(r"\b\d{8,10}:AA[\w-]{33}\b"),
    "an npm token": re.compile(r"\bnpm_[A-Za-z0-9]{30,}|(?<=:_authToken=)[\w./+=-]{8,}"),
    "a PyPI token": re.compile(r"\bpypi-[\w-]{40,}"),
    "a Docker token": re.compile(r"\bdckr_(pat|oat)_[\w-]{20,}"),
    "a Stripe key": re.compile(r"\b[prs]k_(live|test)_[A-Za-z0-9]{10,}|\bwhsec_[A-Za-z0-9+/]{20,}"),
    "a SendGrid key": re.compile(r"\bSG\.[\w-]{16,}\.[\w-]{16,}"),
    "a Twilio key": re.compile(r"\b(SK|AC)[0-9a-f]{32}\b"),
    "a Mailchimp key": re.compile(r"\b[0-9a-f]{32}-us\d{1,2}\b"),
    "a Square token": re.compile(r"\bsq0[a-z]{3}-[\w-]{20,}"),
    "a Shopify token": re.compile(r"\bshp(at|ca|pa|ss)_[0-9a-fA-F]{32}\b"),
    "a DigitalOcean token": re.compile(r"\bdo[opr]_v1_[0-9a-f]{64}\b"),
    "a Grafana token": re.compile(r"\bgl(sa|c)_[\w=+/-]{20,}"),
    "a Vault token": re.compile(r"\bhv[sbr]\.[\w-]{20,}"),
    "a JSON web token": re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"),
    "a bearer token": re.compile(r"(?i)(?<=\bbearer )[\w.~+/=-]{16,}"),
    "a basic authorization": re.compile(r"(?i)(?<=authorization: basic )[A-Za-z0-9+/=]{8,}"),
    "a password in an address": WITH_PASSWORD,
    "a key in an address": re.compile(
        r"(?i)((?<=[?&]api_key=)|(?<=[?&]api-key=)|(?<=[?&]apikey=)|(?<=[?&]access_token=))"
        r"[\w.~+/%-]{8,}"
    ),
    # In a diff, each line begins with + or -. If the end of the key was cut off, everything up to
    # the end of the text is redacted.
    "a private key": re.compile(
        r"-----BEGIN [A-Z ]*PRIVATE KEY( BLOCK)?-----.*?"
        r"(-----END [A-Z ]*PRIVATE KEY( BLOCK)?-----|\Z)",
        re.DOTALL,
    ),
}

# Default passwords of servers: no secrets, and words of many files.
DEFAULT_PASSWORDS = frozenset(
    {"postgres", "password", "passw0rd", "changeme", "changeit", "rabbitmq", "12345678"}
)

# Words and numbers that a variable with the name of a secret may have (DB_PASSWORD=postgres,
# MAX_TOKENS=10000000), and that many other values contain.
COMMON = re.compile(
    r"(?=.{,15}$)"
    r"((?:[A-Z]?[a-z]+|[A-Z]+)(?:[-_. ](?:[A-Z]?[a-z]+|[A-Z]+))*\d{,2}|\d+)"
)


@dataclass(frozen=True)
class Leak:
    """A secret in a text: its line and its kind, never its value."""

    line: int
    what: str


def leaks(
    text: str, environment: Mapping[str, str] = os.environ, names: Collection[str] = ()
) -> list[Leak]:
    """Find secrets in a text: values of secret environment variables, and known formats of keys.

    Args:
        text: Any text.
        environment: The environment variables.
        names: Variables that are secret although their names do not show it, such as
            ``model.key_variable``.
    """
    found = []
    for what, match in _matches(text, environment, names):
        found.append(Leak(text.count("\n", 0, match.start()) + 1, what))
    return found


def redact(
    text: str, environment: Mapping[str, str] = os.environ, names: Collection[str] = ()
) -> str:
    """The text with every secret replaced; arguments as in ``leaks``."""
    # Longer secrets first: if a part of one is itself a secret, replacing it first would leave the
    # rest of the longer one.
    secrets = {match.group() for _, match in _matches(text, environment, names)}
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, REDACTED)
    return text


def redact_texts(data: Any) -> Any:
    """Nested lists and mappings with every secret in their texts replaced."""
    if isinstance(data, dict):
        return {key: redact_texts(value) for key, value in data.items()}
    if isinstance(data, list):
        return [redact_texts(value) for value in data]
    return redact(data) if isinstance(data, str) else data


def secrets_in(
    value: str, environment: Mapping[str, str] = os.environ
) -> Iterator[tuple[str, str]]:
    """Yield the secrets of the environment that a value is or contains, each after whose it is.

    They are the values of secret variables and the passwords of addresses in any variable. Common
    words and numbers, and paths that exist, are found as the whole value only.
    """
    if len(value) < SHORTEST:
        return
    for whose, secret in _secrets(environment):
        contained = any(form in value for form in _cached_forms(secret))
        if secret == value or (contained and not _is_common(secret)):
            yield whose, secret


def _secrets(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each secret of the environment after whose it is, e.g. ``that of $WANDB_API_KEY``."""
    for name, value in environment.items():
        if is_secret(name, value):
            yield f"that of ${name}", value.strip()
        for password in _passwords_of(name, value):
            yield f"the password of the address in ${name}", password


def is_secret(name: str, value: str, names: Collection[str] = ()) -> bool:
    """True for a variable whose value is a secret, by its name; ``names`` as in ``leaks``."""
    if name in ADDRESS_OR_COMMAND:
        return "://" in value
    return name in names or bool(SECRET_NAME.search(name.upper()))


def passwords(value: str) -> list[str]:
    """Passwords of the addresses in a value, each as it is written and without URL encoding.

    In a password, the characters ``# ? / @`` should be quoted. If they are not, a library may take
    the address to end there, and quote the part before them in its error ("Invalid port: ..."). So
    this part is one of the passwords, too, unless it is a common word.
    """
    # The pattern is slow on long values such as lists of colors.
    if "://" not in value:
        return []
    written = [match["password"] for match in WITH_PASSWORD.finditer(value)]
    if whole := WHOLE_WITH_PASSWORD.fullmatch(value.strip()):
        written.append(whole["password"])
    found = []
    for password in written:
        found += [password, unquote(password)]
        part = re.split("[#?/@]", password)[0]
        if len(part) >= SHORTEST and not _is_common(part):
            found.append(part)
    return list(dict.fromkeys(found))


def _passwords_of(name: str, value: str) -> list[str]:
    """Passwords in the value of a variable; the address of a proxy needs no scheme."""
    if name.upper().endswith("_PROXY") and "://" not in value:
        value = f"http://{value}"
    return passwords(value)


def _is_common(secret: str) -> bool:
    """True for common words and numbers, and for paths that exist, which many texts contain."""
    return bool(COMMON.fullmatch(secret)) or os.path.exists(secret)


def assigned(
    text: str, names: Collection[str] = (), form: re.Pattern[str] = ASSIGNED
) -> dict[str, str]:
    """Values that a text gives to variables with the names of secrets, by name.

    Args:
        text: A line of shell or, with ``form=LISTED``, a list of variables.
        names: As in ``leaks``.
        form: Pattern of an assignment.
    """
    values = {}
    for match in form.finditer(text):
        name, value = match["name"], match["value"]
        if not is_secret(name, value, names):
            continue
        if not FILLED_IN.fullmatch(value):
            values[name] = value
    return values


def passed(text: str) -> dict[str, str]:
    """Keys and passwords that a line of shell passes as arguments, by the words before each."""
    found = {}
    for match in PASSED.finditer(text):
        if not FILLED_IN.fullmatch(match["value"]):
            # Without the options in between, one of which may name a host.
            what = " ".join(match["what"].split()[:2])
            found[f"the argument of {what}"] = match["value"]
    return found


def _matches(
    text: str, environment: Mapping[str, str], names: Collection[str]
) -> Iterator[tuple[str, re.Match[str]]]:
    for name, value in environment.items():
        # The address of a database may hold a password, although the variable's name is not secret.
        if is_secret(name, value, names) or WITH_PASSWORD.search(value):
            for form in forms(value):
                for match in re.finditer(re.escape(form), text):
                    yield f"the value of ${name}", match
        # The URL encoding of a password is a form of both of its spellings.
        spellings: set[str] = set()
        for password in _passwords_of(name, value):
            if password not in DEFAULT_PASSWORDS and not os.path.exists(password):
                spellings |= forms(password)
        for form in spellings:
            for match in re.finditer(re.escape(form), text):
                yield f"the password of the address in ${name}", match
    for what, shape in SHAPES.items():
        for match in shape.finditer(text):
            yield what, match


def forms(value: str) -> set[str]:
    """Spellings of a secret in a text: plain lines, and in JSON, URL, base64 and hex encoding."""
    written = set()
    # Line by line, because a key of several lines may appear with another indentation.
    for line in value.splitlines():
        secret = line.strip()
        if len(secret) < SHORTEST:
            continue
        data = secret.encode(errors="surrogateescape")
        written |= {secret, json.dumps(secret)[1:-1], quote(data, safe="")}
        written |= {data.hex(), data.hex().upper()}
        for encoded in _base64_forms(data):
            written |= {encoded, encoded.replace("+", "-").replace("/", "_")}
    return {form for form in written if len(form) >= SHORTEST}


@functools.lru_cache(maxsize=64)
def _cached_forms(value: str) -> frozenset[str]:
    """``forms``, which takes long if the values of hundreds of runs are searched."""
    return frozenset(forms(value))


def _base64_forms(data: bytes) -> list[str]:
    """The three base64 forms of ``data`` within longer data, which may shift it by 0 to 2 bytes.

    Characters that also encode neighbouring bytes are left out.
    """
    encodings = []
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + data).decode()
        # A character encodes 6 bits. The start is rounded up and the end down, so that only
        # characters remain that encode nothing but the secret.
        first = math.ceil(before * 8 / 6)
        last = (before + len(data)) * 8 // 6
        encodings.append(encoded[first:last])
    return encodings
