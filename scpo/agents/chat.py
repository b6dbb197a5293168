"""Client of OpenAI-compatible chat completions: one prompt in, one answer with token counts out.

httpx and tenacity are used instead of the official client, which does not retry unreadable answers.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx
import tenacity
from pydantic import BaseModel, NonNegativeInt, ValidationError

from scpo.errors import ChatError, ConfigError
from scpo.records import redaction
from scpo.schema.model import ApiModel, Prices
from scpo.schema.run import ApiLimits

logger = logging.getLogger(__name__)

# httpx logs a line for every request.
logging.getLogger("httpx").setLevel(logging.WARNING)

Answer = TypeVar("Answer")

# Seconds between checks whether the wait was abandoned.
_LOOK_S = 0.1

# Characters; shorter keys are placeholders such as EMPTY, which may occur in normal text.
_SHORTEST_SECRET = 12

# Characters of an answer that an error repeats.
_QUOTED = 300

# Largest answer in bytes, about a hundred times the longest that models give.
_LONGEST = 16 << 20

# The other headers describe the body as it was sent (its length and compression), and httpx has
# decoded it when the response is built anew.
_KEPT_HEADERS = ("content-type", "retry-after")

# Statuses, besides 5xx, after which the same request may succeed later.
_LATER = frozenset({408, 409, 425, 429})


class AbandonedError(Exception):
    """The caller no longer waits for the answer."""


def within(
    seconds: float, act: Callable[[threading.Event], Answer], closed: threading.Event
) -> Answer:
    """Result of ``act(over)``, which runs in a thread of its own.

    httpx limits only each read, so an endpoint that sends single bytes would never time out. When
    the wait ends, ``over`` is set; a thread that still runs does not keep the process alive.

    Args:
        seconds: Time limit of the whole call.
        act: Blocking call; it should end soon after its event is set.
        closed: Set from another thread to abandon the wait.

    Raises:
        TimeoutError: The call took longer.
        AbandonedError: ``closed`` was set before the call ended.
    """
    answer: Future[Answer] = Future()
    over = threading.Event()

    def work() -> None:
        try:
            answer.set_result(act(over))
        except BaseException as error:  # noqa: BLE001 (raised again where it is waited for)
            answer.set_exception(error)

    # A daemon thread, so that an answer that never ends does not keep the process alive. Threads of
    # a pool would, because Python joins them at exit.
    threading.Thread(target=work, name="request", daemon=True).start()
    end = time.monotonic() + seconds
    try:
        # In short waits, because no single call waits for both the answer and `closed`.
        while not closed.is_set() and (left := end - time.monotonic()) > 0:
            if wait([answer], min(left, _LOOK_S)).done:
                return answer.result()
    finally:
        over.set()

    if closed.is_set():
        raise AbandonedError
    raise TimeoutError


@dataclass(frozen=True)
class Completion:
    """One answer.

    Attributes:
        text: The visible response; empty if the model only thought, or declined.
        prompt_tokens: Tokens that the endpoint counted in the prompt.
        response_tokens: Tokens that it counted in the response, with hidden thinking, which is
            billed.
    """

    text: str
    prompt_tokens: int
    response_tokens: int

    def cost_usd(self, prices: Prices) -> float:
        """Cost at these prices."""
        prompt = self.prompt_tokens * prices.input_usd
        response = self.response_tokens * prices.output_usd
        # Prices are per million tokens.
        return (prompt + response) / 1e6


class _Message(BaseModel):
    """``content`` is null if the model stopped before it wrote anything."""

    content: str | None = None


class _Choice(BaseModel):
    message: _Message


class _Usage(BaseModel):
    """Token counts; without them a response is unreadable, since costs could not be recorded."""

    prompt_tokens: NonNegativeInt
    completion_tokens: NonNegativeInt
    total_tokens: NonNegativeInt = 0

    @property
    def response_tokens(self) -> int:
        """Response tokens with hidden thinking.

        Some endpoints (Google's) count hidden thinking only in the total, and bill it.
        """
        return max(self.completion_tokens, self.total_tokens - self.prompt_tokens)


class _Answer(BaseModel):
    """The fields of a chat completion that are read.

    https://platform.openai.com/docs/api-reference/chat
    """

    choices: tuple[_Choice, ...]
    usage: _Usage


class _TryAgain(ChatError):
    """A failure that may pass; ``after_s``: how long the endpoint asked to wait, if it did."""

    def __init__(self, message: str, after_s: float | None = None) -> None:
        super().__init__(message)
        self.after_s = after_s


class _RateLimit:
    """Limits requests to ``per_minute``, evenly spaced, in order of arrival.

    Evenly spaced requests also satisfy a limit that the endpoint counts over a shorter time.
    Retries wait for their turn like first attempts.
    """

    def __init__(self, per_minute: float, closed: threading.Event) -> None:
        self.interval_s = 60.0 / per_minute
        self._closed = closed
        self._lock = threading.Lock()
        self._next = time.monotonic()

    def wait(self) -> None:
        """Block until the next request may be sent or the client is closed."""
        with self._lock:
            now = time.monotonic()
            # Time in which nothing was sent is not saved up for later requests.
            turn = max(now, self._next)
            self._next = turn + self.interval_s
        # Outside of the lock, so that other threads can take their turns.
        self._closed.wait(turn - now)


class ChatClient:
    """Client of one model. Threads may share it; its key appears in no message, record or log.

    Args:
        model: The model and its endpoint.
        limits: Request rate, time-outs and attempts.
        environment: Variables in which the key is looked up; None: those of the process.

    Raises:
        ConfigError: The key is missing or cannot be sent.
    """

    def __init__(
        self, model: ApiModel, limits: ApiLimits, environment: Mapping[str, str] | None = None
    ) -> None:
        self.model = model
        self.limits = limits
        self._key = _read_key(model, os.environ if environment is None else environment)
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        try:
            self._http = httpx.Client(headers=headers, timeout=limits.timeout_s)
        except (httpx.InvalidURL, ValueError) as error:
            # The text of the error may quote a part of the address, which may hold a password.
            raise ConfigError(
                "an address in HTTPS_PROXY, HTTP_PROXY, ALL_PROXY or NO_PROXY cannot be read "
                f"({type(error).__name__}). That of a proxy begins with http://, and in its user "
                "and password the characters # / ? @ and : are written %23 %2F %3F %40 and %3A"
            ) from None
        self._closed = threading.Event()
        self._rate_limit = _RateLimit(limits.requests_per_minute, self._closed)

    def close(self) -> None:
        """Close the connections; running requests end at once, with ChatError."""
        self._closed.set()
        self._http.close()

    def complete(
        self, prompt: str, *, temperature: float, max_tokens: int, seed: int
    ) -> Completion:
        """One answer to one user message.

        Args:
            prompt: The whole prompt; there is no system message and no earlier turn, as with
                trained policies.
            temperature: Sampling temperature.
            max_tokens: Limit of the visible response.
            seed: Sent if the endpoint accepts one; even then answers need not be repeatable.

        Raises:
            ChatError: The endpoint refused the request, or every attempt failed.
        """
        body: dict[str, Any] = {
            "model": self.model.model,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": temperature,
            # Hidden reasoning counts against the endpoint's limit.
            "max_tokens": max_tokens + self.model.reasoning_tokens,
        }
        if self.model.send_seed:
            # Some endpoints reject the field.
            body["seed"] = seed
        try:
            return self._retrying()(self._request, body)
        except (AbandonedError, _TryAgain) as error:
            # `close` also ends requests with the error of a broken connection.
            if self._closed.is_set():
                raise ChatError(
                    f"the request to {self._where()} was given up: the run is ending"
                ) from None
            raise ChatError(
                f"{error}; gave up after {self.limits.attempts} attempts (machine.api.attempts). "
                "Finished episodes are kept: start the same command again to go on"
            ) from None

    def _retrying(self) -> tenacity.Retrying:
        """Policy of retries: only failures that may pass; ``close`` ends a sleep at once."""
        return tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(_TryAgain),
            stop=tenacity.stop_after_attempt(self.limits.attempts)
            | tenacity.stop_when_event_set(self._closed),
            sleep=tenacity.sleep_using_event(self._closed),
            wait=self._wait,
            before_sleep=self._log_retry,
            reraise=True,
        )

    def _wait(self, state: tenacity.RetryCallState) -> float:
        """Seconds before the next attempt: what the endpoint asked for, or exponential backoff.

        The backoff is random, so that threads that failed together do not retry together.
        """
        error = state.outcome.exception() if state.outcome else None
        asked = error.after_s if isinstance(error, _TryAgain) else None
        if asked is not None:
            return min(asked, self.limits.longest_wait_s)
        backoff = tenacity.wait_random_exponential(
            self.limits.backoff_s, max=self.limits.longest_wait_s
        )
        return backoff(state)

    def _log_retry(self, state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        logger.warning(
            "%s; attempt %d of %d failed", error, state.attempt_number, self.limits.attempts
        )

    def _request(self, body: Mapping[str, Any]) -> Completion:
        """One attempt.

        Raises:
            _TryAgain: It failed in a way that may pass.
            ChatError: It failed in a way that would repeat.
            AbandonedError: The client was closed.
        """
        self._rate_limit.wait()
        limit_s = self.limits.timeout_s
        try:
            response = within(limit_s, lambda over: self._send(body, over), self._closed)
        except TimeoutError:
            raise _TryAgain(
                f"{self._where()} did not finish its answer within {limit_s:g} s "
                "(machine.api.timeout_s)"
            ) from None
        except (httpx.HTTPError, httpx.StreamError) as error:
            # Not chained, because the error's request holds the key.
            raise _TryAgain(
                f"{self._where()} did not answer: {type(error).__name__}: {self._safe(str(error))}"
            ) from None

        # The key is removed first, so that no message below can hold it.
        text = self._safe(_plain(response.text))
        if response.is_success:
            return self._read(text)
        message = f"{self._where()} answered {response.status_code}: {_quote(text)}"
        if response.status_code in _LATER or response.is_server_error:
            raise _TryAgain(message, _retry_after(response.headers.get("Retry-After")))
        raise ChatError(f"{message}. {self._remedy(response.status_code)}")

    def _send(self, body: Mapping[str, Any], over: threading.Event) -> httpx.Response:
        """Send a request and read the response, up to a size limit."""
        with self._http.stream(
            "POST", f"{self.model.base_url}/chat/completions", json=body
        ) as response:
            content = bytearray()
            for part in response.iter_bytes():
                content += part
                if over.is_set():
                    raise AbandonedError
                # Counted while it arrives: Content-Length may be missing or wrong.
                if len(content) > _LONGEST:
                    raise _TryAgain(
                        f"{self._where()} sent more than {_LONGEST >> 20} MB, which cannot be a "
                        "chat completion"
                    )

        headers = {}
        for name, value in response.headers.items():
            if name.lower() in _KEPT_HEADERS:
                headers[name] = value
        return httpx.Response(response.status_code, headers=headers, content=bytes(content))

    def _read(self, text: str) -> Completion:
        """Completion in the text of a successful response.

        Raises:
            _TryAgain: The text is not a completion.
        """
        try:
            answer = _Answer.model_validate_json(text)
            message = answer.choices[0].message
        except (ValidationError, IndexError):
            raise _TryAgain(
                f"{self._where()} sent something other than a chat completion: {_quote(text)}"
            ) from None
        return Completion(
            self._safe(message.content or ""),
            answer.usage.prompt_tokens,
            answer.usage.response_tokens,
        )

    def _where(self) -> str:
        return f"{self.model.model} at {self.model.base_url}"

    def _remedy(self, status: int) -> str:
        """Advice after a refusal that would repeat."""
        if status in (401, 403) and self.model.key_variable is None:
            return "If it needs a key, name its environment variable in model.key_variable"
        if status in (401, 403):
            return f"Check the key in the environment variable {self.model.key_variable}"
        if status == 404:
            return "Check model.base_url and model.model"
        return "It would be refused again; check conf/model and the endpoint's manual"

    def _safe(self, text: str) -> str:
        """A text without the key, which some endpoints repeat in their answers."""
        if not self._key or len(self._key) < _SHORTEST_SECRET:
            return text
        # The longest form first, because replacing a form inside a longer one would leave the rest.
        for form in sorted(redaction.forms(self._key), key=len, reverse=True):
            text = text.replace(form, "[key]")
        return text


def _read_key(model: ApiModel, environment: Mapping[str, str]) -> str | None:
    """The endpoint's key; None for an endpoint without keys.

    Raises:
        ConfigError: The variable is not set, or its value cannot be sent as a header. The message
            does not quote the value.
    """
    if model.key_variable is None:
        return None
    key = environment.get(model.key_variable, "").strip()
    if not key:
        raise ConfigError(
            f"model={model.name} needs a key for {model.base_url}: set the environment variable "
            f"{model.key_variable}, or model.key_variable=null for an endpoint that wants none"
        )
    if not key.isascii() or not key.isprintable():
        raise ConfigError(
            f"the environment variable {model.key_variable} holds something that cannot be a key"
        )
    return key


def _retry_after(value: str | None) -> float | None:
    """Seconds to wait by the header; None without it, or if it gives a date."""
    try:
        return max(0.0, float(value)) if value is not None else None
    except ValueError:
        return None


def _plain(text: str) -> str:
    """JSON with escaped letters replaced by the letters themselves; other texts unchanged.

    A key that the endpoint repeats with escaped letters is found only then.
    """
    try:
        return json.dumps(json.loads(text), ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def _quote(text: str) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= _QUOTED else line[:_QUOTED] + "...")
