"""A trainer that learns nothing, fast, in the place of train.py; FAKE_STEP_S, FAKE_FAIL_SEED and FAKE_HANG steer it."""

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from scpo.tracking import RunFolder, Tracker
from scpo.tracking.folder import CHECKPOINT_MARKER
from sweeps import entry


def train(config, folder, should_stop):
    """Log deterministic values, checkpoint after every ``checkpoint_every`` steps and when asked to stop."""
    with (folder.path / "starts").open("a") as file:
        file.write(f"{os.getpid()}\n")
    if os.environ.get("FAKE_FAIL_SEED") == str(config.seed):
        raise ValueError(f"seed {config.seed} fails on purpose")
    done = folder.complete_checkpoints()
    with Tracker(folder, config) as tracker:
        tracker.resume_at(done[-1] if done else -1)
        for step in range(done[-1] + 1 if done else 0, config.trainer.steps + 1):
            time.sleep(float(os.environ.get("FAKE_STEP_S", "0")))
            tracker.log(step, {"train/success_rate": step / 7 + config.seed}, {"step_s": time.monotonic()})
            stop = should_stop() and os.environ.get("FAKE_HANG") is None
            if stop or step % config.trainer.checkpoint_every == 0:
                folder.checkpoint(step).mkdir(parents=True, exist_ok=True)
                (folder.checkpoint(step) / CHECKPOINT_MARKER).touch()
            if stop:
                return


if __name__ == "__main__":
    sys.exit(entry.run(RunFolder(sys.argv[1]), train, int(sys.argv[3]) if len(sys.argv) > 3 else None))
