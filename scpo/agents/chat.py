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

Answer = TypeVar("Answer")

# Seconds between checks whether the wait was abandoned.
_LOOK_S = 0.1


class AbandonedError(Exception):
    """The caller no longer waits for the answer."""


def within(
    seconds: float, act: Callable[[threading.Event], Answer], closed: threading.Event
) -> Answer:
    """Result of ``act(over)``, which runs in a thread of its own.

    httpx limits each read only, so an endpoint that sends a byte now and then would never time out.
    After a time-out the thread is left running; ``over`` is set, and it does not keep the process
    alive.

    Args:
        seconds: Limit of the whole call.
        act: Blocking call; it should end soon after its event is set.
        closed: Set from another thread to abandon the wait.

    Raises:
        TimeoutError: It took longer.
        AbandonedError: ``closed`` was set meanwhile.
    """
    answer: Future[Answer] = Future()
    over = threading.Event()

    def work() -> None:
        try:
            answer.set_result(act(over))
        except BaseException as error:  # noqa: BLE001 (raised again where it is waited for)
            answer.set_exception(error)

    # A daemon, so that an endpoint which never ends does not keep the process alive. A thread pool
    # would: Python joins its threads at exit.
    threading.Thread(target=work, name="request", daemon=True).start()
    end = time.monotonic() + seconds
    try:
        # In short waits, because no single call waits for two things, answer and `closed`.
        while not closed.is_set() and (left := end - time.monotonic()) > 0:
            if wait([answer], min(left, _LOOK_S)).done:
                return answer.result()
    finally:
        over.set()

    if closed.is_set():
        raise AbandonedError
    raise TimeoutError


# It logs a line for every request.
logging.getLogger("httpx").setLevel(logging.WARNING)

# Characters; shorter keys are placeholders such as EMPTY, which may occur in normal text.
_SHORTEST_SECRET = 12

# Characters of an answer that an error repeats.
_QUOTED = 300

# Bytes of an answer; the longest that models give are a hundredth of that.
_LONGEST = 16 << 20

# The others are dropped: they describe the body as it was sent (its length and compression), while
# httpx has decoded it by the time a response is made of it again.
_KEPT_HEADERS = ("content-type", "retry-after")

# And 5xx: the same request may succeed later.
_LATER = frozenset({408, 409, 425, 429})


@dataclass(frozen=True)
class Completion:
    """One answer.

    Attributes:
        text: What the model wrote; empty if it only thought, or declined.
        prompt_tokens: Tokens that the endpoint counted in the prompt.
        response_tokens: The same of the response, hidden thinking included, since it is billed.
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
    """``content`` is null where the model stopped before it wrote anything."""

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

        Some endpoints (Google's) count and bill it in the total only.
        """
        return max(self.completion_tokens, self.total_tokens - self.prompt_tokens)


class _Answer(BaseModel):
    """Fields that are read of a chat completion.

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

    Evenly spaced requests keep a limit that the endpoint counts over a shorter time, too. Retries
    take their turn like first attempts.
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
        # Outside of the lock: others may take their turns meanwhile.
        self._closed.wait(turn - now)


class ChatClient:
    """Client of one model. Threads may share it; its key appears in no message, record or log.

    Args:
        model: Which model, where.
        limits: Rate, time-outs and attempts.
        environment: Where the key is looked up; None: the process's environment variables.

    Raises:
        ConfigError: The key is not there.
    """

    def __init__(
        self, model: ApiModel, limits: ApiLimits, environment: Mapping[str, str] | None = None
    ) -> None:
        self.model = model
        self.limits = limits
        self._key = _read_key(model, os.environ if environment is None else environment)
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        self._http = httpx.Client(headers=headers, timeout=limits.timeout_s)
        self._closed = threading.Event()
        self._rate_limit = _RateLimit(limits.requests_per_minute, self._closed)

    def close(self) -> None:
        """Close the connections; requests that are under way end at once, with ChatError."""
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
            max_tokens: Of the visible response.
            seed: Sent where the endpoint takes one; it makes answers repeatable at best.

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
            # To a request a closed connection may look like a broken one.
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

        The backoff is random, so that threads that failed together do not come back together.
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
            ChatError: It would fail again.
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
            # The error's request holds the key, so that it is neither chained nor quoted whole.
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
                        f"{self._where()} sent more than {_LONGEST >> 20} MB, which is no chat "
                        "completion"
                    )

        headers = {}
        for name, value in response.headers.items():
            if name.lower() in _KEPT_HEADERS:
                headers[name] = value
        return httpx.Response(response.status_code, headers=headers, content=bytes(content))

    def _read(self, text: str) -> Completion:
        """Completion in the text of a successful response.

        Raises:
            _TryAgain: It holds none.
        """
        try:
            answer = _Answer.model_validate_json(text)
            message = answer.choices[0].message
        except (ValidationError, IndexError):
            raise _TryAgain(
                f"{self._where()} sent what is no chat completion: {_quote(text)}"
            ) from None
        return Completion(
            self._safe(message.content or ""),
            answer.usage.prompt_tokens,
            answer.usage.response_tokens,
        )

    def _where(self) -> str:
        return f"{self.model.model} at {self.model.base_url}"

    def _remedy(self, status: int) -> str:
        """Advice after a refusal that would come again."""
        if status in (401, 403):
            return f"Check the key in the environment variable {self.model.key_variable}"
        if status == 404:
            return "Check model.base_url and model.model"
        return "It would be refused again; check conf/model and the endpoint's manual"

    def _safe(self, text: str) -> str:
        """A text without the key: endpoints have been seen to repeat it in what they answer."""
        if not self._key or len(self._key) < _SHORTEST_SECRET:
            return text
        # The longest form first: a form that is part of another would leave the rest of that.
        for form in sorted(redaction.forms(self._key), key=len, reverse=True):
            text = text.replace(form, "[key]")
        return text


def _read_key(model: ApiModel, environment: Mapping[str, str]) -> str | None:
    """The endpoint's key; None for an endpoint that wants none.

    Raises:
        ConfigError: The variable is not set, or holds what cannot be sent as a header. The message
            does not quote it.
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
            f"the environment variable {model.key_variable} holds something that can be no key"
        )
    return key


def _retry_after(value: str | None) -> float | None:
    """Seconds, as most endpoints give it; a date is left to the backoff."""
    try:
        return max(0.0, float(value)) if value is not None else None
    except ValueError:
        return None


def _plain(text: str) -> str:
    """JSON without escapes.

    A key that is echoed with some of its letters escaped is found, too.
    """
    try:
        return json.dumps(json.loads(text), ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def _quote(text: str) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= _QUOTED else line[:_QUOTED] + "...")
