"""How long a run takes on the paper's hardware, as far as the paper says."""

from collections.abc import Iterable

from scpo.schema import RunConfig

PAPER_GPUS = 4  # appendix A.2: one node of 4 x A800 80 GB
PAPER_STEPS = 150  # Table 3
PAPER_HOURS = {  # appendix A.2, one SCPO run
    ("alfworld", "1.5B"): 13.0,
    ("webshop", "1.5B"): 7.0,
    ("alfworld", "7B"): 36.0,
    ("webshop", "7B"): 27.0,
}


def hours(config: RunConfig) -> float | None:
    """Hours of one run on 4 x A800, scaled by its training steps; None where the paper gives no figure.

    The paper tells what SCPO's runs took, of which the shaper is about a tenth (section "Computational cost"): other
    methods that train are counted the same. Evaluations and runs at mini scale have no figure.
    """
    if config.scale != "paper" or config.method.kind == "prompted":
        return None
    whole = PAPER_HOURS.get((config.env.name, config.model.name))
    return None if whole is None else whole * config.trainer.steps / PAPER_STEPS


def gpu_hours(configs: Iterable[RunConfig]) -> tuple[float, int]:
    """GPU-hours of the runs that have a figure, and how many have none."""
    known = [hours(config) for config in configs]
    return sum(PAPER_GPUS * one for one in known if one is not None), known.count(None)
