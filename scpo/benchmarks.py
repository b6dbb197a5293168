"""Descriptions of the benchmarks, for records, tables, figures and estimates.

Everything outside ``scpo/envs`` that depends on the benchmark is a field here, so that a new
environment adds one entry instead of a branch in each reader. The module imports nothing: the
commands that only list or draw runs start without the environments and their packages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

# Validation panel whose tasks are trained on; the tasks of all other panels are held out.
TRAINED_ON = "train_games"


@dataclass(frozen=True)
class Family:
    """Task family of a benchmark.

    Attributes:
        id: Name in the benchmark's files and in records.
        label: Name in running text.
    """

    id: str
    label: str


@dataclass(frozen=True)
class Benchmark:
    """Description of a benchmark.

    Attributes:
        label: Name in print.
        tasks: Plural of a task: the settings key of a panel's size, and the noun in messages.
        judged: Scale -> panel whose success rate is the result.
        mean_prompt_tokens: Mean length of recorded prompts, counted with Qwen2.5's tokenizer.
        longest_prompt_tokens: Length of the longest of these prompts.
        families: Column of the result table -> task family; empty if results are not split.
        panel_titles: Names of its panels in figures, where they differ from the usual ones.
        paper_hours: Hours of one SCPO run in the paper, at 1.5B and 7B; None if it reports none.
        paper_horizon: Maximum steps of an episode in the paper; None if ``paper_hours`` is None.
        states_from_text: True if the states can be read from the texts in verl-agent's batch.
    """

    label: str
    tasks: str
    judged: Mapping[str, str]
    mean_prompt_tokens: int
    longest_prompt_tokens: int
    families: Mapping[str, Family] = field(default_factory=dict)
    panel_titles: Mapping[str, str] = field(default_factory=dict)
    paper_hours: tuple[float, float] | None = None
    paper_horizon: int | None = None
    states_from_text: bool = False


_ALFWORLD = Benchmark(
    label="ALFWorld",
    tasks="games",
    # A tiny language model improves only on its training games (REPRODUCTION.md, "Mini scale").
    judged={"mini": "train_games", "study": "valid_seen", "paper": "valid_seen"},
    mean_prompt_tokens=468,
    longest_prompt_tokens=1034,
    # Columns in the order of the paper's Table 1.
    families={
        "Pick": Family("pick_and_place_simple", "pick and place"),
        "Look": Family("look_at_obj_in_light", "look at an object in light"),
        "Clean": Family("pick_clean_then_place_in_recep", "clean and place"),
        "Heat": Family("pick_heat_then_place_in_recep", "heat and place"),
        "Cool": Family("pick_cool_then_place_in_recep", "cool and place"),
        "Pick2": Family("pick_two_obj_and_place", "pick two and place"),
    },
    paper_hours=(13.0, 36.0),  # appendix A.2
    paper_horizon=50,  # section 4.1
    states_from_text=True,
)
_WEBSHOP = Benchmark(
    label="WebShop",
    tasks="goals",
    judged={"mini": "test", "study": "test", "paper": "test"},
    mean_prompt_tokens=736,
    longest_prompt_tokens=1596,
    # No families: the paper's table has one success rate and one score for WebShop.
    panel_titles={"train_games": "goals trained on", "test": "held-out goals"},
    paper_hours=(7.0, 27.0),  # appendix A.2
    paper_horizon=15,  # section 4.1
)

BENCHMARKS: dict[str, Benchmark] = {
    "alfworld": _ALFWORLD,
    "webshop": _WEBSHOP,
    # env.setting=paper: results of the two settings never share a table.
    "webshop_paper": replace(_WEBSHOP, label="WebShop (the paper's text)"),
}
"""Descriptions by the name of the benchmark in results, ``EnvConfig.benchmark``."""


def with_families(benchmark: str) -> bool:
    """Return True if the benchmark's results are split by task family.

    False for an unregistered name, for example in a record of an environment that was removed.
    """
    if benchmark not in BENCHMARKS:
        return False
    return bool(BENCHMARKS[benchmark].families)
