"""verl's task runner, with the trainer of this project registered in its process."""

from __future__ import annotations

import copy
import signal
import threading
from typing import Any

import ray
from verl.trainer import main_ppo
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import validate_config
from verl.utils.device import auto_set_device

from scpo.scoring.ray_scorer import remember_gpus
from scpo.stop_signals import STOP_SIGNALS

# The class that Ray's actor class wraps, because an actor class cannot be subclassed.
_TaskRunner = main_ppo.TaskRunnerV1.__ray_metadata__.modified_class


class ScpoTaskRunner(_TaskRunner):  # type: ignore[misc, valid-type]
    """The actor that holds the trainer."""

    def run(self, config: Any) -> None:
        """Register the trainer in this process, where verl looks it up, then train."""
        from scpo.trainers.verl import trainer  # noqa: F401

        super().run(config)


class KeepsStopSignals:
    """Creates the task runner for verl and restores the signal handlers of this process.

    When Ray starts, it replaces the handler of SIGTERM by one that aborts the process, so that a
    run that is asked to stop would lose its step. verl calls ``remote`` right after starting Ray.
    """

    def __init__(self) -> None:
        self.handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}

    def remote(self) -> Any:
        """Return the task runner, as ``remote`` of a Ray actor class does."""
        if threading.current_thread() is threading.main_thread():
            # Python allows handlers to be set in the main thread only.
            for number, handler in self.handlers.items():
                signal.signal(number, handler)
        return ray.remote(ScpoTaskRunner).remote()


def run(config: Any) -> None:
    """Run ``verl.trainer.main_ppo`` on a composed configuration, with ``ScpoTaskRunner``."""
    auto_set_device(config)
    validate_config(
        _in_tasks(config),
        use_reference_policy=need_reference_policy(config),
        use_critic=need_critic(config),
    )
    remember_gpus()
    main_ppo.run_ppo(config, task_runner_class=KeepsStopSignals())


def _in_tasks(config: Any) -> Any:
    """Copy that passes verl's check of the batch size, which expects one row for each episode.

    An episode here has a row for each step, so that fewer episodes than the check expects fill a
    mini-batch.
    """
    checked = copy.deepcopy(config)
    checked.data.train_batch_size = max(
        checked.data.train_batch_size, checked.actor_rollout_ref.actor.ppo_mini_batch_size
    )
    return checked
