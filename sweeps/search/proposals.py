"""Next trial of a search: a function of the plan and the trials so far.

Optuna's samplers draw from the state of their process. A driver that was killed, or a study that
lost its last lines, would then go on with other trials, and the runs on disk would be of no use.
For the same reason a grid is enumerated here: Optuna's grid sampler picks its next point at random.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from scpo.records.identity import digest
from sweeps.search.plan import Plan
from sweeps.search.space import Params, distributions, grid, key_of_params, tidy

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

# Draws of each sampler for one new setting, before the space counts as exhausted.
DRAWS = 50


@dataclass(frozen=True)
class Proposal:
    """Trial to be created. ``retry_of``: number of the failed trial whose values it takes."""

    params: Params
    retry_of: int | None = None


def propose(plan: Plan, trials: "Sequence[FrozenTrial]") -> Proposal | None:
    """Propose the next trial; None if nothing is left to try.

    First failed trials with a retry left, then the unchanged configuration, then the sampler's
    draws. They are seeded with (seed, number of the trial), so that a driver that was killed, or a
    study that lost its last records, proposes the same trials, whose runs are on disk already.
    """
    again = _retry(trials, plan.search.retries)
    if again is not None:
        return again
    tried = {key_of_params(trial.params) for trial in trials}
    # Settings count, not trials: a retry uses up none of the budget.
    if len(tried) >= plan.trials:
        return None
    for params in _candidates(plan, trials):
        if key_of_params(params) not in tried:
            return Proposal(params)
    return None


def _retry(trials: "Sequence[FrozenTrial]", retries: int) -> Proposal | None:
    from optuna.trial import TrialState

    same: dict[str, list[FrozenTrial]] = {}
    for trial in trials:
        same.setdefault(key_of_params(trial.params), []).append(trial)
    for tries in same.values():
        failed = all(trial.state is TrialState.FAIL for trial in tries)
        # The first try is none of the retries.
        if failed and len(tries) <= retries:
            return Proposal(tries[-1].params, retry_of=tries[-1].number)
    return None


def _candidates(plan: Plan, trials: "Sequence[FrozenTrial]") -> Iterator[Params]:
    space = plan.search.space
    sampler = plan.search.sampler
    default = plan.default()
    # First, so that every search can compare its best with the unchanged configuration. A grid that
    # does not contain it stays as the user gave it.
    if default is not None and (sampler.name == "tpe" or default in grid(space, 0)):
        yield default
    if sampler.name == "grid":
        yield from grid(space, sampler.seed)
        return
    yield from _draws(plan, trials)


def _draws(plan: Plan, trials: "Sequence[FrozenTrial]") -> Iterator[Params]:
    """Draw from a copy of the study in memory; the real study gets the whole trial in one write.

    The copy holds the unfinished trials, so that TPE (constant liar) avoids them.
    """
    import optuna

    space = plan.search.space
    config = plan.search.sampler
    # A function of the plan and of the number of trials only, see the module's docstring.
    seed = int(digest([config.seed, len(trials)])[:8], 16)
    tpe = optuna.samplers.TPESampler(
        seed=seed, n_startup_trials=config.startup_trials, constant_liar=True
    )
    # Where TPE keeps repeating itself, random draws find what is left of a small space.
    for sampler in (tpe, optuna.samplers.RandomSampler(seed)):
        copy = optuna.create_study(direction="maximize", sampler=sampler)
        copy.add_trials(trials)
        for _ in range(DRAWS):
            yield tidy(space, copy.ask(distributions(space)).params)


def first(plan: Plan, count: int) -> list[Params]:
    """The first settings of a search that has not begun; later ones depend on results."""
    settings: dict[str, Params] = {}
    # Draws may repeat a setting, so that a few more are made than shown.
    for params in islice(_candidates(plan, []), DRAWS):
        settings.setdefault(key_of_params(params), params)
    return list(settings.values())[:count]
