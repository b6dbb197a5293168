"""Facts about a configuration that require loading its parts, for callers that must not.

    python -m scpo.preflight data|panels|environment|scorer|tokenizer < configuration.json

Prints one JSON object; ``{"error": ...}`` and exit status 1 if a part cannot be loaded. Writes only
the caches of the environments.

The doctor and the sweep commands run each question in a process of its own. They import neither
torch nor an environment's packages, and report a library that crashes while loading as a finding.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from scpo.errors import ConfigError, ScpoError
from scpo.findings import Finding
from scpo.schema.model import HuggingFaceModel
from scpo.schema.run import RunConfig

# Step texts of both benchmarks in the shaper's default form: some pairs share the place, some the
# action, some neither.
SAMPLE = (
    "go to fridge 1 On arriving, the fridge 1 is closed.",
    "go to fridge 1 On arriving, the fridge 1 is open; inside is a lettuce 1.",
    "go to drawer 2 On arriving, the drawer 2 is closed.",
    "open drawer 2 The drawer 2 is now open; it holds a keychain 1.",
    "open fridge 1 The fridge 1 is now open; it holds a lettuce 1 and an egg 2.",
    "take lettuce 1 from fridge 1 Now you hold the lettuce 1.",
    "take egg 2 from fridge 1 Now you hold the egg 2.",
    "heat egg 2 with microwave 1 The egg 2 is hot.",
    "put egg 2 in/on countertop 1 The egg 2 lies on the countertop 1.",
    "search[red cotton shirt] Results page 1: shirts, 50 in all.",
    "search[cotton shirt in red] Results page 1: shirts, 48 in all.",
    "click[buy now] Thank you for your order.",
)


def panels(config: RunConfig) -> dict[str, Any]:
    """Hash and size of every panel of a configuration: train, probe and validation.

    Raises:
        PanelError: A panel cannot be built.
    """
    from scpo.envs import open_environment

    environment = open_environment(config)
    facts = {}
    for name in ("train", "probe", *sorted(config.env.validation_panels)):
        panel = environment.panel(name)
        facts[name] = {"sha256": panel.sha256, "tasks": len(panel.tasks)}
    return facts


def data(config: RunConfig) -> dict[str, Any]:
    """Report whether the environment's data exist, without loading them."""
    check = _data_check(config, "check_data")
    return _as_json(check(config.env, config.data_folder) if check else ())


def environment(config: RunConfig) -> dict[str, Any]:
    """Report the properties of the loaded environment."""
    from scpo.envs import open_environment

    check = _data_check(config, "check_loaded")
    if check is None:
        return _as_json(())
    return _as_json(check(config.env, config.data_folder, lambda: open_environment(config)))


def scorer(config: RunConfig) -> dict[str, Any]:
    """Measure the scorer: load time, share of sample pairs that score >= theta, finite scores.

    Theta and the share are None for methods without a shaper.
    """
    from scpo.scoring import make_scorer

    started = time.perf_counter()
    loaded = make_scorer(config.scorer)
    load_s = time.perf_counter() - started
    # Ordered pairs, because a reranker's score depends on the order of the two texts.
    scores = np.asarray(loaded.score(list(itertools.permutations(SAMPLE, 2))))
    shaper = config.method.shaper if config.method.kind == "trained" else None
    theta = shaper.theta if shaper else None
    above = None if theta is None else float(np.mean(scores >= theta))
    return {
        "load_s": load_s,
        "theta": theta,
        "above_theta": above,
        "finite": bool(np.isfinite(scores).all()),
    }


def tokenizer(config: RunConfig) -> dict[str, Any]:
    """Vocabulary size of a Hugging Face tokenizer on this machine; empty for other models."""
    if not isinstance(config.model, HuggingFaceModel):
        return {}
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(config.model.path, local_files_only=True)
    return {"vocabulary": len(loaded)}


def _as_json(findings: Iterable[Finding]) -> dict[str, Any]:
    """Convert findings to the JSON object that is printed."""
    return {"findings": [finding.as_record() for finding in findings]}


def _data_check(config: RunConfig, name: str) -> Callable[..., Iterable[Finding]] | None:
    """The function ``name`` of ``data_check.py`` in the environment's folder; None if missing.

    An environment without files to download needs no such module. The module is found by its path,
    so that registering an environment takes a single line.
    """
    from scpo.envs import ENVIRONMENTS

    package = ENVIRONMENTS[config.env.name].__module__.rpartition(".")[0]
    if importlib.util.find_spec(f"{package}.data_check") is None:
        return None
    return getattr(importlib.import_module(f"{package}.data_check"), name, None)


FACTS: dict[str, Callable[[RunConfig], dict[str, Any]]] = {
    "data": data,
    "panels": panels,
    "environment": environment,
    "scorer": scorer,
    "tokenizer": tokenizer,
}


def main(arguments: Sequence[str]) -> int:
    """Answer one question about the configuration on standard input; return the exit status."""
    try:
        if len(arguments) != 1 or arguments[0] not in FACTS:
            raise ConfigError(
                f"got {' '.join(arguments) or 'nothing'}; allowed: one of {', '.join(FACTS)}"
            )
        answer = FACTS[arguments[0]](RunConfig.model_validate_json(sys.stdin.read()))
        code = 0
    # A missing package, a missing file or an impossible setting. Other errors are bugs and keep
    # their traceback on stderr.
    except (ScpoError, ImportError, OSError, ValueError) as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
        code = 1
    sys.stdout.write(json.dumps(answer) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
