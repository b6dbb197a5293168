"""What the graph-credit estimators' own code answers: recorded answers, or the code from checkouts of it.

The recorded ones lie in ``tests/data/graph_credit`` with the batches they are of. The checkouts are the user's, named
by the environment variables in ``CODE``. As for verl-agent, only the files with the arithmetic are executed, in float32
as they are or in float64.
"""

import ast
import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from scpo.advantages.outcomes import step_returns
from scpo.steps import StepBatch
from tests.support.data_folders import DATA
from tests.support.step_batches import make_batch, noise, take
from tests.support.verl_agent import RECORDING, Case, Code, Recorded, random_case, run

CODE = {
    "GRAPHGPO": ("cq-dong/verl-agent", "80951ef"),
    "REWARDFLOW": ("tmlr-group/RewardFlow", "1cdead8"),
    "G2PO": ("Nala-YN/G2PO", "b8ffaf5"),
}
"""Environment variable, repository on GitHub, and the commit that was compared."""

ANSWERS = DATA / "graph_credit" / "answers.npz"
NO_OP = "Nothing happens."


def walks(number: int) -> Case:
    """Random walks whose last answer is a state like any other, in time order and without copies."""
    case = random_case(number)
    order = np.lexsort((case.batch.step_N, case.batch.trajectory_N))
    case = case.rows(order[~case.batch.is_copy_N[order]])
    batch = take(case.batch, np.arange(len(case.batch)), next_observation_N=case.batch.action_N)
    return case._replace(batch=batch)


def household(number: int) -> Case:
    """Walks that win early or are cut off after 12 steps, with looks about and answers that nothing happened."""
    rng = np.random.default_rng(number)
    episodes = [_episode(rng, number, longest=12) for number in range(48)]
    return _case(number, make_batch(*episodes), rng)


def shopping(number: int) -> Case:
    """Walks that win or are lost after up to 12 steps; nothing is cut off."""
    rng = np.random.default_rng(number)
    lengths = rng.integers(1, 13, 64)
    episodes = [
        (k // 8, k, " ".join(rng.choice(list("abcdefg"), length)), 10.0 * rng.integers(2))
        for k, length in enumerate(lengths)
    ]
    return _case(number, make_batch(*episodes), rng)


def _episode(rng: np.random.Generator, number: int, longest: int) -> tuple[int, int, str, float]:
    won = bool(rng.integers(2))
    length = rng.integers(1, longest) if won else longest
    return number // 8, number, " ".join(rng.choice(list("abcdefgh"), length)), 10.0 * won


def _case(number: int, batch: StepBatch, rng: np.random.Generator) -> Case:
    """With actions that look about, but for the one that wins."""
    looks = rng.choice(["look", "inventory", "examine mug 1"], len(batch))
    wins_N = (batch.timeline.neighbours(1) < 0) & batch.success_N
    action_N = np.where((rng.random(len(batch)) < 0.2) & ~wins_N, looks, "go " + batch.action_N)
    made = take(
        batch, np.arange(len(batch)), action_N=action_N, valid_N=rng.random(len(batch)) > 0.2,
        anchor_N=np.where(batch.anchor_N == "h", NO_OP, batch.anchor_N),
        next_observation_N=np.where(batch.action_N == "h", NO_OP, batch.action_N),
    )  # fmt: skip
    bonus_N = noise(made, number) * (noise(made, number + 1) > 0.5) - 0.1 * ~made.valid_N
    return Case(number, made, step_returns(made, 0.95), bonus_N.astype(np.float32))


@contextlib.contextmanager
def authors_code(name: str, source: str, precision: str, monkeypatch) -> Iterator[Recorded | Code]:
    """``name`` is a key of ``CODE``; ``source`` and ``precision`` as for ``tests.support.verl_agent.verl_agent``."""
    if source == "recorded":
        yield Recorded(precision, ANSWERS)
        return
    if name not in os.environ:
        repository, commit = CODE[name]
        pytest.skip(f"needs {repository}'s code: set {name} to a checkout of it at commit {commit}")
    torch = pytest.importorskip("torch", reason="needs torch: make setup")
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, precision))
    try:
        code = Code(precision, _modules(name, Path(os.environ[name]), precision, monkeypatch), ANSWERS)
        yield code
        if RECORDING:
            code.save()
    finally:
        torch.set_default_dtype(before)


def _modules(name: str, root: Path, precision: str, monkeypatch) -> SimpleNamespace:
    """The files with the arithmetic, as modules by the names under which they import each other."""
    import torch

    verl = ModuleType("verl")
    verl.DataProto = object
    monkeypatch.setitem(sys.modules, "verl", verl)

    def load(path: str) -> ModuleType:
        module = ModuleType(path.removesuffix(".py").replace("/", "."))
        for package in module.__name__.split(".")[:-1]:
            monkeypatch.setitem(sys.modules, package, ModuleType(package))
        run((root / path).read_text(encoding="utf-8"), module, precision)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        return module

    if name == "G2PO":
        return SimpleNamespace(torch=torch, core=load("g2po/core_g2po.py"))
    if name == "GRAPHGPO":
        load("gigpo/core_gigpo.py")
        return SimpleNamespace(torch=torch, core=load("recipe/GraphGPO/core_graph.py"))
    load("agent_system/multi_turn_rollout/utils.py")
    load("rewardflow/propagation.py")
    manager = (root / "agent_system/environments/env_manager.py").read_text(encoding="utf-8")
    return SimpleNamespace(
        torch=torch,
        core=load("rewardflow/core_rewardflow.py"),
        household=_method(manager, "AlfWorldEnvironmentManager", "clean_trajectory"),
        shopping=_method(manager, "WebshopEnvironmentManager", "clean_trajectory"),
    )


def _method(source: str, of: str, name: str):
    """One method of a class whose module needs more than is at hand, as a function."""
    owner = next(node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == of)
    found = next(node for node in owner.body if isinstance(node, ast.FunctionDef) and node.name == name)
    names: dict = {}
    exec(compile(ast.Module([found], []), of, "exec"), names)  # noqa: S102 - the user's own checkout
    return names[name]
