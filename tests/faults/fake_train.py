"""A trainer that learns nothing, fast, in the place of train.py; FAKE_FAIL_SEED and FAKE_HANG steer it, and what
``counting`` reads.
"""

import logging
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from scpo.records import RunFolder
from sweeps.records import attempt as entry
from tests.faults.counting import count


def train(config, folder, should_stop):
    def values(step):
        if os.environ.get("FAKE_FAIL_SEED") == str(config.seed):
            raise ValueError(f"seed {config.seed} fails on purpose")
        return {"train/success_rate": (step / 7 + config.seed) / 100}, {"step_s": time.monotonic()}

    count(config, folder, lambda: should_stop() and os.environ.get("FAKE_HANG") is None, values)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    sys.exit(entry.run(RunFolder(sys.argv[1]), train, int(sys.argv[3]) if len(sys.argv) > 3 else None))
