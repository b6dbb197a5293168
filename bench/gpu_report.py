"""Report of the acceptance script: ``report.json``, and ``report.md`` for people."""

from __future__ import annotations

import itertools
import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.gpu_thresholds import Verdict, verdicts
from scpo.installed import installed_version
from scpo.memory import gpu_table, needed_gib
from scpo.records.memory import driver_version, installed_gpus, smallest_gib
from scpo.schema.run import RunConfig

PACKAGES = ("torch", "vllm", "transformers", "verl", "flash-attn", "ray", "accelerate")
PAGE, RECORD = "report.md", "report.json"
# Findings that the page's other tables show already, or that are only read by a threshold.
SHOWN_ELSEWHERE = ("exit", "timed_out", "seconds", "step", "step_before")


def new_report(words: Sequence[str], config: RunConfig, parts: Sequence[str], *, dry: bool) -> dict[str, Any]:
    """Report before the first part: the machine, and the parts that are to come."""
    gpus = installed_gpus()
    versions = {name: installed_version(name) for name in PACKAGES}
    table = gpu_table(config, smallest_gib(gpus) or 80.0)
    return {
        "words": list(words),
        "dry": dry,
        "machine": {"packages": versions, "driver": driver_version(), "gpus": gpus},
        "gpu_gib": smallest_gib(gpus),
        "episodes": config.trainer.groups * config.trainer.group_size,
        "estimated_gib": needed_gib(table),
        "parts": {name: {"status": "not run", "reason": "not reached"} for name in parts},
    }


def write_report(folder: Path, report: dict[str, Any]) -> None:
    """Replace ``report.md`` and ``report.json``, each as a whole."""
    report["thresholds"] = [
        {
            "part": threshold.part,
            "name": threshold.name,
            "verdict": verdict,
            "found": found,
            "expected": threshold.expected,
        }
        for threshold, verdict, found in verdicts(report)
    ]
    # The page first: where there is JSON, there is a page.
    _replace(folder / PAGE, markdown(report))
    _replace(folder / RECORD, json.dumps(report, indent=2) + "\n")


def keep_earlier_report(folder: Path) -> None:
    """Rename the report of an earlier call: ``--only`` repeats one part, and the rest was paid for."""
    if not (folder / RECORD).exists():
        return
    number = next(n for n in itertools.count(1) if not (folder / f"report_{n}.json").exists())
    for name in (PAGE, RECORD):
        if (folder / name).exists():
            (folder / name).rename(folder / name.replace("report", f"report_{number}"))


def _replace(path: Path, text: str) -> None:
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    Path(file.name).rename(path)


def exit_status(report: dict[str, Any]) -> int:
    """0: all passed; 1: some failed; 3: none failed, some were not run."""
    seen = {threshold["verdict"] for threshold in report["thresholds"]}
    if Verdict.FAIL in seen:
        return 1
    return 3 if Verdict.NOT_RUN in seen else 0


def markdown(report: dict[str, Any]) -> str:
    """Report for people: thresholds, parts, figures, and the seconds of a step."""
    lines = [
        "# GPU acceptance" + (" (dry run on a CPU: no figure is a GPU's)" if report["dry"] else ""),
        "",
        *_summary(report),
        "",
        "| part | threshold | found | expected | |",
        "|---|---|---|---|---|",
    ]
    for threshold in report["thresholds"]:
        part, name, expected = (threshold[key] for key in ("part", "name", "expected"))
        found = _shown(threshold["found"])
        lines.append(f"| {part} | {name} | {found} | {expected} | {threshold['verdict']} |")
    lines += ["", "| part | status | seconds | |", "|---|---|---|---|"]
    for name, entry in report["parts"].items():
        reason = entry.get("reason", "") if entry["status"] != "ended" else f"`{name}.log`"
        lines.append(f"| {name} | {entry['status']} | {entry.get('seconds', 0):.0f} | {reason} |")
    lines += _figures(report)
    lines += _seconds_of_a_step(report)
    lines += ["", f"Estimated memory of the fullest GPU: {report['estimated_gib']:.1f} GiB."]
    return "\n".join(lines) + "\n"


def _summary(report: dict[str, Any]) -> Iterator[str]:
    counts = Counter(threshold["verdict"] for threshold in report["thresholds"])
    yield ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict)
    yield ""
    machine = report["machine"]
    sizes = [f"{name} of unknown size" if gib is None else f"{name} {gib:.0f} GiB" for name, gib in machine["gpus"]]
    gpus = ", ".join(sizes) or "none"
    installed = machine["packages"].items()
    packages = ", ".join(f"{name} {version}" for name, version in installed if version)
    yield (f"Words: `{' '.join(report['words'])}`. GPUs: {gpus}; driver {machine['driver']}; {packages}.")


def _figures(report: dict[str, Any]) -> list[str]:
    """What the parts measured that no threshold is set for, as pairs a second."""
    lines = []
    for name, entry in report["parts"].items():
        for figure, value in entry.get("findings", {}).items():
            numbers = value if isinstance(value, list) else [value]
            if figure in SHOWN_ELSEWHERE or not all(isinstance(n, int | float) for n in numbers):
                continue
            shown = ", ".join(map(_shown, numbers)) or "-"
            lines.append(f"| {name} | {figure} | {shown} |")
    return ["", "| part | figure | value |", "|---|---|---|", *lines] if lines else []


def _seconds_of_a_step(report: dict[str, Any]) -> list[str]:
    timing = report["parts"]["step"].get("findings", {}).get("timing", {})
    parts = sorted(name.removeprefix("part_s/") for name in timing if name.startswith("part_s/"))
    if not parts:
        return []
    lines = ["", "| seconds of a step | measured | estimated |", "|---|---|---|"]
    for part in parts:
        estimate = timing.get(f"estimate_s/{part}")
        lines.append(f"| {part} | {timing[f'part_s/{part}']:.1f} | {_shown(estimate)} |")
    return lines


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
