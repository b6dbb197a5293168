"""What the stand-ins for train.py share: training that only counts its steps, with records and checkpoints as real."""

import hashlib
import os
import time

from scpo.records.run_folders import TRAINING_PANELS
from scpo.records.tracker import Tracker


def count(config, folder, should_stop, values):
    """Log ``values(step)``, metrics and timing; checkpoint every ``checkpoint_every`` steps and when asked to stop.

    FAKE_STEP_S is how long a step takes; while a file FAKE_HELD is there, none ends. Each start leaves its process id
    in the file ``starts``.
    """
    with (folder.path / "starts").open("a") as file:
        file.write(f"{os.getpid()}\n")
    pin_panels(folder, config)
    done = folder.complete_checkpoints()
    with Tracker(folder, config) as tracker:
        tracker.resume_at(done[-1] if done else -1)
        for step in range(done[-1] + 1 if done else 0, config.trainer.steps + 1):
            time.sleep(float(os.environ.get("FAKE_STEP_S", "0")))
            while os.path.exists(os.environ.get("FAKE_HELD", "")):
                time.sleep(0.02)
            metrics, timing = values(step)
            tracker.log(step, validation(config, step) | metrics, timing)
            stop = should_stop()
            if stop or step % config.trainer.checkpoint_every == 0:
                folder.checkpoint(step).mkdir(parents=True, exist_ok=True)
                folder.mark_complete(step, {}, tracker.sums)
            if stop:
                return


def pin_panels(folder, config):
    """One game on each panel."""
    names = (*TRAINING_PANELS, *config.env.validation_panels)
    folder.pin_panels({name: {"sha256": hashlib.sha256(name.encode()).hexdigest(), "tasks": [name]} for name in names})


def validation(config, step):
    """Nothing won: what a run logs whenever it validates."""
    if step % config.trainer.validation.every and step != config.trainer.steps:
        return {}
    return {f"val/{panel}/success_rate": 0.0 for panel in config.env.validation_panels}
