"""verl-agent's main with SCPO in its task runner.

    python -m scpo.integrations.verl_agent runs/<id> [verl-agent's overrides ...]

`python train.py --prepare scale=paper trainer=verl_agent method=scpo` makes the folder. The fork's
overrides are generated from it and shown; overrides from the command line come after them. The
fork's modules (`verl`, `agent_system`, `gigpo`) must be importable.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scpo.errors import ConfigError, ScpoError, first_line
from scpo.integrations.verl_agent.fork_settings import command_line, settings
from scpo.integrations.verl_agent.hooks import Hooks, install
from scpo.records import RunFolder, run_config
from scpo.scoring.ray_scorer import open_ray_scorer, remember_gpus

logger = logging.getLogger(__name__)


def open_hooks(run_folder: str) -> Hooks:
    """Create the hooks for one process of a run, with a scorer if the method needs one."""
    folder = RunFolder(run_folder)
    config = run_config.read_config(folder)
    scorer = open_ray_scorer(config, on_gpu=True) if config.trained.needs_scorer else None
    return Hooks(config, folder, scorer)


def hooked_runner(task_runner: Any) -> Any:
    """The fork's task runner, a Ray actor class, with the hooks installed in its process."""
    import ray

    # Ray wraps the class of an actor, and only the class inside can be inherited from.
    class HookedTaskRunner(task_runner.__ray_metadata__.modified_class):  # type: ignore[misc]
        """Install the hooks, then run the fork's task runner."""

        def run(self, config: Any) -> None:
            install(open_hooks(config.scpo.run_folder))
            super().run(config)

    # One CPU, as the fork requests for its own task runner.
    return ray.remote(num_cpus=1)(HookedTaskRunner)


def main(run_folder: str, typed: Sequence[str]) -> None:
    """Generate the fork's overrides and run its training.

    Args:
        run_folder: Folder of a prepared run.
        typed: Overrides from the command line, which win over generated ones.
    """
    folder = RunFolder(Path(run_folder).resolve())
    run = run_config.read_config(folder)
    check_packages()
    chosen = settings(run, folder.path)
    for setting in chosen:
        logger.info("%s    (%s)", setting.override, setting.source)
    # Imported here: only verl-agent's environment has the fork, and a missing package has been
    # reported above.
    from verl.trainer import main_ppo

    config = compose_fork(
        Path(main_ppo.__file__).with_name("config"), command_line(run, chosen, typed)
    )
    # `run_ppo` starts Ray and looks the class up in its module.
    main_ppo.TaskRunner = hooked_runner(main_ppo.TaskRunner)
    remember_gpus()
    main_ppo.run_ppo(config)


def check_packages() -> None:
    """Check that this is the fork's environment, before anything is written or loaded.

    Raises:
        ConfigError: A package is missing; the message explains the fix.
    """
    missing = [
        name for name in ("ray", "verl", "agent_system") if importlib.util.find_spec(name) is None
    ]
    if missing:
        raise ConfigError(
            f"verl-agent's environment is needed, this one lacks {', '.join(missing)}: activate "
            "it, with its checkout on PYTHONPATH (docs/verl.md, section verl-agent)"
        )


def compose_fork(folder: Path, overrides: Sequence[str]) -> Any:
    """Compose the fork's configuration in ``folder`` with these overrides.

    The fork's own Hydra decorator finds the folder only if the fork runs as a script.

    Raises:
        ConfigError: An override has an unknown key.
    """
    from hydra import compose, initialize_config_dir
    from hydra.errors import HydraException

    with initialize_config_dir(str(folder.resolve()), version_base=None):
        try:
            return compose("ppo_trainer", overrides=list(overrides))
        except HydraException as error:
            raise ConfigError(
                f"verl-agent's configuration refuses an override: {first_line(error)}"
            ) from error


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    try:
        main(sys.argv[1], sys.argv[2:])
    except ScpoError as error:
        sys.exit(str(error))
