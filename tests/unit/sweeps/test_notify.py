import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from sweeps.notify import VARIABLE, notify


@pytest.fixture
def webhook():
    """A server that keeps what it is sent; its status is 200."""
    received = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200 if self.path == "/ok" else 404)
            self.end_headers()

        def log_message(self, *arguments):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", received
    server.shutdown()
    server.server_close()


def test_a_webhook_gets_the_text(webhook, monkeypatch):
    address, received = webhook
    monkeypatch.setenv(VARIABLE, f"{address}/ok")
    notify("scpo: ablation ended: 2 DONE")
    assert received == [{"text": "scpo: ablation ended: 2 DONE", "content": "scpo: ablation ended: 2 DONE"}]


def test_a_command_gets_the_text_as_one_argument(tmp_path, monkeypatch):
    script = tmp_path / "notice.sh"
    script.write_text(f'#!/bin/sh\nprintf "%s|%s" "$1" "$2" >"{tmp_path}/said"\n')
    script.chmod(0o755)
    monkeypatch.setenv(VARIABLE, f"{script} --title")
    notify("two words; rm -rf x")
    assert (tmp_path / "said").read_text() == "--title|two words; rm -rf x"


@pytest.mark.parametrize("target", ["", "no-such-command-at-all", "http://127.0.0.1:9/secret", "sh -c 'exit 3'", "'"])
def test_a_notice_that_cannot_be_sent_stops_nothing_and_hides_the_address(target, monkeypatch, caplog):
    monkeypatch.setenv(VARIABLE, target)
    notify("text")
    assert "secret" not in caplog.text
    assert (VARIABLE in caplog.text) == bool(target)


def test_a_refusing_webhook_is_a_warning(webhook, monkeypatch, caplog):
    monkeypatch.setenv(VARIABLE, f"{webhook[0]}/secret-path")
    notify("text")
    assert "the webhook answered 404" in caplog.text
    assert "secret-path" not in caplog.text
