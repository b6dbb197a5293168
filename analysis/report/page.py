"""The page: markup, style and script from ``static/``, and the data, in one file that asks the network for nothing."""

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

STATIC = Path(__file__).parent / "static"
SCRIPTS = (
    "elements.js",
    "scales.js",
    "runs.js",
    "curves.js",
    "compare.js",
    "episodes.js",
    "outputs.js",
    "overview.js",
    "credit.js",
    "columns.js",
    "heatmap.js",
    "details.js",
    "inspector.js",
    "main.js",
)


def page(contents: dict[str, Any]) -> str:
    r"""HTML with everything inside.

    A Content-Security-Policy lets only the page's own style and script run, and no request out. The
    data lie in a script element of type ``application/json``; with ``<`` written as ``\u003c`` no
    text in them can end it. The script puts texts into the page as text nodes only.
    """
    style = (STATIC / "style.css").read_text(encoding="utf-8")
    script = "".join(
        ["'use strict';\n", *((STATIC / name).read_text(encoding="utf-8") for name in SCRIPTS)]
    )
    parts = {
        "policy": _policy(style, script),
        "style": style,
        "data": embedded(contents),
        "script": script,
    }
    markup = (STATIC / "page.html").read_text(encoding="utf-8")
    return re.sub(r"{{(\w+)}}", lambda marked: parts[marked[1]], markup)


def embedded(contents: dict[str, Any]) -> str:
    """JSON that may stand inside a script element."""
    text = json.dumps(contents, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _policy(style: str, script: str) -> str:
    allowed = f"script-src {_hash(script)}; style-src {_hash(style)}; img-src data:"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def _hash(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"
