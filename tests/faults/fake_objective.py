"""A trainer whose validation success has a known optimum, theta=0.7 and soft_base=0.2; FAKE_STEP_S slows it down."""

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from scpo.tracking import RunFolder, Tracker
from scpo.tracking.folder import CHECKPOINT_MARKER
from sweeps import entry

OBJECTIVE = "val/train_games/success_rate"


def success(config, step):
    """Grows linearly over training; two seeds lie 0.02 apart."""
    shaper = config.method.shaper
    end = 0.9 - abs(shaper.theta - 0.7) - 0.5 * abs(shaper.soft_base - 0.2) + 0.02 * config.seed
    return end * step / config.trainer.steps


def train(config, folder, should_stop):
    """Validate at every step, checkpoint every ``checkpoint_every`` steps and when asked to stop."""
    with (folder.path / "starts").open("a") as file:
        file.write(f"{os.getpid()}\n")
    if os.environ.get("FAKE_FAIL_THETA") == str(config.method.shaper.theta):
        raise ValueError("this theta fails on purpose")
    done = folder.complete_checkpoints()
    with Tracker(folder, config) as tracker:
        tracker.resume_at(done[-1] if done else -1)
        for step in range(done[-1] + 1 if done else 0, config.trainer.steps + 1):
            time.sleep(float(os.environ.get("FAKE_STEP_S", "0")))
            tracker.log(step, {OBJECTIVE: success(config, step)}, {})
            stop = should_stop()
            if stop or step % config.trainer.checkpoint_every == 0:
                folder.checkpoint(step).mkdir(parents=True, exist_ok=True)
                (folder.checkpoint(step) / CHECKPOINT_MARKER).touch()
            if stop:
                return


if __name__ == "__main__":
    sys.exit(entry.run(RunFolder(sys.argv[1]), train, int(sys.argv[3]) if len(sys.argv) > 3 else None))
