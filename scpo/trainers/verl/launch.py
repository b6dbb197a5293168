"""Run training on verl: prepare policy and data, record verl's configuration, train."""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from scpo.diagnostics.validation_episodes import panel_records
from scpo.envs.base import CachingEnvironment, DemonstratingEnvironment
from scpo.errors import ConfigError, first_line
from scpo.policies.kept import made_once
from scpo.progress import progress
from scpo.records import RunFolder
from scpo.records.files import write_bytes, write_yaml
from scpo.schema.model import TinyModel
from scpo.stop_signals import STOP_SIGNALS
from scpo.trainers.verl import sockets, update_guard
from scpo.trainers.verl.checkpoints import newest, verl_folder
from scpo.trainers.verl.cpu.cpu_settings import cpu_environment, cpu_settings
from scpo.trainers.verl.data import TRAIN, training_rows, validation_rows, write_parquet
from scpo.trainers.verl.readiness import (
    attention,
    check_machine,
    gpu_settings,
    own_ray,
    ray_settings,
    temp_variables,
    trainer_of,
)
from scpo.trainers.verl.verl_settings import Files, settings
from scpo.trainers.verl.versions import check_signatures, check_version
from scpo.trainers.verl.workplace import Workplace
from scpo.verl_config import Setting, ray_temp_folder

if TYPE_CHECKING:
    from scpo.schema.run import RunConfig

logger = logging.getLogger(__name__)

PLAIN_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
"""Chat template that passes text through; verl requires a template of every policy."""

# Ours; the nodes of a job start their Ray within seconds of each other.
NODES_DEADLINE_S = 300.0
NODES_POLL_S = 1.0

# Ours; number of games that are opened in advance between two checks for a stop.
CACHED_AT_ONCE = 256
START_RAY = (
    "Start it: ray start --head --port=6379 on the first node, ray start --address=<its name>:6379 "
    "on the others"
)


def check_before_network(config: RunConfig) -> None:
    """Check packages, GPUs, memory and cores; called before any network access."""
    check_version()
    check_machine(config)


def train(config: RunConfig, folder: RunFolder, should_stop: Callable[[], bool]) -> None:
    """See :func:`scpo.trainers.train`."""
    check_version()
    words = prepare(config, folder, should_stop)

    # The first import of verl, which reads the environment variables that `prepare` has set.
    check_signatures()
    verl_config = compose_verl(words)
    write_yaml(folder.path / "verl_config.yaml", OmegaConf.to_container(verl_config, resolve=True))
    verl = trainer_of(config).verl
    with _stop_file(Workplace(config, folder).stop_file, should_stop):
        if verl.nodes == 1 or wait_for_nodes(verl.nodes, verl.gpus, should_stop):
            _run(verl_config)

    # After an error the folder is kept, for Ray's logs. A run on several nodes has none, because it
    # joined another Ray.
    shutil.rmtree(ray_temp_folder(folder.path), ignore_errors=True)


def prepare(config: RunConfig, folder: RunFolder, should_stop: Callable[[], bool]) -> list[str]:
    """Write verl's files and command line into the run folder; may be called again.

    Sets environment variables of this process, which verl and a Ray of the run's own read.

    Returns:
        verl's overrides: the run's settings, then ``trainer.verl.overrides``, which win.

    Raises:
        ConfigError: The configuration does not fit the machine.
    """
    on_cpu = check_machine(config)
    # Ray's processes may have another working directory.
    place = Workplace(config, RunFolder(folder.path.resolve()))
    place.folder.pin_panels(panel_records(place.environment, config))
    _fill_caches(place, should_stop)
    files = _files(place, should_stop)

    # Settings of the configuration, then those of the machine.
    verl = trainer_of(config).verl
    chosen = settings(config, files, attention=None if on_cpu else attention(config))
    cpu_variables: dict[str, str] = {}
    if on_cpu:
        cpu_variables = cpu_environment(verl.engine)
        chosen += cpu_settings(verl.engine, verl.gpus if verl.nodes == 1 else None)
        if verl.nodes == 1:
            chosen += own_ray(files.run_folder)
    else:
        chosen += gpu_settings(config, files.run_folder)

    # Environment variables of all processes of this attempt.
    variables = {
        **cpu_variables,
        **temp_variables(),
        **sockets.environment(files.run_folder, cpu_variables.get(sockets.MODULES, "")),
        **update_guard.environment(config.trainer.skip_updates_without_advantage),
    }
    os.environ.update(variables)

    # On the CPU, a Ray of the run's own inherits the variables.
    if not on_cpu or verl.nodes > 1:
        chosen += ray_settings(config, variables)
    words = [*(setting.override for setting in chosen), *verl.overrides]
    _write_down(folder, chosen, verl.overrides, words)
    return words


def _fill_caches(place: Workplace, should_stop: Callable[[], bool]) -> None:
    """Open the games of the whole schedule, which the agent loops would do within the first steps.

    Otherwise the rollouts of the first run on a machine would be slower than those of later runs.
    """
    if not isinstance(place.environment, CachingEnvironment):
        return
    names = {row["extra_info"]["task"] for row in training_rows(place.environment, place.config)}
    tasks = [task for task in place.environment.panel(TRAIN).tasks if task.id in names]
    firsts = range(0, len(tasks), CACHED_AT_ONCE)
    parts = [tasks[first : first + CACHED_AT_ONCE] for first in firsts]
    for part in progress(parts, "translation of the games", "part"):
        if should_stop():
            return
        place.environment.fill_caches(part)


def _files(place: Workplace, should_stop: Callable[[], bool]) -> Files:
    """Policy, data files and the checkpoint to resume from.

    The data files are written at each attempt. They depend only on the configuration, so that a
    resumed run reads the same schedule.
    """
    config = place.config
    path = place.folder.path
    model, tokenizer = _model(place, should_stop)
    step = newest(place.folder)
    files = Files(
        model=model,
        tokenizer=tokenizer,
        train=path / "data" / "train.parquet",
        validation=path / "data" / "validation.parquet",
        run_folder=path,
        resume_from=None if step is None else verl_folder(place.folder, step),
    )
    write_parquet(files.train, list(training_rows(place.environment, config)))
    write_parquet(files.validation, list(validation_rows(place.environment, config)))
    return files


def _model(place: Workplace, should_stop: Callable[[], bool]) -> tuple[str, str | None]:
    """Paths of the policy and of a separate tokenizer, None without one.

    Tiny policies are warm-started and written into the run folder.
    """
    model = place.config.model
    if model.kind == "huggingface":
        return model.path, None
    if not isinstance(model, TinyModel):
        raise ConfigError(
            f"model={model.name} is called through an API: there are no weights to train"
        )
    target = place.folder.path / "policy"
    made_once(target, lambda scratch: _write_tiny(place, model, scratch, should_stop), should_stop)
    return str(target), str(target / "tokenizer")


def _write_tiny(
    place: Workplace, model: TinyModel, target: Path, should_stop: Callable[[], bool]
) -> None:
    """Write a tiny policy after its warm start, and its tokenizer, as verl loads them.

    Raises:
        ConfigError: The environment has no demonstrations, or the prompts are not compact.
    """
    from scpo.policies.warm_start import warm_started

    config = place.config
    environment = place.environment
    if config.env.prompt != "compact" or not isinstance(environment, DemonstratingEnvironment):
        raise ConfigError(
            f"model={model.name} is warm-started on demonstrations and reads only "
            f"env.prompt=compact, got env={config.env.name} env.prompt={config.env.prompt}"
        )

    policy, tokenizer = warm_started(
        model, config.env, environment, Path(config.machine.cache_dir), should_stop
    )
    tokenizer.chat_template = PLAIN_TEMPLATE

    # In a folder of its own: next to the model's config.json, AutoTokenizer would use the class of
    # the model type for this word-level tokenizer.
    tokenizer.save_pretrained(target / "tokenizer")
    policy.save_pretrained(target)


def compose_verl(words: Sequence[str]) -> Any:
    """Compose verl's configuration with these overrides.

    Raises:
        ConfigError: verl has no such key, or the composition fails otherwise.
    """
    from hydra import compose, initialize_config_module
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException

    # Hydra was initialised for the run's own configuration, and rejects a second initialisation.
    GlobalHydra.instance().clear()
    with initialize_config_module("verl.trainer.config", version_base=None):
        try:
            return compose("ppo_trainer", overrides=list(words))
        except HydraException as error:
            raise ConfigError(
                f"verl's configuration rejects an override ({first_line(error)}); check "
                "trainer.verl.overrides"
            ) from error


def _write_down(
    folder: RunFolder, chosen: Sequence[Setting], extra: Sequence[str], words: Sequence[str]
) -> None:
    """Write the settings with their sources, and the equivalent command for use by hand."""
    listed = [
        {"key": setting.key, "value": setting.value, "source": setting.source} for setting in chosen
    ]
    listed += [{"word": word, "source": "trainer.verl.overrides"} for word in extra]
    write_yaml(folder.path / "verl_settings.yaml", listed)
    command = " \\\n    ".join(["python -m scpo.trainers.verl", *map(shlex.quote, words)])
    write_bytes(folder.path / "verl_command.txt", f"{command}\n".encode())


def wait_for_nodes(
    nodes: int,
    gpus: int,
    should_stop: Callable[[], bool] = lambda: False,
    deadline_s: float = NODES_DEADLINE_S,
) -> bool:
    """Wait until ``nodes`` nodes with ``gpus`` GPUs each have joined Ray (here or RAY_ADDRESS).

    verl counts the GPUs only at its start, and refuses to train on fewer than configured.

    Args:
        nodes: Number of nodes.
        gpus: Number of GPUs of each node.
        should_stop: Called while waiting; True ends the wait.
        deadline_s: Longest wait, in seconds.

    Returns:
        True once they have joined; False if the run was asked to stop.

    Raises:
        ConfigError: No Ray runs here, or too few nodes have joined it in time.
    """
    # Imported here, because the version of verl is checked first.
    import ray

    asked = f"trainer.verl.nodes={nodes}"
    _join_ray(asked)
    end = time.monotonic() + deadline_s
    try:
        while len(there := _with_gpus(ray.nodes(), gpus)) < nodes:
            if should_stop():
                return False
            if time.monotonic() > end:
                raise ConfigError(
                    f"{asked}: {len(there)} with {gpus} GPUs joined Ray within {deadline_s:g} s "
                    f"({', '.join(sorted(there)) or 'none'}). {START_RAY}"
                )
            logger.info("waiting for %d nodes with %d GPUs, %d are there", nodes, gpus, len(there))
            time.sleep(NODES_POLL_S)
    finally:
        # verl joins Ray again, with the settings of `ray_settings`.
        ray.shutdown()
    return True


def _with_gpus(nodes: Sequence[Mapping[str, Any]], gpus: int) -> list[str]:
    """Addresses of the nodes that are alive and have that many GPUs."""
    return [
        node["NodeManagerAddress"]
        for node in nodes
        if node["Alive"] and node["Resources"].get("GPU", 0) >= gpus
    ]


def _join_ray(asked: str) -> None:
    """Join the running Ray, then restore this process's handlers of the stop signals.

    ``ray.init`` replaces the handler of SIGTERM, and a waiting run could then not be stopped.

    Raises:
        ConfigError: No Ray runs here.
    """
    import ray

    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    try:
        ray.init(address="auto", log_to_driver=False, logging_level="error")
    except ConnectionError as error:
        reason = first_line(error)
        raise ConfigError(
            f"{asked}: no Ray to join here ({reason}). {START_RAY}, with the same RAY_AUTH_MODE "
            "everywhere (docs/verl.md); or trainer.verl.nodes=1"
        ) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _stop_file(path: Path, should_stop: Callable[[], bool]) -> Iterator[None]:
    """Pass a request to stop on to the process that trains, by creating a file.

    This process handles the stop signals while it waits for Ray; the trainer, a Ray actor, checks
    for the file after each step.
    """
    path.unlink(missing_ok=True)
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.5):
            if should_stop():
                path.touch()
                return

    thread = threading.Thread(target=watch, name="stop-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        path.unlink(missing_ok=True)


def _run(verl_config: Any) -> None:
    """Train on Ray; raises the trainer's own error instead of Ray's."""
    import ray

    from scpo.trainers.verl.runner import run

    try:
        run(verl_config)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error
    finally:
        ray.shutdown()
