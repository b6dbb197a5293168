"""A chat completions endpoint on the loopback interface, with faults on demand."""

import json
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from scpo.schema.model import ApiModel, Prices
from scpo.schema.run import ApiLimits

ACTION = "<think>Nothing to lose.</think><action>look</action>"
KEY = "sk-planted-secret-0123456789"


@dataclass
class Reply:
    """What the server sends: a completion of ``text``, or ``body`` as it is."""

    text: str = ACTION
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: str | None = None
    delay_s: float = 0.0
    drip_s: float | None = None  # between one byte of the answer and the next


@dataclass
class ChatServer:
    """``answer(prompt, number)`` decides what request ``number`` (from 0) gets; ``requests`` and ``keys`` came in."""

    answer: Callable[[str, int], Reply] = lambda _prompt, _number: Reply()
    url: str = ""
    requests: list[dict] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def prompts(self) -> list[str]:
        return [request["messages"][0]["content"] for request in self.requests]


@contextmanager
def serving(answer=None):
    """A ChatServer while the block lasts."""
    state = ChatServer(*([answer] if answer else []))
    http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(state))
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{http.server_port}/v1"
    try:
        yield state
    finally:
        http.shutdown()
        http.server_close()


def _handler(state):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with state.lock:
                number = len(state.requests)
                state.requests.append(request)
                state.keys.append(self.headers["Authorization"])
            reply = state.answer(request["messages"][0]["content"], number)
            time.sleep(reply.delay_s)
            data = (completion(reply.text) if reply.body is None else reply.body).encode()
            self.send_response(reply.status)
            for name, value in {"Content-Type": "application/json", **reply.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            for byte in data if reply.drip_s is not None else ():
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                time.sleep(reply.drip_s)
            if reply.drip_s is None:
                self.wfile.write(data)

        def log_message(self, *_):
            pass

        def handle(self):
            with suppress(ConnectionError):  # a client that timed out is gone
                super().handle()

    return Handler


def completion(text, *, finish="stop", prompt_tokens=100, completion_tokens=10, **usage) -> str:
    """The body of a chat completion."""
    message = {"role": "assistant", "content": text}
    counts = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens, **usage}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return json.dumps({"id": "x", "object": "chat.completion", "choices": [choice], "usage": counts})


def api_model(url, **changes) -> ApiModel:
    values = dict(
        kind="api", name="loopback", model="loopback-1", base_url=url, key_variable="LOOPBACK_KEY", reasoning_tokens=0,
        send_seed=True, prices=Prices(input_usd=2.0, output_usd=10.0),
    )  # fmt: skip
    return ApiModel(**(values | changes))


def limits(**changes) -> ApiLimits:
    values = dict(
        requests_per_minute=60000.0, concurrency=4, timeout_s=5.0, attempts=3, backoff_s=0.01, longest_wait_s=0.05
    )
    return ApiLimits(**(values | changes))
