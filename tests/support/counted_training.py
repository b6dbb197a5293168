"""train.py, all of it but the training, which counts its steps; records, checkpoints and mirror are real."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import train
from tests.faults.counting import count


def counted(config, folder, should_stop):
    """Success rises by a thousandth a step, and no group is ever active, which a rule of health finds."""
    metrics = {"credit/active_groups": 0.0}
    count(config, folder, should_stop, lambda step: ({"val/valid_seen/success_rate": step / 1000, **metrics}, {}))


if __name__ == "__main__":
    train.train = counted
    sys.exit(train.main())
