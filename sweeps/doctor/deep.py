"""Checks that let ``scpo.preflight``, a child process, load panels, scorer or tokenizer."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from scpo.errors import RecordError
from scpo.findings import Finding, Level, error, ok, warning
from scpo.installed import REPOSITORY
from scpo.records import run_config, run_folders
from scpo.records.files import check_readable
from scpo.schema.model import HuggingFaceModel
from scpo.schema.run import RunConfig
from sweeps.doctor.subject import Subject, needs_scorer
from sweeps.records.process import thread_environment

TIMEOUT_S = 900

# Plausible share of the sample's pairs at or above theta: with less, hardly any step gets credit,
# with more, most do.
SHARE_LOW, SHARE_HIGH = 0.02, 0.5


def check_panels(subject: Subject) -> Iterator[Finding]:
    """Build every panel and compare its hash with those of earlier runs."""
    for config in _distinct(subject, "env"):
        facts = _ask("panels", config)
        if "error" in facts:
            yield error("panels", facts["error"], "see the check of its data")
            continue
        conflict = _conflict(config, facts)
        if conflict is not None:
            yield conflict
            continue
        sizes = [
            f"{name} {panel['tasks']} ({panel['sha256'][:8]})" for name, panel in facts.items()
        ]
        yield ok("panels", f"{config.env.name}: {', '.join(sizes)}")


def check_data(subject: Subject) -> Iterator[Finding]:
    """Check each environment's data files (games, catalogues, goals) without loading them."""
    return _findings("data", subject)


def check_environment(subject: Subject) -> Iterator[Finding]:
    """Check each environment after loading it."""
    return _findings("environment", subject)


def _findings(what: str, subject: Subject) -> Iterator[Finding]:
    """Findings of a check of ``scpo.preflight`` about each environment."""
    for config in _distinct(subject, "env"):
        facts = _ask(what, config)
        if "error" in facts:
            yield error(config.env.name, facts["error"], "see the other checks")
        for record in facts.get("findings", ()):
            yield Finding(**{**record, "level": Level(record["level"])})


def check_loaded_scorer(subject: Subject) -> Iterator[Finding]:
    """Load each scorer that a run opens and score a built-in sample."""
    needed = tuple(filter(needs_scorer, subject.configs))
    for config in _distinct(replace(subject, configs=needed), "scorer"):
        facts = _ask("scorer", config)
        check = f"scorer {config.scorer.name}"
        if "error" in facts:
            yield error(
                check,
                facts["error"],
                "scorer=minilm comes as a package, scorer=lexical needs no model",
            )
        elif not facts["finite"]:
            yield error(
                check,
                "some of its scores are NaN or infinite",
                "scorer.dtype=float32, or download the model again",
            )
        elif facts["above_theta"] is None:
            yield ok(check, f"loads in {facts['load_s']:.1f} s; this method does not shape")
        else:
            yield _share(check, facts)


def check_tokenizer(subject: Subject) -> Iterator[Finding]:
    """Load the tokenizer of a model that is on this machine."""
    for config in _distinct(subject, "model"):
        if isinstance(config.model, HuggingFaceModel):
            facts = _ask("tokenizer", config)
            check = f"tokenizer {config.model.name}"
            if "error" in facts:
                yield error(check, facts["error"], "download it again, or model.path=<a folder>")
            else:
                yield ok(check, f"{facts['vocabulary']} tokens")


def _share(check: str, facts: dict[str, Any]) -> Finding:
    """Judge the share of the sample's pairs that a scorer puts at or above theta."""
    share = facts["above_theta"]
    theta = facts["theta"]
    text = (
        f"loads in {facts['load_s']:.1f} s; {share:.0%} of a sample's pairs score at least "
        f"theta={theta}"
    )
    if share < SHARE_LOW:
        return warning(
            check, f"{text}: next to no step would get credit", "a lower method.shaper.theta"
        )
    if share > SHARE_HIGH:
        return warning(
            check,
            f"{text}: most steps would get credit",
            "a higher method.shaper.theta or another scorer",
        )
    return ok(check, text)


def _conflict(config: RunConfig, facts: dict[str, Any]) -> Finding | None:
    """Error if an earlier run of this environment recorded other panels; None without one."""
    for folder in run_folders.list_runs(Path(config.machine.runs_dir)):
        try:
            check_readable(folder.path)
            recorded = folder.read_panels()
            if not recorded or run_config.read_config(folder).env != config.env:
                continue
        except RecordError:
            # `python -m sweeps verify` reports damaged records.
            continue
        differing = [
            name for name in facts if recorded.get(name, {}).get("sha256") != facts[name]["sha256"]
        ]
        if differing:
            text = f"{', '.join(differing)}: other tasks than run {folder.run_id} was given"
            return error(
                "panels",
                text,
                "restore the games (data folder, package versions), or another machine.runs_dir",
            )
    return None


def _distinct(subject: Subject, section: str) -> list[RunConfig]:
    """One configuration for each distinct content of a section."""
    by_content = {}
    for config in subject.configs:
        by_content[getattr(config, section).model_dump_json()] = config
    return list(by_content.values())


def _ask(what: str, config: RunConfig) -> dict[str, Any]:
    """Get facts from a child process: its memory is freed, and its crash is only a finding."""
    # The user's own PYTHONPATH is kept: its packages may register parts of the runs.
    path = filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")])
    try:
        done = subprocess.run(
            [sys.executable, "-m", "scpo.preflight", what],
            input=config.model_dump_json(),
            capture_output=True,
            text=True,
            env={
                **os.environ,
                **thread_environment(config.machine.threads),
                "PYTHONPATH": os.pathsep.join(path),
            },
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {TIMEOUT_S} s"}

    try:
        # The last line, because libraries may print before it.
        return dict(json.loads(done.stdout.splitlines()[-1]))
    except (ValueError, IndexError):
        last = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        return {"error": last[0]}
