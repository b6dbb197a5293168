"""The estimators of verl-agent's own code, loaded from a checkout of it, in float32 as they are or in float64.

The checkout is the user's: `git clone` of verl-agent at commit 796ed31, its folder in the environment variable
VERL_AGENT. Only the files with the arithmetic are executed; the rest of the package and what it needs are not loaded.
"""

import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

FILES = {
    "gigpo": "gigpo/core_gigpo.py",
    "hgpo": "recipe/hgpo/core_hgpo.py",
    "core": "verl/trainer/ppo/core_algos.py",
}


def load_stack(precision: str, monkeypatch) -> SimpleNamespace:
    """The three modules by the names of ``FILES``; ``precision`` is "float32" or "float64"."""
    if "VERL_AGENT" not in os.environ:
        pytest.skip("set VERL_AGENT to a checkout of verl-agent at commit 796ed31 to compare with its own code")
    import torch

    root = Path(os.environ["VERL_AGENT"])
    functional = ModuleType("verl.utils.torch_functional")
    functional.torch = torch
    source = (root / "verl/utils/torch_functional.py").read_text(encoding="utf-8")
    start, end = source.index("def masked_sum"), source.index("def get_response_mask")
    _run(source[start:end], functional, precision)
    verl, utils = ModuleType("verl"), ModuleType("verl.utils")
    verl.DataProto, verl.utils, utils.torch_functional = object, utils, functional
    for module in (verl, utils, functional):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    loaded = {}
    for name, path in FILES.items():
        loaded[name] = ModuleType(name)
        _run((root / path).read_text(encoding="utf-8"), loaded[name], precision)
    return SimpleNamespace(**loaded)


def _run(source: str, module: ModuleType, precision: str) -> None:
    for library in ("torch", "np"):
        source = source.replace(f"{library}.float32", f"{library}.{precision}")
    exec(compile(source, module.__name__, "exec"), module.__dict__)  # noqa: S102 - the user's own checkout
