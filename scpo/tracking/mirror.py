"""A copy of the metrics in Weights & Biases. Training never waits for it and never dies of it."""

import logging
import math
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any

from scpo.errors import first_line
from scpo.schema import RunConfig
from scpo.tracking.folder import RunFolder
from scpo.tracking.wandb_run import init_settings, keep_address, unheeded

logger = logging.getLogger(__name__)

Task = Callable[[], object]
PROGRAM = "train.py"


class WandbMirror:
    """Sends metrics to W&B from a thread of its own: a server that is slow, gone or dying delays only that thread.

    The first failure, at init, log or finish, is one warning; after it the mirror is silent.
    """

    def __init__(self, folder: RunFolder, config: RunConfig) -> None:
        self._folder = folder
        self._config = config
        self._run: Any = None
        self._abandoned = False
        self._tasks: queue.Queue[Task | None] = queue.Queue()
        self._thread: threading.Thread | None = None
        if config.wandb.mode != "disabled":
            self._thread = threading.Thread(target=self._work, name="wandb-mirror", daemon=True)
            self._thread.start()

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Queue the values of one step; non-finite ones, null in metrics.jsonl, are left out."""
        finite = {name: float(value) for name, value in values.items() if math.isfinite(value)}
        if self._thread is not None:
            self._tasks.put(lambda: self._run.log(finite, step=step))

    def alert(self, title: str, text: str) -> None:
        """Queue an alert, which W&B sends by mail or Slack as its user has set it."""
        if self._thread is not None:
            self._tasks.put(lambda: self._run.alert(title=title, text=text))

    def finish(self, exit_code: int = 0) -> None:
        """Let W&B write what is queued, for at most ``finish_timeout_s``."""
        if self._thread is None:
            return
        self._tasks.put(lambda: self._run.finish(exit_code=exit_code))
        self._tasks.put(None)
        limit = self._config.wandb.finish_timeout_s
        self._thread.join(limit)
        if self._thread.is_alive():
            self._abandoned = True
            logger.warning(
                "W&B did not finish within %g s and is left behind; %s is whole", limit, self._folder.metrics
            )
        self._thread = None

    def _work(self) -> None:
        try:
            self._init()
            while (task := self._tasks.get()) is not None:
                task()
        except ImportError:
            logger.info("wandb is not installed, metrics are not mirrored; pip install 'scpo[track]' adds it")
        except Exception as error:  # noqa: BLE001 (whatever goes wrong in the mirror, training goes on)
            if self._abandoned:
                return
            logger.warning(
                "W&B mirror stopped: %s. Training goes on; %s is whole", first_line(error), self._folder.metrics
            )

    def _init(self) -> None:
        import wandb  # optional, and slow to import

        config = self._config
        if names := unheeded():
            logger.warning(
                "%s: not read here. A run's name and id in W&B are those of its folder, in which its files are, and it "
                "goes on by itself; without W&B: WANDB_MODE=disabled",
                ", ".join(names),
            )
        self._run = wandb.init(
            **init_settings(self._folder, config),
            settings=wandb.Settings(
                init_timeout=config.wandb.init_timeout_s,
                silent=True,
                console="off",  # stdout stays ours
                disable_git=True,  # the commit is in the config, provenance.json holds the rest of the code's state
                disable_code=True,
                x_disable_meta=True,  # the machine's names; x_disable_machine_info would end the system metrics too
                host="",  # else its name would be in the run all the same
                program=PROGRAM,  # else the path of what was started
            ),
        )
        for metric in ("train/*", "val/*", "credit/*", "actor/*"):
            self._run.define_metric(metric, summary="max,last")
        keep_address(self._folder, self._run, config.wandb.mode)
        if self._run.url:
            logger.info("W&B: %s", self._run.url)
