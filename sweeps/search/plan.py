"""Plan of one search at one scale: its settings, its study, its trials and their runs.

The next trial is a function of the plan and the trials so far. Optuna's samplers draw from a state
in memory: after a driver was killed, or a study lost its last lines, they would propose other
trials, and the runs on disk would be wasted. Grids are enumerated here for the same reason:
Optuna's grid sampler picks its next point at random.
"""

import contextlib
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from scpo.benchmarks import BENCHMARKS
from scpo.errors import ConfigError
from scpo.records.identity import HASH_LENGTH, digest, identity, run_id
from scpo.schema.env import TUNING
from scpo.schema.run import RunConfig
from scpo.schema.search import Choice, Dimension, Search, Tuning
from scpo.strict import Scale
from sweeps.compose.configuration import compose_raw, resolve, seeded_runs
from sweeps.compose.effects import repeated, unread_in_space
from sweeps.compose.hints import explain_validation
from sweeps.compose.overrides import Override, parse, parse_all
from sweeps.compose.schema_keys import dotted_keys
from sweeps.search.failed_runs import any_cleared
from sweeps.search.space import (
    Params,
    distributions,
    grid,
    key_of_params,
    point_of,
    size,
    tidy,
    values,
)

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

# Number of draws of each sampler after which a space without a new setting counts as exhausted.
DRAWS = 50

# Folder of all searches, next to the run folders.
SEARCHES = "searches"

# Key of the pruner, which may be null.
PRUNER = "search.pruner"

# Fields that may change during a search: they are not part of its hash.
FREE = ("title", "fresh_seeds", "trials", "parallel", "retries", "storage")

# Keys that a search sets in each of its runs, and where it takes them from.
SET_BY_SEARCH = {
    "seed": "its seeds: 'seeds=[...]'",
    "env": "its environment: env=<name>",
    "model": "its model: model=<name>",
    "scale": "the command line: scale=<name>",
}

# What the axes of an experiment are in a search, for messages.
AXES = {
    "env": "one environment: env=<name>",
    "model": "one model: model=<name>",
    "seeds": "a list of seeds: 'seeds=[0,1]'",
}
T = TypeVar("T")


@dataclass(frozen=True)
class Plan:
    """Search at one scale, environment and model.

    ``overrides`` compose its runs; the values of a trial are set on top of them.
    """

    search: Search
    scale: Scale
    overrides: tuple[Override, ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds that each trial runs on; one that is given twice runs once."""
        return tuple(dict.fromkeys(self._given_seeds))

    @property
    def _given_seeds(self) -> tuple[int, ...]:
        return at_scale(self.search.seeds, self.scale)

    @property
    def trials(self) -> int:
        """The budget: largest number of different settings to try; retries are not counted."""
        return at_scale(self.search.trials, self.scale)

    @property
    def settings(self) -> int:
        """Number of different settings to try: ``trials``, or all of a smaller space."""
        is_grid = self.search.sampler.name == "grid"
        return int(min(self.trials, size(self.search.space, as_grid=is_grid)))

    @property
    def metric(self) -> str:
        """The key in metrics.jsonl whose mean over the seeds is maximised."""
        return f"val/{TUNING}/success_rate"

    @property
    def tuning(self) -> Tuning:
        """The tasks that trials are evaluated on."""
        return at_scale(self.search.tuning, self.scale)

    @functools.cached_property
    def _panels(self) -> dict[str, Any]:
        """Settings of the only validation panel of every run.

        Other validation panels take effect in the winner's experiment only.
        """
        return self.tuning.panels(BENCHMARKS[self.search.env].tasks)

    @functools.cached_property
    def base(self) -> RunConfig:
        """The configuration that the trials vary, at the first seed."""
        return next(seeded_runs(self.overrides, self.seeds[:1], self._panels))

    @property
    def study_id(self) -> str:
        """Name such as ``scpo-alfworld-tiny-1f0c37aa``.

        Its hash covers space, objective and all settings of the runs, but not the budget.
        """
        spec = self.search.model_dump(mode="json", exclude=set(FREE))
        fixed = {key: value for key, value in identity(self.base).items() if key != "seed"}
        whole = digest(
            {"search": spec, "seeds": self._given_seeds, "metric": self.metric, "config": fixed}
        )
        # A model's name may hold a slash, such as Qwen/X.
        model = re.sub(r"[^a-z0-9._-]+", "_", self.base.model.name.lower())
        return f"{self.search.name}-{self.base.env.benchmark}-{model}-{whole[:HASH_LENGTH]}"

    @property
    def folder(self) -> Path:
        """Folder of the study's records and summary."""
        return Path(self.base.machine.runs_dir) / SEARCHES / self.study_id

    def default(self) -> Params | None:
        """Values of the unchanged configuration; None if they are outside of the space."""
        return point_of(self.search.space, self.base)

    def remarks(self) -> list[str]:
        """Lines about seeds given twice, and settings that have no effect on the search's runs."""
        given = {"seeds": self._given_seeds, "search.fresh_seeds": self.search.fresh_seeds}
        space = {name: dimension.key for name, dimension in self.search.space.items()}
        return [
            *repeated(given),
            *self._replaced_panels(),
            *unread_in_space(self._with_each_scorer(), space),
        ]

    def _with_each_scorer(self) -> list[RunConfig]:
        """The run at the first seed with each scorer that a trial may have."""
        for dimension in self.search.space.values():
            if dimension.key == "scorer":
                configs: list[RunConfig] = []
                for name in values(dimension):
                    configs += self.configurations(self.seeds[:1], {"scorer": name})
                return configs
        return [self.base]

    def _replaced_panels(self) -> Iterator[str]:
        """Note overrides of validation panels, in whose place trials have their own."""
        for override in self.overrides:
            for key in self._panels:
                if _sets(override, key) or override.key.startswith(f"{key}."):
                    yield (
                        f"{override} has an effect on the winner's runs only: trials have the "
                        "panels of search.tuning"
                    )
                    break

    def runs(self, params: Params) -> dict[str, RunConfig]:
        """Configurations of a trial's runs by id, one for each seed."""
        key = key_of_params(params)
        if key not in self._composed:
            by_key = {dimension.key: params[name] for name, dimension in self.search.space.items()}
            configs = self.configurations(self.seeds, by_key, self._panels)
            self._composed[key] = {run_id(config): config for config in configs}
        return self._composed[key]

    def configurations(
        self,
        seeds: Iterable[int],
        values: Mapping[str, Any],
        panels: Mapping[str, Any] | None = None,
    ) -> Iterator[RunConfig]:
        """Compose the run at each seed.

        Args:
            seeds: The seeds.
            values: Values by configuration key; for a config group, the name of its file.
            panels: Settings of validation panels by key.
        """
        chosen = []
        # Only choices of files need Hydra; setting plain values afterwards is faster.
        settings = dict(panels or {})
        for key, value in values.items():
            override = parse(f"{key}={value}")
            if override.is_group:
                chosen.append(override)
            else:
                settings[key] = value
        return seeded_runs((*self.overrides, *chosen), seeds, settings)

    # The cache of ``runs``. A cached property, because a frozen dataclass cannot set attributes.
    @functools.cached_property
    def _composed(self) -> dict[str, dict[str, RunConfig]]:
        return {}


def at_scale(value: T | dict[Scale, T], scale: Scale) -> T:
    """The value at ``scale``; ConfigError if it depends on the scale and this one is missing."""
    if not isinstance(value, dict):
        return value
    if scale not in value:
        raise ConfigError(
            f"scale={scale}: the search has no value for this scale in {value}; allowed: scale="
            f"{', '.join(value)}, or add {scale} to it"
        )
    return value[scale]


def make_plan(name: str, overrides: Iterable[str | Override]) -> Plan:
    """Compose a search from its file and the overrides of the command line.

    ``search.<key>=value`` changes the search; ``env``, ``model`` and ``seeds`` replace those of its
    runs, as in an experiment; any other override applies to every run.

    Raises:
        ConfigError: An override is wrong, or sets a key that the search varies.
    """
    given = parse_all(map(str, overrides))
    of_search = [
        override
        for override in given
        if override.key.startswith("search.") or override.key == "scale"
    ]
    _refuse_settings_of_no_pruner(name, of_search)
    raw = resolve(compose_raw([parse(f"+search={name}"), *of_search]))
    axes = _axes(given)
    for override in of_search:
        axis = override.key.removeprefix("search.").partition(".")[0]
        if axis in axes:
            raise ConfigError(f"{override}: {axis}=... in the same call replaces it; give one")
    try:
        search = Search.model_validate(raw["search"] | axes)
    except ValidationError as error:
        raise ConfigError(
            f"conf/search/{name}.yaml:\n{explain_validation(error, Search)}"
        ) from error

    scale: Scale = raw["scale"]
    # Choices come first: later overrides may change keys of the files that they choose.
    chosen = [f"scale={scale}", f"env={search.env}", f"model={at_scale(search.model, scale)}"]
    rest = [*parse_all(search.overrides)]
    for override in given:
        if override not in of_search and override.key not in axes:
            rest.append(override)
    plan = Plan(search, scale, (*parse_all(chosen), *rest))
    _refuse_contradictions(search, rest)
    plan.base.check_started_here()
    _check_seeds(plan)
    _check_space(plan)
    return plan


def _refuse_settings_of_no_pruner(name: str, overrides: Sequence[Override]) -> None:
    """Refuse settings of the pruner in a search without one, with the override that adds one."""
    inside = {}
    for override in overrides:
        if override.key.startswith(f"{PRUNER}."):
            inside[override.key.removeprefix(f"{PRUNER}.")] = override
    if not inside:
        return
    others = [override for override in overrides if override not in inside.values()]
    if compose_raw([parse(f"+search={name}"), *others]).search.pruner is not None:
        return
    given = next(iter(inside.values()))
    settings = []
    for field, example in {"name": "median", "startup_trials": 5, "warmup_steps": 0}.items():
        value = inside[field].value if field in inside else example
        settings.append(f"{field}: {value}")
    raise ConfigError(
        f"{given}: {PRUNER} is null here, so no trial is pruned. To prune: "
        f"'{PRUNER}={{{', '.join(settings)}}}'"
    )


def _check_space(plan: Plan) -> None:
    """Check that each choice and both ends of each range can be composed and make other runs."""
    for name, dimension in plan.search.space.items():
        place = f"search.space.{name}"
        _refuse_repeated(place, dimension)
        _refuse_without_runs(plan, place, dimension)


def _refuse_repeated(place: str, dimension: Dimension) -> None:
    """Refuse a choice with a value twice, and a range that has one value only."""
    points = _outer(dimension)
    for value in points:
        if points.count(value) > 1:
            what = f"{value} is given {points.count(value)} times; give each value once"
            if not isinstance(dimension, Choice):
                what = f"{value} is the only value; the step may be at most high - low"
            raise ConfigError(f"{place}: {what}")


def _refuse_without_runs(plan: Plan, place: str, dimension: Dimension) -> None:
    """Refuse a dimension with a value that cannot run, or with two values that make equal runs."""
    # Set together with a choice of a config group, because not every file that it may choose has
    # the keys that other dimensions vary: such a file cannot run.
    inside = {}
    for each in plan.search.space.values():
        if each.key.startswith(f"{dimension.key}."):
            inside[each.key] = _outer(each)[0]
    # Run id -> value that makes this run.
    value_of: dict[str, Any] = {}
    for value in _outer(dimension):
        try:
            name = _id_with(plan, {dimension.key: value, **inside})
        except ConfigError as error:
            raise ConfigError(f"{place}: {value} cannot run: {error}") from None
        if name in value_of:
            other = value_of[name]
            if not _has_effect_with_others(plan, dimension, other, value):
                raise ConfigError(
                    f"{place}: {dimension.key}={other} and {dimension.key}={value} make the "
                    f"same runs, as {_why_without_effect(dimension)}. Take it out of the space: "
                    f"'~{place}'"
                )
        value_of[name] = value


def _outer(dimension: Dimension) -> list[Any]:
    """All values of a choice, the ends of a range: its inner values are assumed to be as valid."""
    points = values(dimension)
    return points if isinstance(dimension, Choice) else [points[0], points[-1]]


def _id_with(plan: Plan, settings: Mapping[str, Any]) -> str:
    return run_id(next(plan.configurations(plan.seeds[:1], settings)))


def _has_effect_with_others(plan: Plan, varied: Dimension, one: Any, other: Any) -> bool:
    """True if two values make other runs where another dimension has another value.

    For example ``env.wordings.seed``, which is read at a dose of wordings above 0 only.
    """
    for each in plan.search.space.values():
        if each is varied:
            continue
        for value in _outer(each):
            # A combination that cannot run shows nothing.
            with contextlib.suppress(ConfigError):
                first = _id_with(plan, {each.key: value, varied.key: one})
                if first != _id_with(plan, {each.key: value, varied.key: other}):
                    return True
    return False


def _why_without_effect(dimension: Dimension) -> str:
    # Of the parsed override, only the key is used; null can be given to any.
    if parse(f"{dimension.key}=null").of_machine:
        return "settings of this section do not change what a run computes"
    return "this configuration does not read the setting"


def _axes(overrides: Iterable[Override]) -> dict[str, Any]:
    """Values of ``env``, ``model`` and ``seeds`` among the overrides.

    Raises:
        ConfigError: One of them has no value or several (``seeds=1,2``), or ``seed`` is set.
    """
    chosen = {}
    for override in overrides:
        if override.key == "seed":
            raise ConfigError(f"{override}: a trial runs on several seeds: 'seeds=[...]'")
        if override.key in AXES:
            # None also for ``key=a,b``.
            if override.value is None:
                raise ConfigError(f"{override}: a search takes {AXES[override.key]}")
            chosen[override.key] = override.value
    return chosen


def _refuse_contradictions(search: Search, overrides: Iterable[Override]) -> None:
    """Refuse keys that are set in two ways: by search, dimensions and overrides of the runs."""
    for override in parse_all(search.overrides):
        if override.key in SET_BY_SEARCH:
            raise ConfigError(
                f"search.overrides: {override} cannot be set there: a search takes it from "
                f"{SET_BY_SEARCH[override.key]}"
            )
    varied_by: dict[str, str] = {}
    for name, dimension in search.space.items():
        # Several models are compared on the same seeds and tasks.
        if dimension.key in SET_BY_SEARCH and dimension.key != "model":
            raise ConfigError(
                f"search.space.{name}: {dimension.key} cannot be searched: a search takes it from "
                f"{SET_BY_SEARCH[dimension.key]}. Take it out of the space: '~search.space.{name}'"
            )
        first = varied_by.setdefault(dimension.key, name)
        if first != name:
            raise ConfigError(
                f"search.space.{first} and search.space.{name} both vary {dimension.key}, of which "
                f"a run has one value. Change the values of {first} instead: "
                f"{_change_of(search, first)}; or take it out of the space: "
                f"'~search.space.{first}'"
            )
    for override in overrides:
        for name, dimension in search.space.items():
            if _sets(override, dimension.key):
                raise ConfigError(
                    f"{override}: the search varies {dimension.key} itself. Leave it out, or take "
                    f"it out of the space: '~search.space.{name}'"
                )


def _change_of(search: Search, name: str) -> str:
    """The overrides that change the values of a dimension."""
    if isinstance(search.space[name], Choice):
        return f"'search.space.{name}.values=[...]'"
    return f"search.space.{name}.low=... search.space.{name}.high=..."


def _sets(override: Override, key: str) -> bool:
    """True if an override sets a key, by itself or in a mapping (``method.shaper={theta: 1}``)."""
    inside = dotted_keys(override.value, f"{override.key}.")
    return key in (override.key, *inside)


def _check_seeds(plan: Plan) -> None:
    if shared := sorted(set(plan.seeds) & set(plan.search.fresh_seeds)):
        raise ConfigError(
            f"seeds {shared} are in seeds and in search.fresh_seeds: a winner is never reported "
            "on the seeds it was chosen on. Name others"
        )


@dataclass(frozen=True)
class Proposal:
    """Trial to be created; ``retry_of`` is the number of the failed trial that it repeats."""

    params: Params
    retry_of: int | None = None


def propose(plan: Plan, trials: "Sequence[FrozenTrial]") -> Proposal | None:
    """Propose the next trial; None if nothing is left to try.

    The order: failed trials with a retry left, the unchanged configuration, draws of the sampler.
    Draws are seeded with (seed, number of trials): another driver, or a driver of a study that lost
    its last records, proposes the same trials again, and their runs are on disk already.
    """
    again = _retry(plan, trials)
    if again is not None:
        return again
    tried = {key_of_params(trial.params) for trial in trials}
    # The budget counts settings, not trials, so that retries are free.
    if len(tried) >= plan.trials:
        return None
    for params in _candidates(plan, trials):
        if key_of_params(params) not in tried:
            return Proposal(params)
    return None


def _retry(plan: Plan, trials: "Sequence[FrozenTrial]") -> Proposal | None:
    """Repeat of the first settings whose tries have all failed, if they may be tried again."""
    for tries in tries_by_settings(trials):
        if _all_failed(tries) and not given_up(plan, tries):
            return Proposal(tries[-1].params, retry_of=tries[-1].number)
    return None


def tries_by_settings(trials: "Sequence[FrozenTrial]") -> "list[list[FrozenTrial]]":
    """Group the trials with the same settings: a first try and its retries."""
    groups: dict[str, list[FrozenTrial]] = {}
    for trial in trials:
        groups.setdefault(key_of_params(trial.params), []).append(trial)
    return list(groups.values())


def _all_failed(tries: "Sequence[FrozenTrial]") -> bool:
    """True if each of these trials has failed."""
    return all(trial.state.name == "FAIL" for trial in tries)


def given_up(plan: Plan, tries: "Sequence[FrozenTrial]") -> bool:
    """True if all tries of some settings have failed and they are not tried again.

    They are tried again while they have a retry left (the first try is not one), and after a
    person has let a run that failed the last try start again.
    """
    retry_left = len(tries) - 1 < plan.search.retries
    return (
        _all_failed(tries)
        and not retry_left
        and not any_cleared(Path(plan.base.machine.runs_dir), tries[-1])
    )


def _candidates(plan: Plan, trials: "Sequence[FrozenTrial]") -> Iterator[Params]:
    """Settings in the order in which they are proposed; some may have been tried already."""
    space = plan.search.space
    sampler = plan.search.sampler
    default = plan.default()
    # The unchanged configuration comes first, so that every search can compare its best with it. A
    # grid that does not contain it is searched without it.
    if default is not None and (sampler.name == "tpe" or default in grid(space, 0)):
        yield default
    if sampler.name == "grid":
        yield from grid(space, sampler.seed)
        return
    yield from _draws(plan, trials)


def _draws(plan: Plan, trials: "Sequence[FrozenTrial]") -> Iterator[Params]:
    """Draw from a copy of the study in memory.

    In the study itself, drawing would create the trial before it is complete; ``Study`` creates it
    in one write. The copy holds unfinished trials too, which TPE (constant liar) avoids.
    """
    import optuna

    space = plan.search.space
    config = plan.search.sampler
    # Depends only on the plan and the number of trials (see the module's docstring).
    seed = int(digest([config.seed, len(trials)])[:8], 16)
    tpe = optuna.samplers.TPESampler(
        seed=seed, n_startup_trials=config.startup_trials, constant_liar=True
    )
    # If TPE only repeats earlier settings, random draws find the rest of a small space.
    for sampler in (tpe, optuna.samplers.RandomSampler(seed)):
        copy = optuna.create_study(direction="maximize", sampler=sampler)
        copy.add_trials(trials)
        for _ in range(DRAWS):
            yield tidy(space, copy.ask(distributions(space)).params)


def first(plan: Plan, count: int) -> list[Params]:
    """The first ``count`` settings of a search that has not begun, or all that need no results.

    A trial's draw is seeded with the number of trials before it, so the trials are made one by one,
    as a driver does. They stay unfinished: the first ``startup_trials`` draws read no result.
    """
    import optuna

    if plan.search.sampler.name == "tpe":
        count = min(count, plan.search.sampler.startup_trials)
    trials: list[FrozenTrial] = []
    for _ in range(count):
        proposal = propose(plan, trials)
        if proposal is None:
            break
        trials.append(
            optuna.create_trial(
                state=optuna.trial.TrialState.RUNNING,
                params=proposal.params,
                distributions=distributions(plan.search.space),
            )
        )
    return [trial.params for trial in trials]
