"""A W&B server on the loopback interface: it answers what wandb 0.31 sends to list, read and write runs, and its agent.

Faults are a list of functions, each used up by one answer: ``fail(503)``, ``slow(2)``, ``truncated``; see ``Server``.
"""

import base64
import contextlib
import gzip
import json
import re
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = "0123456789abcdef" * 2 + "01234567"  # 40 characters, as W&B's keys


@dataclass
class HostedRun:
    """One run: its history is one dict a step."""

    id: str
    config: dict
    history: list
    state: str = "finished"

    def answer(self, wanted, variables):
        """The node of this run with the fields that a query wants."""
        made = {
            "id": base64.b64encode(self.id.encode()).decode(),
            "name": self.id,
            "displayName": self.id,
            "state": self.state,
            "createdAt": "2026-01-01T00:00:00",
            "heartbeatAt": "2026-01-01T00:00:00",
            "historyLineCount": len(self.history),
            "user": {"name": "me", "username": "me"},
            "config": json.dumps({key: {"value": value} for key, value in self.config.items()}),
            "summaryMetrics": "{}",
            "systemMetrics": "{}",
            "historyKeys": {"lastStep": self.history[-1]["_step"] if self.history else -1, "keys": {}},
            "projectId": "1",
        }
        if "parquetHistory" in wanted:
            made["parquetHistory"] = {"parquetUrls": [], "liveData": []}
        if "history(" in wanted:
            first, end = int(variables["minStep"]), int(variables["maxStep"])
            made["history"] = [json.dumps(row) for row in self.history if first <= row["_step"] < end]
        return made


@dataclass
class Server:
    """Runs of one project and the faults to come; ``requests`` counts what was asked, by operation."""

    runs: list
    faults: dict = field(default_factory=dict)  # operation -> [fault, ...]
    requests: dict = field(default_factory=dict)
    views: list = field(default_factory=list)  # what was saved
    sweep: dict = field(default_factory=dict)  # its configuration, as `wandb sweep` would send it
    commands: list = field(default_factory=list)  # for the agent, one a heartbeat; callables are asked each time
    written: dict = field(default_factory=dict)  # run -> what was said when it was made or went on, one dict each
    alerts: list = field(default_factory=list)
    streamed: dict = field(default_factory=dict)  # run -> file -> its lines; "complete" -> exit code
    url: str = ""

    def answer(self, query, variables):
        name = re.search(r"(?:query|mutation)\s+(\w+)", query)[1]
        self.requests[name] = self.requests.get(name, 0) + 1
        if name in WRITING:
            return WRITING[name](self, variables)
        if name == "UpsertView2":
            self.views.append(variables)
            return {"upsertView": {"view": {"id": "V1", "name": variables["name"]}, "inserted": True}}
        if name in ("Viewer", "GetDefaultEntity"):
            return {"viewer": {"id": "1", "entity": "me", "username": "me", "flags": "{}", "teams": {"edges": []}}}
        if name == "Runs":
            return {"project": self._page(query, variables)}
        wanted = variables.get("name") or variables.get("run") or variables.get("runName")
        run = next((run for run in self.runs if run.id == wanted), None)
        return {"project": {"run": run and run.answer(query, variables)}}

    def _page(self, query, variables):
        if variables["project"] != "demo":
            return None
        first = int(variables["cursor"] or 0)
        chosen = self.runs[first : first + int(variables["perPage"])]
        end = first + len(chosen)
        edges = [{"node": run.answer(query, variables), "cursor": str(end)} for run in chosen]
        page = {"endCursor": str(end), "hasNextPage": end < len(self.runs)}
        head = {"internalId": "1", "readOnly": False, "runCount": len(self.runs)}
        return head | {"runs": {"edges": edges, "pageInfo": page, "totalCount": len(self.runs)}}

    def next_fault(self, query):
        name = (re.search(r"(?:query|mutation)\s+(\w+)", query) or [None, ""])[1]
        waiting = self.faults.get(name) or self.faults.get("any") or []
        return waiting.pop(0) if waiting else None


def _sweep_with_runs(server, asked):
    sweep = {"id": "1", "name": asked["sweep"], "config": json.dumps(server.sweep), "runs": {"edges": []}}
    return {"project": {"sweep": sweep}}


def _create_agent(server, asked):
    return {"createAgent": {"agent": {"id": "agent"}}}


def _heartbeat(server, asked):
    """The next command, once it is there: a dict, or a function of the agent's runs that gives one or None."""
    commands = []
    if server.commands:
        first = server.commands[0]
        command = first(json.loads(asked["runState"])) if callable(first) else first
        if command:
            commands.append(command)
            server.commands.pop(0)
    return {"agentHeartbeat": {"agent": {"id": "agent"}, "commands": json.dumps(commands)}}


def _upsert_bucket(server, asked):
    server.written.setdefault(asked["name"], []).append(asked)
    project = {"id": "1", "name": asked["project"], "entity": {"id": "1", "name": asked["entity"]}}
    bucket = {"id": "1", "name": asked["name"], "displayName": asked["displayName"], "config": asked["config"]}
    bucket |= {"sweepName": asked["sweep"], "project": project, "historyLineCount": 0}
    return {"upsertBucket": {"bucket": bucket, "inserted": True}}


def _create_run_files(server, asked):
    files = [{"name": name, "uploadUrl": f"{server.url}/upload"} for name in asked["files"]]
    return {"createRunFiles": {"runID": "1", "uploadHeaders": [], "files": files}}


def _alert(server, asked):
    server.alerts.append(asked)
    return {"notifyScriptableRunAlert": {"success": True}}


WRITING = {
    "NotifyScriptableRunAlert": _alert,
    "SweepWithRuns": _sweep_with_runs,
    "CreateAgent": _create_agent,
    "Heartbeat": _heartbeat,
    "UpsertBucket": _upsert_bucket,
    "CreateRunFiles": _create_run_files,
    "RunResumeStatus": lambda server, asked: {"model": {"bucket": None}},
}


def fail(status):
    """An answer with this HTTP status."""
    return lambda body: (status, b'{"error": "as the test wants it"}')


def slow(seconds):
    """A right answer, late."""

    def wait(body):
        time.sleep(seconds)
        return 200, body

    return wait


def truncated(body):
    """Half an answer."""
    return 200, body[: len(body) // 2]


@contextlib.contextmanager
def serve(*runs):
    """A running server; its address is in ``url``."""
    server = Server(list(runs))
    http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(server))
    http.daemon_threads = True
    server.url = f"http://127.0.0.1:{http.server_address[1]}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


def _handler(server):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one packet: apart, each answer waits 40 ms for an acknowledgement

        def log_message(self, *_):
            pass

        def do_POST(self):
            body = self._body()
            if self.path.endswith("/file_stream"):
                self._stream(self.path.split("/")[-2], json.loads(body))
            if self.path != "/graphql":
                return self._send(200, b"{}")  # telemetry, too
            if self.headers.get("Authorization") != _basic(KEY):
                return self._send(401, b'{"errors": [{"message": "user is not logged in"}]}')
            asked = json.loads(body)
            data = json.dumps({"data": server.answer(asked["query"], asked.get("variables") or {})}).encode()
            fault = server.next_fault(asked["query"])
            return self._send(*(fault(data) if fault else (200, data)))

        def do_PUT(self):
            self._body()
            self._send(200, b"")

        def _body(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            return gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body

        def _stream(self, run, sent):
            files = server.streamed.setdefault(run, {})
            for name, part in (sent.get("files") or {}).items():
                files.setdefault(name, []).extend(part["content"])
            if sent.get("complete"):
                files["complete"] = sent["exitcode"]

        def _send(self, status, body):
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # who asked may be gone by now
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

    return Handler


def _basic(key):
    return "Basic " + base64.b64encode(f"api:{key}".encode()).decode()
