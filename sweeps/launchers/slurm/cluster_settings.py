"""Site settings in ``slurm/site.yaml``: changes to one of the presets for common clusters."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import Field, NonNegativeFloat, PositiveFloat, ValidationError, field_validator

from scpo.errors import ConfigError
from scpo.installed import REPOSITORY
from scpo.records import redaction
from scpo.records.user_yaml import UniqueKeyLoader, read_user_yaml
from scpo.strict import Strict
from sweeps.compose.hints import explain_validation

PRESETS = REPOSITORY / "slurm" / "presets"
# Messages never show these settings: in a value of a wrong type, secrets cannot be found.
MAY_HOLD_SECRETS = ("setup", "more")
IN_THE_SHELL = "take it out and export it in the shell that submits, whose environment jobs inherit"
# Longer than any partition's limit that we know of: a larger number has another unit.
MAX_HOURS = 1000
_GPUS = "gres: gpu:<type>, to which each job adds its number of GPUs (launcher.gpus)"
_CPUS = "launcher.cpus"
_TASKS = "nothing: a job has one task per node, which starts its own processes"
_FILES = "nothing: a job's output lies in runs/.submissions, shown by `python -m sweeps logs`"
_REQUEUE = "nothing: an interrupted run is requeued from its checkpoint"
_LIMIT = "launcher.time_h, or max_time_h for the partition's limit"
# Options of sbatch that the run, the launcher or another key of the site sets -> what to write
# instead. In `more`, they would replace values that a job's run, limit and adoption rely on.
OWN_OPTIONS = {
    "time": _LIMIT,
    "time-min": _LIMIT,
    "signal": "launcher.warn_s",
    "partition": "partition (cpu_partition for jobs without a GPU)",
    "account": "account",
    "qos": "qos",
    "constraint": "constraint",
    "job-name": "nothing: submissions are found again by their names",
    "array": "launcher.parallelism, the number of jobs that run at a time",
    "nodes": "trainer.verl.nodes",
    "mem": "memory_gb",
    "mem-per-cpu": "memory_gb",
    "mem-per-gpu": "memory_gb",
    "gres": _GPUS,
    "gpus": _GPUS,
    "gpus-per-node": _GPUS,
    "gpus-per-task": _GPUS,
    "gpus-per-socket": _GPUS,
    "cpus-per-task": _CPUS,
    "cpus-per-gpu": _CPUS,
    "cpus": _CPUS,
    "mincpus": _CPUS,
    "ntasks": _TASKS,
    "tasks": _TASKS,
    "ntasks-per-node": _TASKS,
    "tasks-per-node": _TASKS,
    "ntasks-per-core": _TASKS,
    "ntasks-per-gpu": _TASKS,
    "ntasks-per-socket": _TASKS,
    "output": _FILES,
    "error": _FILES,
    "input": _FILES,
    "open-mode": _FILES,
    "requeue": _REQUEUE,
    "no-requeue": _REQUEUE,
    "wrap": "setup, for shell lines of each job",
    "parsable": "nothing: the number of a job is read from sbatch's answer",
    "test-only": "dry_run=true on the command line",
}
# gpu, gpu:a800 or gpu:a800:4.
GPU_GRES = re.compile(r"gpu(:[^:,=\s]+)?(:\d+)?")
SCALARS = (str, int, float, bool)
IN_QUOTES = "write a name that YAML reads as a value in quotes"
MORE_MEMORY = "leave memory_gb out (the estimate), or write memory_gb: 0 (the whole node)"


class _Int(int):
    """A number of a site file, which is shown as it is written there."""

    text: str

    def __repr__(self) -> str:
        return self.text


class _Float(float):
    """See ``_Int``."""

    text: str

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True, repr=False)
class _Bool:
    """A word of a site file that YAML reads as true or false, such as ``on``."""

    text: str

    def __repr__(self) -> str:
        return self.text


class Site(Strict):
    """Settings of a cluster; None is the cluster's default.

    Attributes:
        preset: Name of the preset that the other settings change.
        cpu_partition: For jobs without a GPU; None: ``partition``.
        gres: Name of the cluster's GPUs, where it does not know ``--gpus-per-node`` or a type has
            to be named. Each job's number of GPUs is appended.
        memory_gb: "auto" is the run's estimated need, 0 the whole node.
        max_time_h: The longest limit that the partition allows, in hours.
        setup: Shell lines of the job before the run starts.
        more: Further options of sbatch, none of ``OWN_OPTIONS`` except ``gres`` of other things
            than GPUs. One that is None or False is left out, also that of the preset.
    """

    preset: str | None = None
    partition: str | None = None
    cpu_partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    gres: str | None = None
    memory_gb: NonNegativeFloat | Literal["auto"] | None = "auto"
    max_time_h: PositiveFloat = 24.0
    setup: tuple[str, ...] = ()
    more: dict[str, Any] = Field(default_factory=dict)

    @field_validator("max_time_h", mode="before")
    @classmethod
    def _is_in_hours(cls, value: Any) -> Any:
        too_long = isinstance(value, int | float) and value > MAX_HOURS
        if isinstance(value, str) or too_long:
            raise ValueError(
                f"got {value!r}; it is a number of hours, at most {MAX_HOURS}: "
                "max_time_h: 24 for Slurm's 24:00:00 or 1-00:00:00"
            )
        return value

    @field_validator("partition", "cpu_partition", "account", "qos", "constraint", mode="before")
    @classmethod
    def _is_a_name(cls, value: Any) -> Any:
        if isinstance(value, int | float | _Bool):
            raise ValueError(f"got {value!r}; {IN_QUOTES}")
        return value

    @field_validator("partition", "cpu_partition", "account", "qos", "constraint")
    @classmethod
    def _is_one_word(cls, value: str | None) -> str | None:
        # sbatch takes it as it is: of "gpu a", the second word would be the script.
        if value is not None and not re.fullmatch(r"\S+", value):
            raise ValueError(
                f"got {value!r}; allowed: a name without spaces, or left out for the cluster's "
                "default (several partitions: a,b)"
            )
        return value

    @field_validator("gres")
    @classmethod
    def _names_gpus(cls, gres: str | None) -> str | None:
        # The number of GPUs is appended: of anything else, a job would ask for as many.
        if gres is not None and not GPU_GRES.fullmatch(gres):
            raise ValueError(
                f"got {gres!r}; it names the GPUs that jobs ask for, allowed: gpu, gpu:<type>. "
                'Anything else goes into more, with its number: more: {gres: "nvme:1"}. Left out, '
                "jobs use --gpus-per-node"
            )
        return gres

    @field_validator("more", mode="before")
    @classmethod
    def _is_as_written(cls, more: Any) -> Any:
        # YAML 1.1 reads 1_2 as 12, 0x10 as 16, 1.10 as 1.1 and `on` as true: nodes, reservations
        # and versions would be others, and a comment would have no text.
        if not isinstance(more, dict):
            return more
        words = [
            f"{key}: got {value.text}"
            for key, value in more.items()
            if isinstance(value, _Bool) and value.text.lower() not in ("true", "false")
        ]
        if words:
            raise ValueError(
                f"{', '.join(words)}; {IN_QUOTES}, and true for an option without a value"
            )
        return {key: _as_written(value) for key, value in more.items()}

    @field_validator("more")
    @classmethod
    def _leaves_the_jobs_own_options(cls, more: dict[str, Any]) -> dict[str, Any]:
        # sbatch gets each option with hyphens, even if it is written with underscores here.
        spelt = {key: _spelt(key) for key in more}
        own = [
            f"{key} (instead: {OWN_OPTIONS[name]})"
            for key, name in spelt.items()
            if name in OWN_OPTIONS and not (key == "gres" and _without_gpus(more[key]))
        ]
        if own:
            raise ValueError(
                f"every job sets these options itself, take them out: {', '.join(own)}"
            )
        # sbatch would get --exclusive=False, which it refuses or takes for another kind of use.
        given = {
            key: value for key, value in more.items() if value is not None and value is not False
        }
        nested = [key for key, value in given.items() if not isinstance(value, SCALARS)]
        if nested:
            raise ValueError(
                f"{', '.join(nested)}: not the value of an option of sbatch; allowed: a text "
                '(several nodes: "n1,n2"), a number, true for an option without a value, or null '
                "for one of the preset that jobs shall not have"
            )
        return given

    def partition_for(self, gpus: int) -> str | None:
        """Partition for a job with this number of GPUs; None: the cluster's default."""
        if gpus:
            return self.partition
        return self.cpu_partition or self.partition

    def gpu_flags(self, gpus: int) -> dict[str, Any]:
        """Options of a job that request this number of GPUs."""
        if not gpus:
            return {}
        if self.gres is None:
            return {"gpus_per_node": gpus}
        # gpu:a800:4 becomes gpu:a800, because each job appends its own number.
        kind = re.sub(r":\d+$", "", self.gres)
        others = self.more.get("gres")
        return {"gres": f"{kind}:{gpus},{others}" if others else f"{kind}:{gpus}"}

    def memory_flag(self, needed_gb: int) -> str | None:
        """Value of ``--mem`` for a job; None: the partition's default."""
        gb = needed_gb if self.memory_gb == "auto" else self.memory_gb
        if gb is None:
            return None
        return "0" if gb == 0 else f"{round(gb * 1024)}M"

    def secrets_in_clear(self, names: Collection[str] = ()) -> str | None:
        """Name the keys and passwords that ``setup`` and ``more`` hold; None without any.

        Args:
            names: Variables that are secret although their names do not show it.
        """
        found: dict[str, None] = {}
        for text, form in self._texts():
            kinds = [leak.what for leak in redaction.leaks(text, names=names)]
            # The kind of a key is named only without a variable, whose name suffices.
            found |= dict.fromkeys(list(redaction.assigned(text, names, form)) or kinds)
            found |= dict.fromkeys(redaction.passed(text))
        found |= dict.fromkeys(f"the option --{name}" for name in self._secret_options())
        if not found:
            return None
        return (
            f"setup or more holds {', '.join(found)} in clear, and so does each job's script, in "
            "runs/.submissions and in Slurm"
        )

    def redacted(self, names: Collection[str] = ()) -> Self:
        """The same settings without keys and passwords, for a preview; ``names`` as above."""
        setup = tuple(_redacted(line, redaction.ASSIGNED, names) for line in self.setup)
        secret_options = self._secret_options()
        more = {}
        for key, value in self.more.items():
            more[key] = value
            if _spelt(key) in secret_options:
                more[key] = redaction.REDACTED
            elif isinstance(value, str):
                more[key] = _redacted(value, redaction.LISTED, names)
        return self.model_copy(update={"setup": setup, "more": more})

    def without_secrets(self, message: str, names: Collection[str] = ()) -> str:
        """A message that may quote these settings, without keys and passwords; ``names`` as above.

        sbatch quotes the option that it refuses.
        """
        given = list(self._secret_options().items())
        for text, form in self._texts():
            given += redaction.assigned(text, names, form).items()
            given += redaction.passed(text).items()
        shown = set()
        for name, value in given:
            # sbatch gets a quoted value without its quotation marks.
            secret = value.strip("'\"")
            # A shorter value is in many words of a message.
            if len(secret) >= redaction.SHORTEST:
                shown |= {value, secret}
            elif secret:
                message = message.replace(f"{name}={secret}", f"{name}={redaction.REDACTED}")
        for secret in sorted(shown, key=len, reverse=True):
            message = message.replace(secret, redaction.REDACTED)
        return redaction.redact(message, names=names)

    def _secret_options(self) -> dict[str, str]:
        """Options in ``more`` that are named as secrets, such as ``--token``, with their values."""
        found = {}
        for key, value in self.more.items():
            name = _spelt(key)
            text = "" if isinstance(value, bool) or value is None else str(value)
            secret = redaction.is_secret(name.replace("-", "_"), text)
            # A workload characterisation key is a name for accounting.
            if secret and name != "wckey" and text and not redaction.FILLED_IN.fullmatch(text):
                found[name] = text
        return found

    def _texts(self) -> Iterator[tuple[str, re.Pattern[str]]]:
        for line in self.setup:
            yield line, redaction.ASSIGNED
        for value in self.more.values():
            if isinstance(value, str):
                yield value, redaction.LISTED

    def memory_shortage(self, needed_gb: int) -> str | None:
        """Message for a ``memory_gb`` below a job's estimated need; None if it is enough."""
        given = self.memory_gb
        # None is the partition's default, which is not known here, and 0 the whole node.
        if given in ("auto", None, 0) or float(given) >= needed_gb:
            return None
        return (
            f"memory_gb: {given:g}, a job needs {needed_gb} GB by estimate: Slurm kills one that "
            "takes more than it asked for"
        )


def _as_written(value: Any) -> Any:
    """A value of a site file; a number that sbatch would get in another spelling is a text."""
    if isinstance(value, _Bool):
        return value.text.lower() == "true"
    if not isinstance(value, _Int | _Float):
        return value
    number = int(value) if isinstance(value, _Int) else float(value)
    return number if str(number) == value.text else value.text


def _redacted(text: str, form: re.Pattern[str], names: Collection[str]) -> str:
    """A text of a site file without keys and passwords; ``form`` as in ``redaction.assigned``."""
    for name, value in redaction.assigned(text, names, form).items():
        text = text.replace(f"{name}={value}", f"{name}={redaction.REDACTED}")
    for value in redaction.passed(text).values():
        text = text.replace(value, redaction.REDACTED)
    return redaction.redact(text, names=names)


def _spelt(option: str) -> str:
    """Name of an option as sbatch gets it: site files may have ``gpus_per_node`` or ``--mem``."""
    return option.strip("-").replace("_", "-")


def _without_gpus(gres: Any) -> bool:
    """True for a list of Slurm's generic resources, none of which is a GPU; also for none."""
    return _is_off(gres) or (isinstance(gres, str) and not re.search(r"\bgpu\b", gres))


def _is_off(value: Any) -> bool:
    """True for an option that is left out. Not for 0, a value of some options."""
    return value is None or value is False


def site_path(name: str) -> Path:
    """Return the file that ``launcher.site`` names: a path, or a preset by its name.

    A relative path that is not found in the current folder is taken from the checkout, where the
    default, ``slurm/site.yaml``, is.
    """
    preset = PRESETS / f"{name}.yaml"
    if re.fullmatch(r"\w+", name) and preset.is_file():
        return preset
    path = Path(name).expanduser()
    in_checkout = REPOSITORY / path
    if not path.exists() and in_checkout.is_file():
        return in_checkout
    return path


def read_site(name: str | Path) -> Site:
    """Read the settings on top of their preset; ConfigError with the file and the problem."""
    path = site_path(str(name))
    data = _read(path)
    chosen = data.get("preset")
    if chosen is not None:
        known = sorted(preset.stem for preset in PRESETS.glob("*.yaml"))
        if chosen not in known:
            raise ConfigError(f"{path}: preset: got {chosen!r}; allowed: {', '.join(known)}")
        data = _merged(_read(PRESETS / f"{chosen}.yaml"), data)
    try:
        return Site.model_validate(data)
    except ValidationError as error:
        raise ConfigError(
            f"{path}:\n{explain_validation(error, Site, hidden=MAY_HOLD_SECRETS)}"
        ) from error


def _merged(preset: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Settings of a site file on top of its preset's, those of ``more`` option by option."""
    merged = preset | own
    of_preset, of_site = preset.get("more"), own.get("more")
    if isinstance(of_preset, dict) and isinstance(of_site, dict):
        named = {_spelt(str(key)) for key in of_site}
        kept = {key: value for key, value in of_preset.items() if _spelt(key) not in named}
        merged["more"] = kept | of_site
    return merged


class _Loader(UniqueKeyLoader):
    """Loader that reads 24:00:00 and 0123 as texts, and keeps the texts of numbers and booleans.

    YAML 1.1 reads 86400, a number in base 60, and 83, one in base 8: names of accounts and
    reservations would be others.
    """


def _number(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int | float | str:
    text = str(loader.construct_scalar(node))
    if ":" in text or re.fullmatch(r"0[\d_]+", text):
        return text
    number: _Int | _Float
    if node.tag.endswith(":int"):
        number = _Int(loader.construct_yaml_int(node))
    else:
        number = _Float(loader.construct_yaml_float(node))
    number.text = text
    return number


def _bool(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> _Bool:
    return _Bool(str(loader.construct_scalar(node)))


for _kind in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _number)
_Loader.add_constructor("tag:yaml.org,2002:bool", _bool)
# Errors name the types of values that they do not show.
for _class, _type in ((_Int, "int"), (_Float, "float"), (_Bool, "bool")):
    _class.__name__ = _type


def _read(path: Path) -> dict[str, Any]:
    try:
        data = read_user_yaml(path, _Loader)
    except OSError as error:
        known = ", ".join(sorted(preset.stem for preset in PRESETS.glob("*.yaml")))
        raise ConfigError(
            f"launcher.site={path}: {error.strerror}; copy slurm/site.yaml "
            f"(SCPO_SITE=<your copy>), or name a preset: {known}"
        ) from error
    if not isinstance(data, dict | None):
        # The value is not shown: it may be a line of `setup`, with a key.
        raise ConfigError(
            f"{path}: key: value lines are expected, got a value of type {type(data).__name__}"
        )
    return data or {}
