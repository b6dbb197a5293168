"""Semantic consistency policy optimization: reward shaping for group-based RL of LLM agents.

    import scpo

    batch = scpo.StepBatch.from_episodes([scpo.Episode(group="task 1", steps=[...]), ...])
    scorer, method = scpo.load_scorer("exact"), scpo.load_method("scpo", theta=0.5)
    advantage_N, diagnostics = scpo.assign(batch, scorer, method)

    runs = scpo.load_runs("runs")  # or an archive, or "wandb:entity/project": a pandas data frame
    scpo.compare(runs[runs.row == "scpo"], runs[runs.row == "gigpo"])

Each name is imported on first use: ``import scpo`` itself loads nothing, not even NumPy.
``load_runs`` and ``compare`` are in ``analysis``, a layer above scpo: import-linter rejects imports
of ``analysis`` in all other modules of scpo.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "Episode",
    "ScpoError",
    "Step",
    "StepBatch",
    "assign",
    "assign_tokens",
    "compare",
    "contract",
    "load_method",
    "load_runs",
    "load_scorer",
]

_HOMES = {
    "Episode": "scpo.episodes",
    "ScpoError": "scpo.errors",
    "Step": "scpo.episodes",
    "StepBatch": "scpo.steps",
    "assign": "scpo.credit.assign",
    "assign_tokens": "scpo.credit.assign",
    "compare": "analysis.frames",
    "load_method": "scpo.library",
    "load_runs": "analysis.frames",
    "load_scorer": "scpo.library",
}

if TYPE_CHECKING:
    from analysis.frames import compare, load_runs
    from scpo import contract
    from scpo.credit.assign import assign, assign_tokens
    from scpo.episodes import Episode, Step
    from scpo.errors import ScpoError
    from scpo.library import load_method, load_scorer
    from scpo.steps import StepBatch


def __getattr__(name: str) -> Any:
    if name == "contract":
        return import_module("scpo.contract")
    if name not in _HOMES:
        raise AttributeError(
            f"module 'scpo' has no attribute {name!r}; it offers {', '.join(__all__)}"
        )
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
