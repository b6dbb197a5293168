"""verl's own entry point with SCPO: verl's command line, and the run folder.

    python -m scpo.trainers.verl +scpo.run_folder=runs/<id> trainer.v1.trainer_mode=scpo <verl's
    overrides>

`python train.py --prepare trainer=verl key=value ...` creates the folder. This entry point is not
needed for runs on the environments of this project: `python train.py trainer=verl ...` prepares the
data, writes the overrides and trains.
"""

from __future__ import annotations

import sys

import hydra
from omegaconf import DictConfig

from scpo.errors import ConfigError
from scpo.trainers.verl.versions import check_signatures, check_version


@hydra.main(config_path="pkg://verl.trainer.config", config_name="ppo_trainer", version_base=None)
def main(config: DictConfig) -> None:
    """Train with verl's configuration."""
    check_signatures()
    from scpo.trainers.verl.runner import run
    from scpo.trainers.verl.workplace import workplace_of

    # Refuse a missing or damaged run folder before Ray starts.
    workplace_of(config)
    run(config)


if __name__ == "__main__":
    try:
        # Before Hydra looks for verl's configuration, which another version may not have.
        check_version()
    except ConfigError as error:
        sys.exit(str(error))
    main()
