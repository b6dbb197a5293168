"""train.py with a trainer that learns nothing; STEP_S holds {seed: seconds a step}, as JSON. It stands in a copy of the
repository: jobs find it in their snapshot where train.py is.
"""

import hashlib
import json
import os
import sys
import time

from scpo.records import RunFolder
from scpo.records.run_folders import TRAINING_PANELS
from scpo.records.tracker import Tracker
from sweeps.records import attempt as entry


def metrics(config, step):
    """What a reader expects of every run: the training success, and that of each panel where a validation is due."""
    rate = (step / 7 + config.seed) / 100
    logged = {"train/success_rate": rate}
    if step % config.trainer.validation.every == 0 or step == config.trainer.steps:
        logged |= {f"val/{panel}/success_rate": rate for panel in config.env.validation_panels}
    return logged


def train(config, folder, should_stop):
    with (folder.path / "starts").open("a") as file:
        file.write((os.environ.get("CUDA_VISIBLE_DEVICES") or "none") + "\n")
    names = (*TRAINING_PANELS, *config.env.validation_panels)
    folder.pin_panels({name: {"sha256": hashlib.sha256(name.encode()).hexdigest(), "tasks": [name]} for name in names})
    shaper = config.method.shaper if config.method.kind == "trained" else None
    pace = json.loads(os.environ["STEP_S"]).get(f"{shaper.order if shaper else ''}-{config.seed}", 0.1)
    done = folder.complete_checkpoints()
    with Tracker(folder, config) as tracker:
        tracker.resume_at(done[-1] if done else -1)
        for step in range(done[-1] + 1 if done else 0, config.trainer.steps + 1):
            time.sleep(pace)
            tracker.log(step, metrics(config, step), {"step_s": pace})
            stop = should_stop()
            if stop or step % config.trainer.checkpoint_every == 0:
                folder.checkpoint(step).mkdir(parents=True, exist_ok=True)
                folder.mark_complete(step, {}, tracker.sums)
            if stop:
                return


if __name__ == "__main__":
    sys.exit(entry.run(RunFolder(sys.argv[1]), train, int(sys.argv[3])))
