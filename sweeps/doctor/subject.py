"""What the doctor looks at: one run, an experiment's runs, or a search's."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from scpo.schema import RunConfig, Search
from sweeps.compose.configuration import compose_run
from sweeps.compose.matrix import expand
from sweeps.dispatch import asks_for_search, split_words


@dataclass(frozen=True)
class Subject:
    """The configurations that are about to run, one for each environment, model and kind of method, and how many runs.

    ``search`` is None for a run or an experiment.
    """

    configs: tuple[RunConfig, ...]
    runs: int
    search: Search | None = None

    @property
    def first(self) -> RunConfig:
        """Machine and launcher are the same in all."""
        return self.configs[0]

    @property
    def runs_dir(self) -> Path:
        """Where the run folders lie, or will."""
        return Path(self.first.machine.runs_dir)


def read_subject(words: Sequence[str]) -> Subject:
    """The subject of any words that sweep.py or train.py would take; ConfigError as they give it."""
    if asks_for_search(words):
        return _search(words)
    if any(word.lstrip("+").startswith("experiment=") for word in words):
        name, rest, _ = split_words(words, "experiment")
        runs = expand(name, rest).runs
        return Subject(tuple(_distinct(runs.values())), len(runs))
    return Subject((compose_run(words),), 1)


def _search(words: Sequence[str]) -> Subject:
    from sweeps.search.plan import make_plan

    name, rest, _ = split_words(words, "search")
    plan = make_plan(name, rest)
    return Subject((plan.base,), plan.trials * len(plan.seeds), plan.search)


def _distinct(configs: Iterable[RunConfig]) -> Iterator[RunConfig]:
    """Runs that differ in seed or in settings of a method only need the same of a machine."""
    seen = set()
    for config in configs:
        kind = config.method.kind
        key = (config.env.model_dump_json(), config.model.model_dump_json(), config.scorer.model_dump_json(), kind)
        if key not in seen:
            seen.add(key)
            yield config
