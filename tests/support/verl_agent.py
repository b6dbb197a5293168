"""What verl-agent's estimators answer (commit 796ed31): recorded answers, or its own code from a checkout of it.

The recorded ones lie in ``tests/data/verl_agent`` with the batches they are of. The checkout is the user's: `git clone`
of verl-agent at commit 796ed31, its folder in the environment variable VERL_AGENT. Only the files with the arithmetic
are executed, in float32 as they are or in float64; the rest of the package and what it needs are not loaded.
"""

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

from scpo.advantages.outcomes import step_returns
from scpo.steps import FloatArray, StepBatch
from tests.support.data_folders import DATA
from tests.support.step_batches import FIELDS, noise, random_batch, take

FILES = {
    "gigpo": "gigpo/core_gigpo.py",
    "hgpo": "recipe/hgpo/core_hgpo.py",
    "core": "verl/trainer/ppo/core_algos.py",
}
NEEDS_CODE = "needs verl-agent's code: set VERL_AGENT to a checkout of it at commit 796ed31"
ANSWERS = DATA / "verl_agent" / "answers.npz"
RECORDED = (0, 5, 11)  # the numbers of the recorded batches, which have as many copies
RECORDING = "SCPO_RECORD" in os.environ


class Case(NamedTuple):
    """A batch with its number, its step returns, and a bonus with the invalid penalty in it."""

    number: int
    batch: StepBatch
    return_N: FloatArray
    bonus_N: FloatArray

    def rows(self, rows: np.ndarray) -> "Case":
        return Case(self.number, take(self.batch, rows), self.return_N[rows], self.bonus_N[rows])


def random_case(number: int) -> Case:
    """Rewards of 0 and 10, invalid steps and copies, as the stack has them."""
    small = random_batch(number, groups=6, siblings=8, longest=20, copies=number % 12, states="abcdefgh")
    ten = np.float32(10)
    batch = take(
        small, np.arange(len(small)),
        reward_N=small.reward_N * ten, episode_return_N=small.episode_return_N * ten, success_N=small.success_N,
    )  # fmt: skip
    bonus_N = noise(batch, number) * (noise(batch, number + 1) > 0.5) - 0.1 * ~batch.valid_N
    return Case(number, batch, step_returns(batch, 0.95), bonus_N.astype(np.float32))


class Tokens(NamedTuple):
    """What GAE reads of a batch of responses."""

    reward_NL: np.ndarray
    value_NL: np.ndarray
    mask_NL: np.ndarray


def random_tokens(number: int) -> Tokens:
    """64 responses of up to 24 tokens, rewarded at their last one."""
    rng = np.random.default_rng(number)
    rows, length = 64, 24
    lengths = rng.integers(1, length + 1, rows)
    mask_NL = np.arange(length) < lengths[:, None]
    value_NL = rng.normal(size=(rows, length)).astype(np.float32) * mask_NL
    reward_NL = np.zeros((rows, length), np.float32)
    reward_NL[np.arange(rows), lengths - 1] = rng.choice([0, 10, -0.1], rows)
    return Tokens(reward_NL, value_NL, mask_NL)


class Recorded:
    """The answers that were recorded, of the batches that were recorded with them."""

    def __init__(self, precision: str, answers: Path = ANSWERS) -> None:
        self.precision = precision
        with np.load(answers, allow_pickle=False) as file:
            self._arrays = dict(file)

    def cases(self, count: int, kind: str = "case", make: Callable[[int], Case] | None = None) -> Iterator[Case]:
        for number in RECORDED:
            given = self._given(f"{kind} {number}/")
            yield Case(number, return_N=given.pop("return_N"), bonus_N=given.pop("bonus_N"), batch=StepBatch(**given))

    def tokens(self, count: int) -> Iterator[tuple[int, Tokens]]:
        for number in RECORDED:
            yield number, Tokens(**self._given(f"tokens {number}/"))

    def answer(self, name: str, compute: Callable[[SimpleNamespace], np.ndarray]) -> np.ndarray:
        return self._arrays[f"{self.precision}/{name}"]

    def _given(self, prefix: str) -> dict[str, np.ndarray]:
        return {name.removeprefix(prefix): array for name, array in self._arrays.items() if name.startswith(prefix)}


class Code:
    """Somebody's own code on random batches; with SCPO_RECORD set, on those to record, whose answers are kept."""

    def __init__(self, precision: str, modules: SimpleNamespace, answers: Path = ANSWERS) -> None:
        self.precision, self._modules, self._answers = precision, modules, answers
        self._record = dict[str, np.ndarray]()

    def cases(self, count: int, kind: str = "case", make: Callable[[int], Case] = random_case) -> Iterator[Case]:
        """``make`` gives the batch of a number, ``kind`` is what such batches go by in the record."""
        for case in map(make, RECORDED if RECORDING else range(count)):
            given = case._asdict() | {field: getattr(case.batch, field) for field in FIELDS}
            self._keep(f"{kind} {case.number}", {name: given[name] for name in given if name.endswith("_N")})
            yield case

    def tokens(self, count: int) -> Iterator[tuple[int, Tokens]]:
        for number in RECORDED if RECORDING else range(count):
            tokens = random_tokens(number)
            self._keep(f"tokens {number}", tokens._asdict())
            yield number, tokens

    def answer(self, name: str, compute: Callable[[SimpleNamespace], np.ndarray]) -> np.ndarray:
        with contextlib.redirect_stdout(io.StringIO()):
            answer = np.asarray(compute(self._modules))
        self._keep(self.precision, {name: answer})
        return answer

    def _keep(self, prefix: str, arrays: dict[str, np.ndarray | None]) -> None:
        for name, array in arrays.items():
            if array is not None:
                self._record[f"{prefix}/{name}"] = array.astype(str) if array.dtype == object else array

    def save(self) -> None:
        """Add what was kept to the recorded answers."""
        there = self._answers.exists()
        with np.load(self._answers, allow_pickle=False) if there else contextlib.nullcontext({}) as before:
            np.savez_compressed(self._answers, **(dict(before) | self._record))


@contextlib.contextmanager
def verl_agent(source: str, precision: str, monkeypatch) -> Iterator[Recorded | Code]:
    """``source`` is "recorded" or "code"; ``precision`` is "float32" or "float64"."""
    if source == "recorded":
        yield Recorded(precision)
        return
    if "VERL_AGENT" not in os.environ:
        pytest.skip(NEEDS_CODE)
    torch = pytest.importorskip("torch", reason="needs torch: make setup")
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, precision))
    try:
        code = Code(precision, _modules(Path(os.environ["VERL_AGENT"]), precision, monkeypatch))
        yield code
        if RECORDING:
            code.save()
    finally:
        torch.set_default_dtype(before)


def _modules(root: Path, precision: str, monkeypatch) -> SimpleNamespace:
    """The three modules by the names of ``FILES``."""
    import torch

    functional = ModuleType("verl.utils.torch_functional")
    functional.torch = torch
    source = (root / "verl/utils/torch_functional.py").read_text(encoding="utf-8")
    start, end = source.index("def masked_sum"), source.index("def get_response_mask")
    run(source[start:end], functional, precision)
    verl, utils = ModuleType("verl"), ModuleType("verl.utils")
    verl.DataProto, verl.utils, utils.torch_functional = object, utils, functional
    for module in (verl, utils, functional):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    loaded = {"torch": torch}
    for name, path in FILES.items():
        loaded[name] = ModuleType(name)
        run((root / path).read_text(encoding="utf-8"), loaded[name], precision)
    return SimpleNamespace(**loaded)


def run(source: str, module: ModuleType, precision: str) -> None:
    for library in ("torch", "np"):
        source = source.replace(f"{library}.float32", f"{library}.{precision}")
    exec(compile(source, module.__name__, "exec"), module.__dict__)  # noqa: S102 - the user's own checkout
