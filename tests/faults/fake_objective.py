"""A trainer whose validation success has a known optimum, theta=0.7 and soft_base=0.2; FAKE_STEP_S slows it down."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from scpo.records import RunFolder
from sweeps.records import attempt as entry
from tests.faults.counting import count

OBJECTIVE = "val/tuning/success_rate"


def success(config, step):
    """Grows linearly over training; two seeds lie 0.02 apart."""
    shaper = config.method.shaper
    end = 0.9 - abs(shaper.theta - 0.7) - 0.5 * abs(shaper.soft_base - 0.2) + 0.02 * config.seed
    return end * step / config.trainer.steps


def train(config, folder, should_stop):
    """Validate at every step."""

    def values(step):
        if os.environ.get("FAKE_FAIL_THETA") == str(config.method.shaper.theta):
            raise ValueError("this theta fails on purpose")
        return {OBJECTIVE: success(config, step)}, {}

    count(config, folder, should_stop, values)


if __name__ == "__main__":
    sys.exit(entry.run(RunFolder(sys.argv[1]), train, int(sys.argv[3]) if len(sys.argv) > 3 else None))
