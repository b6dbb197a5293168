import base64
import logging
import threading
import time
import traceback

import pytest
from pydantic import ValidationError

from scpo.agents.chat import ChatClient, Completion
from scpo.errors import ChatError, ConfigError
from scpo.schema.model import Prices
from tests.support.chat_server import KEY, Reply, api_model, completion, limits, serving


def in_turn(*replies):
    """The replies one after the other, then good ones."""
    return lambda _prompt, number: replies[number] if number < len(replies) else Reply("fine")


def ask(server, prompt="hello", model=None, **changes):
    client = ChatClient(model or api_model(server.url), limits(**changes), {"LOOPBACK_KEY": KEY})
    try:
        return client.complete(prompt, temperature=0.4, max_tokens=32, seed=7)
    finally:
        client.close()


def test_a_request_has_prompt_settings_and_key():
    with serving() as server:
        answer = ask(server, "what now?")
    assert server.requests == [
        {
            "model": "loopback-1", "messages": [{"role": "user", "content": "what now?"}], "temperature": 0.4,
            "max_tokens": 32, "seed": 7,
        }
    ]  # fmt: skip
    assert server.keys == [f"Bearer {KEY}"]
    assert (answer.prompt_tokens, answer.response_tokens) == (100, 10)


def test_cost_is_tokens_times_prices():
    assert Completion("", 1000, 200).cost_usd(Prices(input_usd=2.5, output_usd=10.0)) == pytest.approx(0.0045)


def test_hidden_thinking_has_room_and_is_counted():
    body = completion("x", prompt_tokens=100, completion_tokens=10, total_tokens=410)
    with serving(in_turn(Reply(body=body))) as server:
        answer = ask(server, model=api_model(server.url, reasoning_tokens=500, send_seed=False))
    assert server.requests[0]["max_tokens"] == 532
    assert "seed" not in server.requests[0]
    assert answer.response_tokens == 310


def test_an_endpoint_without_a_key_gets_none():
    with serving() as server:
        ask(server, model=api_model(server.url, key_variable=None))
    assert server.keys == [None]


PASSING = {
    "429": Reply(status=429, headers={"Retry-After": "0"}, body="slow down"),
    "500": Reply(status=500, body="oops"),
    "time-out": Reply(delay_s=0.5),
    "no JSON": Reply(body='{"choices": [{"mess'),
    "no choices": Reply(body='{"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}'),
    "no usage": Reply(body='{"choices": [{"message": {"content": "x"}}]}'),
    "a web page": Reply(body="<html>login</html>", headers={"Content-Type": "text/html"}),
}


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
def test_a_fault_that_passes_is_tried_again(fault):
    with serving(in_turn(fault, fault)) as server:
        assert ask(server, timeout_s=0.1).text == "fine"
    assert len(server.requests) == 3


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
def test_a_lasting_fault_is_an_error_with_the_endpoint_and_a_remedy(fault):
    with serving(lambda *_: fault) as server, pytest.raises(ChatError) as caught:
        ask(server, timeout_s=0.1, attempts=2)
    assert len(server.requests) == 2
    assert f"loopback-1 at {server.url}" in str(caught.value)
    assert "gave up after 2 attempts (machine.api.attempts)" in str(caught.value)


def test_a_wait_that_the_endpoint_asks_for_is_kept():
    with serving(in_turn(Reply(status=429, headers={"Retry-After": "0.3"}))) as server:
        started = time.monotonic()
        ask(server, longest_wait_s=5.0)
        assert 0.3 <= time.monotonic() - started < 3


def test_a_wait_has_an_upper_bound():
    with serving(in_turn(Reply(status=503, headers={"Retry-After": "3600"}))) as server:
        started = time.monotonic()
        ask(server, longest_wait_s=0.05)
        assert time.monotonic() - started < 3


REFUSALS = {401: "environment variable LOOPBACK_KEY", 404: "model.base_url and model.model", 400: "refused again"}


@pytest.mark.parametrize(("status", "remedy"), REFUSALS.items())
def test_a_refusal_is_not_tried_again(status, remedy):
    told = pytest.raises(ChatError, match=rf"answered {status}: .*no.*{remedy}")
    with serving(lambda *_: Reply(status=status, body='{"error": "no"}')) as server, told:
        ask(server)
    assert len(server.requests) == 1


def test_an_answer_without_content_is_an_empty_one():
    with serving(lambda *_: Reply(text=None)) as server:
        assert ask(server).text == ""


def test_a_refusal_without_a_key_names_the_setting_of_a_key():
    told = pytest.raises(ChatError, match="name its environment variable in")
    with serving(lambda *_: Reply(status=401, body="no")) as server, told:
        ask(server, model=api_model(server.url, key_variable=None))


@pytest.mark.parametrize("status", [401, 500])
def test_an_endpoint_that_repeats_the_key_does_not_get_it_into_errors_or_logs(status, caplog):
    caplog.set_level(logging.DEBUG)
    with serving(lambda *_: Reply(status=status, body=f"bad key {KEY}")) as server:
        try:
            ask(server)
        except ChatError as error:
            told = "".join(traceback.format_exception(error))
    assert "bad key [key]" in told
    assert KEY not in told + caplog.text


def test_a_missing_key_is_named():
    with pytest.raises(ConfigError, match="set the environment variable LOOPBACK_KEY"):
        ChatClient(api_model("http://127.0.0.1:9/v1"), limits(), {})


def test_a_key_that_is_none_is_refused_without_showing_it():
    with pytest.raises(ConfigError) as caught:
        ChatClient(api_model("http://127.0.0.1:9/v1"), limits(), {"LOOPBACK_KEY": "geheim\nschlüssel"})
    assert "geheim" not in str(caught.value)


def test_a_proxy_whose_password_is_not_quoted_is_named_without_it(monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://me:planted-Secret-0004#1@proxy:3128")
    with pytest.raises(ConfigError, match=r"an address in HTTPS_PROXY, .* cannot be read \(InvalidURL\)") as refused:
        ChatClient(api_model("http://127.0.0.1:9/v1"), limits(), {"LOOPBACK_KEY": KEY})
    assert "planted" not in "".join(traceback.format_exception(refused.value))


def test_a_rate_limit_spaces_requests():
    with serving() as server:
        client = ChatClient(api_model(server.url), limits(requests_per_minute=600.0), {"LOOPBACK_KEY": KEY})
        started = time.monotonic()
        for _ in range(4):
            client.complete("x", temperature=0.0, max_tokens=1, seed=0)
        client.close()
        assert 0.3 <= time.monotonic() - started < 3


@pytest.mark.parametrize("url", ["api.openai.com/v1", "ftp://x/v1", "https://me:pw@x/v1", "https://x/v1?key=1"])
def test_a_base_url_holds_no_secret(url):
    with pytest.raises(ValueError, match="a base URL is http"):
        api_model(url)


def test_an_endpoint_that_drips_is_given_up_in_time():
    started = time.monotonic()
    with (
        serving(lambda *_: Reply(drip_s=0.05)) as server,
        pytest.raises(ChatError, match=r"did not finish its answer within 0\.3 s .*gave up after 2 attempts"),
    ):
        ask(server, timeout_s=0.3, attempts=2)
    assert time.monotonic() - started < 5


def test_an_endless_answer_is_given_up(monkeypatch):
    monkeypatch.setattr("scpo.agents.chat._LONGEST", 1 << 20)
    with (
        serving(lambda *_: Reply(body="x" * (2 << 20))) as server,
        pytest.raises(ChatError, match="sent more than 1 MB"),
    ):
        ask(server, attempts=1)


def test_a_key_that_is_echoed_with_json_escapes_reaches_no_answer_and_no_message():
    escaped = "".join(f"\\u{ord(letter):04x}" for letter in KEY)
    body = completion("your key is HERE").replace("HERE", escaped)
    with serving(in_turn(Reply(body=body), Reply(body=body, status=400))) as server:
        assert ask(server).text == "your key is [key]"
        with pytest.raises(ChatError) as refused:
            ask(server)
    assert KEY not in str(refused.value)
    assert escaped not in str(refused.value)


@pytest.mark.parametrize("before", ["", "x", "xy"])
def test_a_key_that_is_echoed_in_base64_or_hex_reaches_no_answer(before):
    data = f"{before}{KEY}!".encode()
    for echoed in (base64.b64encode(data).decode(), data.hex()):
        with serving(in_turn(Reply(body=completion(f"you sent {echoed}")))) as server:
            text = ask(server).text
        assert "[key]" in text
        assert echoed not in text


@pytest.mark.parametrize(
    "url", ["http://:hunter2@llm.example/v1", "http://me:hunter2@llm.example/v1", "http://me@x/v1"]
)
def test_an_address_with_a_user_or_a_password_is_refused(url):
    with pytest.raises(ValidationError, match="without user, password or query"):
        api_model(url)


def test_closing_ends_what_is_under_way():
    with serving(lambda *_: Reply(drip_s=0.05)) as server:
        client = ChatClient(api_model(server.url), limits(timeout_s=60), {"LOOPBACK_KEY": KEY})
        ended = []

        def call():
            try:
                client.complete("hello", temperature=0.4, max_tokens=32, seed=7)
            except ChatError as error:
                ended.append(str(error))

        thread = threading.Thread(target=call)
        thread.start()
        time.sleep(0.3)
        client.close()
        thread.join(5)
    assert ended == [f"the request to loopback-1 at {server.url} was given up: the run is ending"]
