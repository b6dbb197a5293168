"""Error messages for wrong commands: what was wrong, what is allowed, and the command that works.

Hydra and pydantic report errors in terms of their own internals. The functions here translate them
into one line with the override at fault, the nearest known name and the allowed values. ``HABITS``
lists flags and keys of other tools.
"""

import difflib
import json
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from scpo.installed import REPOSITORY
from scpo.suggestions import did_you_mean
from sweeps.compose.schema_keys import dotted_keys, fields_at, has_tag, models_at, schema_keys

SHORT_NAMES = {
    "lr": "trainer.optimizer.learning_rate",
    "theta": "method.shaper.theta",
    "lambda": "method.shaper.soft_base",
    "alpha": "method.shaper.alpha",
    "n": "trainer.group_size",
    "gpus": "launcher.gpus",
    # Of verl and TRL. Else total_epochs would suggest trainer.epochs, which repeats each update.
    "total_epochs": "trainer.steps",
    "num_train_epochs": "trainer.steps",
    "total_training_steps": "trainer.steps",
    "train_batch_size": "trainer.groups",
    "num_generations": "trainer.group_size",
    "ppo_epochs": "trainer.epochs",
    "ppo_mini_batch_size": "trainer.mini_batch_rows",
    "test_freq": "trainer.validation.every",
    "save_freq": "trainer.checkpoint_every",
    "entropy_coeff": "trainer.loss.entropy_coefficient",
    "kl_loss_coef": "trainer.loss.kl_coefficient",
    "project_name": "wandb.project",
}
"""Last part of a key in other code bases -> the key here."""

OTHER_SPELLINGS = {"env=webshop_paper": "env=webshop env.setting=paper"}
"""Choices that are written as two overrides here."""


@dataclass(frozen=True)
class Habit:
    """A flag or key of another tool, and what to write instead.

    Attributes:
        pattern: Regular expression for the whole flag or key.
        answer: The explanation. ``{0}`` is the first group of the pattern.
        script: For a flag: the script of the suggested command.
        drop: For a flag: regular expression of the words that the suggested command leaves out.
        add: For a flag: words that the suggested command adds at its end.
    """

    pattern: str
    answer: str
    script: str | None = None
    drop: str = ""
    add: tuple[str, ...] = ()


HABITS = (
    # Flags of Hydra, W&B and argparse-style scripts.
    Habit(
        r"-m|--multirun",
        "an experiment's axes are the sweep, and key=a,b adds one",
        script="sweep.py",
    ),
    Habit(
        r"--dry-run|--dry_run|--dryrun|-n",
        "write dry_run=true",
        script="sweep.py",
        add=("dry_run=true",),
    ),
    Habit(
        r"--cfg",
        "it shows the configuration of one run",
        script="train.py",
        drop=r"job|all|hydra|\+.*|dry_run(=.*)?|search\..*",
        add=("--cfg", "job"),
    ),
    # Keys. The first match wins, so the general one for hydra comes last.
    Habit(r"wandb\.(?:enabled?|disabled?)", "write wandb.mode=disabled, offline or online"),
    Habit(
        r"wandb\.(?:base_url|url|host)",
        "the server is named by a variable of the shell: export WANDB_BASE_URL=<its address>",
    ),
    Habit(r"dryrun|dry-run|dry_run|dryRun", "it is called dry_run: dry_run=true"),
    Habit(
        r"hydra.*launcher.*",
        "launchers are chosen here by launcher=slurm_a800x4 (Slurm) or launcher=local",
    ),
    Habit(
        r"hydra.*sweeper.*",
        "Optuna searches are python sweep.py +search=<name>; an axis is key=a,b",
    ),
    Habit(r"hydra.*", "Hydra only composes here; the folder of runs is machine.runs_dir=<folder>"),
    Habit(
        r"launcher\.(partition|account|qos|constraint|gres|memory_gb|max_time_h)",
        "it is the cluster's own: slurm/site.yaml: {0} (another file: launcher.site=<file>)",
    ),
)


def habit_for(word: str) -> Habit | None:
    """The first habit whose pattern matches a flag or key."""
    return next((habit for habit in HABITS if re.fullmatch(habit.pattern, word)), None)


def is_dry_run_word(word: str) -> bool:
    """Return True if a bare word is a spelling of dry_run."""
    habit = habit_for(word)
    return habit is not None and "dry_run" in habit.answer and not word.startswith("-")


def explain_flag(flag: str, words: Sequence[str], script: str) -> str:
    """Message for a command-line flag that ``script`` does not have.

    Args:
        flag: The flag as typed, with its value if it has one.
        words: The whole command line after the script.
        script: ``train.py`` or ``sweep.py``.
    """
    name, _, value = flag.partition("=")
    habit = habit_for(name)
    if habit is not None and habit.script is not None:
        kept = [word for word in words if word != flag and not re.fullmatch(habit.drop, word)]
        if habit.script == "sweep.py":
            kept = [_as_axis(word) for word in kept]
        else:
            kept = [_as_value(word) for word in kept]
        if habit.script == "sweep.py" and not any(word.startswith("+") for word in kept):
            # sweep.py needs an experiment; this one has a single row.
            kept = ["+experiment=one", *kept]
        return f"{flag}: {habit.answer}: {_command(habit.script, [*kept, *habit.add])}"
    # --key=value: the form in which `wandb agent` passes parameters. --seed=0 is answered below.
    if any(re.match(r"--(?!seed=)[^=]*=", word) for word in words):
        plain = [word.removeprefix("--") for word in words]
        return (
            f"{flag}: no dashes here: {_command(script, plain)} (for wandb agent: "
            f"${{args_no_hyphens}}, docs/live.md)"
        )
    if name == "--seed" and script == "train.py":
        seed = value or next((word for word in words if word.isdecimal()), "0")
        return f"{flag}: write it as an override: seed={seed}"
    if name in ("--seed", "--seeds"):
        listed = value or ",".join(word for word in words if word.isdecimal()) or "0"
        return f"{flag}: seeds are an axis: 'seeds=[{listed}]'"
    if name == "--resume":
        return (
            f"{flag}: the command that began a run also continues it, and so does "
            "python train.py <run folder>"
        )
    return (
        f"{flag}: there is no such flag; settings are written key=value, e.g. method=scpo; "
        f"`python {script} --help` lists the flags"
    )


def explain_axis(override: str, key: str, values: Sequence[str]) -> str:
    """Message for several values of a key that takes one."""
    if key in ("experiment", "search", "scale"):
        plus = "" if key == "scale" else "+"
        calls = " and ".join(f"{plus}{key}={value}" for value in values)
        return f"{override}: one {key} in a call; give {calls} in calls one after the other"
    return (
        f"{override}: one value a key here; as an axis of an experiment: "
        f"{_command('sweep.py', ['+experiment=one', _as_axis(override)])} and the other overrides"
    )


def explain_split_axis(override: str, value: str) -> str:
    """Message for a value that a space separates from the values before it."""
    return (
        f"{override} {value}: values of an axis are joined by commas, without spaces: "
        f"{override.rstrip(',')},{value}"
    )


def _as_axis(word: str) -> str:
    """Translate an override of train.py for sweep.py, where seeds are an axis."""
    key, _, value = word.partition("=")
    if key != "seed":
        return word
    return f"seeds=[{value.strip('[]')}]"


def _as_value(word: str) -> str:
    """Translate an override of sweep.py for train.py, with the first value of an axis."""
    key, given, value = word.partition("=")
    if not given or value.startswith(("{", "'", '"')):
        return word
    first = value.strip("[]").partition(",")[0].strip()
    return f"{'seed' if key == 'seeds' else key}={first}"


def explain_launcher(words: Sequence[str]) -> str | None:
    """Message for a launcher given to train.py, which starts no jobs; None without a launcher.

    ``launcher=local`` is accepted, since it changes nothing.
    """
    chosen = [word for word in words if word.lstrip("+").startswith(("launcher", "hydra/launcher"))]
    # True for an empty list, too: no launcher is given.
    if all(word == "launcher=local" for word in chosen):
        return None
    seeds = [word.partition("=")[2] for word in words if word.startswith("seed=")] or ["0"]
    rest = [word for word in words if not word.lstrip("+").startswith(("seed=", "hydra/launcher"))]
    rest = ["+experiment=one", *rest, f"seeds=[{seeds[-1]}]"]
    if not any(word.startswith("launcher=") for word in rest):
        rest.append("launcher=slurm_a800x4")
    return (
        f"{chosen[0]}: train.py runs its run here, by itself; a launcher is sweep.py's: "
        f"{_command('sweep.py', rest)}"
    )


def _command(script: str, words: Sequence[str]) -> str:
    return " ".join(["python", script, *(shlex.quote(word) for word in words)])


def explain_syntax(override: str, message: str) -> str:
    """Message for an override that Hydra's grammar rejects."""
    if "=" in override and override.endswith(","):
        return (
            f"{override!r} ends with a comma: values of an axis are joined by commas, without "
            "spaces: key=a,b"
        )
    if "=" not in override and (Path(override) / "identity.yaml").exists():
        return (
            f"{override!r} is a run folder, which goes on alone, with the settings that it has: "
            f"python train.py {shlex.quote(override)}. With other settings it is another run: "
            "repeat the command that started it with these (python -m sweeps export writes them)"
        )
    cause = message.splitlines()[0] if "=" in override else "there is no = in it"
    return (
        f"{override!r} is not an override ({cause}); write key=value, quoted if it has [ ] {{ }} "
        "or spaces"
    )


def explain_blanks(words: Sequence[str]) -> str | None:
    """Message for ``method= scpo``, ``method =scpo`` and ``method = scpo``; None without blanks."""
    for place, word in enumerate(words[:-1]):
        following = words[place + 1]
        if word == "=" or "=" in word.removesuffix("="):
            continue
        if word.endswith("=") and "=" not in following and not following.startswith("~"):
            typed = [word, following]
        elif following == "=":
            typed = list(words[place : place + 3])
        elif following.startswith("="):
            typed = [word, following]
        else:
            continue
        return f"{' '.join(typed)}: an override has no blanks around its =; write {''.join(typed)}"
    return None


def explain_bare_name(name: str, group: str) -> str:
    """Message for the name of an experiment or a search without its ``+experiment=``."""
    return f"{name!r} is not an override; the {group} of that name: python sweep.py +{group}={name}"


def explain_sweep_word(override: str, key: str) -> str:
    """Message for an override of sweep.py that was given to train.py."""
    if key == "dry_run":
        return (
            f"{override}: only experiments and searches have a dry run: python sweep.py "
            f"+experiment=<name> {override}"
        )
    return (
        f"{override}: these overrides are for one run; with +{key}, it is python sweep.py "
        f"+{override.lstrip('+')}"
    )


def explain_option(override: str, group: str, got: str, options: Sequence[str]) -> str:
    """Message for a choice that a config group does not have."""
    spelling = OTHER_SPELLINGS.get(override)
    hint = f"; write {spelling}" if spelling else did_you_mean(got, options)
    return f"{override}: no {group} is called {got!r}{hint}\nallowed: {', '.join(options)}"


def explain_host(override: str, got: str, hosts: Sequence[str]) -> str:
    """Message for a ``method.host`` that does not read a step's bonus."""
    return (
        f"{override}: {got!r} is not a host of SCPO{did_you_mean(got, hosts)}\n"
        f"allowed: {', '.join(hosts)} "
        "(the estimators that read a step's bonus; others would lose the credit)"
    )


# Hydra's answers to +method=<name> and ++method=<name>.
_CHOSEN_TWICE = re.compile(
    r"Multiple values for ([\w/]+)\.|force-add of config groups .*'\+\+([\w/]+)="
)
_MISSING_SCALE = re.compile(r"'scale/env/([a-z]+)_([a-z_]+)'")


def explain_hydra(
    error: Exception,
    overrides: Sequence[object],
    default: Callable[[], dict[str, Any]],
    model: type[BaseModel],
) -> str:
    """Message for a failed composition: the override at fault and what is allowed.

    Args:
        error: What Hydra, OmegaConf or Python raised.
        overrides: The overrides of the composition.
        default: Returns the configuration without the override at fault, to look keys up in.
        model: The schema.
    """
    if missing := _MISSING_SCALE.search(str(error)):
        scale, env = missing.groups()
        return (
            f"scale={scale} has no settings for env={env}, only those in "
            f"conf/scale/env/{scale}_*.yaml"
        )

    twice = _CHOSEN_TWICE.search(str(error))
    for override in map(str, overrides):
        key = override.lstrip("+~").partition("=")[0]
        if twice and override.startswith("+") and key in twice.groups():
            return f"{override}: write {override.lstrip('+')}, without +"
        if key == "method.host" and "'estimator@method.estimator'" in str(error):
            return f"{override}: this method has no estimator and so no host; method=scpo has one"
        # "The value of": ~key=value names a key that exists, with another value than it has.
        if f"'{key}'" in str(error) and f"The value of '{key}'" not in str(error):
            # An override of a mapping (method={nme: x}) fails at a key below its own.
            failed_key = str(getattr(error.__cause__, "full_key", None))
            wrong = failed_key if failed_key.startswith(f"{key}.") else override
            return explain_key(wrong, default(), model)

    causes = []
    for cause in (error, error.__cause__):
        if cause is not None and str(cause):
            causes.append(str(cause).splitlines()[0])
    if isinstance(error, TypeError | ValueError):
        # Python's own errors name no override.
        causes.insert(0, " ".join(map(str, overrides)))
    return ": ".join(causes)


def explain_interpolation(error: OmegaConfBaseException, data: Any) -> str:
    """Message for a reference to a missing value, such as an ``env.setting`` without settings."""
    found = re.search(r"Interpolation key '([^']+)' not found", str(error))
    if found is None:
        return f"{error.full_key or 'a value'}: {str(error).splitlines()[0]}"
    parts = found[1].split(".")
    for depth, part in enumerate(parts):
        if not isinstance(data, dict) or part not in data:
            section = ".".join(parts[:depth]) or "the configuration"
            keys = ", ".join(map(str, data)) if isinstance(data, dict) else "no keys"
            hint = did_you_mean(part, keys.split(", "))
            return f"{error.full_key}: {section} has no {part!r}{hint}\n{section} has {keys}"
        data = data[part]
    return f"{error.full_key}: {found[0]}"


def explain_key(override: str, default: dict[str, Any], model: type[BaseModel]) -> str:
    """Message for an override of a key that the configuration does not have."""
    key, _, value = override.lstrip("+~").partition("=")
    habit = habit_for(key)
    if habit is not None:
        matched = re.fullmatch(habit.pattern, key)
        groups = matched.groups() if matched else ()
        return f"{key}={value}: {habit.answer.format(*groups)}"
    if override.startswith("+"):
        return f"{override}: {key} is in the configuration already; leave out the +"
    if key in schema_keys(model):
        return _explain_absent(override, key, default, model)
    present = dotted_keys(default)
    parent = key.rpartition(".")[0]
    # Keys of the same section are likelier to be meant than equally similar ones elsewhere.
    siblings = [name for name in present if _within(name, parent)]
    return _unknown(key, "", [*schema_keys(model), *present], siblings)


def _explain_absent(
    override: str, key: str, default: dict[str, Any], model: type[BaseModel]
) -> str:
    """Message for a key of the schema that is not set in this configuration."""
    present = dotted_keys(default)
    parent, _, name = key.rpartition(".")

    # Sections of another choice are absent here: take the nearest section that is present.
    while parent and parent not in present:
        parent, _, name = parent.rpartition(".")
    fields = fields_at(_with_tags(parent, default), model)
    if name not in fields:
        keys = ", ".join(fields)
        return (
            f"{override}: {parent} has no such key here, other choices of it do\nkeys of "
            f"{parent}: {keys}"
        )
    if parent and not any(_within(other, parent) for other in present):
        why = f"its section {parent} is null here"
        if parent == "method.shaper":
            why = f"method={default['method']['name']} has no shaper; method=scpo has one"
        return f"{override}: {key} is not set in this configuration: {why}"
    if override.startswith("~"):
        return f"{override}: {key} is not set in this configuration"
    if elsewhere := _same_ending(key, present):
        # The section of the key refers to another one, or the key was looked for in the wrong one.
        value = override.partition("=")[2]
        return (
            f"{override}: {key} is not set in this configuration; did you mean {elsewhere}={value}?"
        )
    return (
        f"{override}: {key} is not set in this configuration; +{override} adds it where its "
        "section is not null"
    )


def _same_ending(key: str, present: Iterable[str]) -> str | None:
    """The other key that has the most last parts in common with a key; None below two parts."""
    parts = key.split(".")[::-1]
    others = {name: _common(name.split(".")[::-1], parts) for name in present if name != key}
    nearest = max(others, key=lambda name: others[name], default=None)
    return nearest if nearest is not None and others[nearest] > 1 else None


def _with_tags(key: str, data: Any) -> list[str]:
    """The location of a section as pydantic gives it, with the tags of unions on the way."""
    location = []
    for part in key.split("."):
        data = data.get(part) if isinstance(data, dict) else None
        location.append(part)
        if isinstance(data, dict):
            tags = [data.get(name) for name in ("name", "kind")]
            location += [tag for tag in tags if isinstance(tag, str)]
    return location


def _unknown(key: str, got: str, known: Sequence[str], here: Sequence[str] = ()) -> str:
    """Message for an unknown key.

    Args:
        key: The key.
        got: Its value, as text to put after the key; empty to leave it out.
        known: Keys that may be suggested.
        here: Keys of the same section in this configuration, if known.
    """
    parent, _, name = key.rpartition(".")
    inside = [full[len(parent) :].lstrip(".") for full in (here or known) if _within(full, parent)]
    siblings = sorted({rest.split(".")[0] for rest in inside})
    others = [full for full in dict.fromkeys(known) if full != key]
    meant = SHORT_NAMES.get(name)
    same_name = [full for full in others if _bare(full.rpartition(".")[2]) == _bare(name)]
    # For trainer.learning_rate, trainer.optimizer's comes before the four others of that name.
    same_name.sort(key=lambda full: _shared_sections(full, key), reverse=True)
    similar = difflib.get_close_matches(name, siblings, n=1)
    near = [key.removesuffix(name) + sibling for sibling in similar]
    # The key of that name in other code bases, else the same name elsewhere, else a misspelt one.
    first = [meant] if meant in others else (same_name or near)
    hint = did_you_mean(key, [] if siblings else others, first)
    keys = f"\nkeys of {parent or 'the configuration'}: {', '.join(siblings)}" if siblings else ""
    return f"unknown key {key}{got}{hint}{keys}"


def _bare(name: str) -> str:
    """A name without underscores, in lower case: ``learningRate`` is ``learning_rate``."""
    return name.replace("_", "").lower()


def _shared_sections(one_key: str, other_key: str) -> int:
    """Number of leading sections that two keys share."""
    return _common(one_key.split("."), other_key.split("."))


def _common(first: Iterable[object], second: Iterable[object]) -> int:
    """Number of leading items that two sequences share."""
    pairs = zip(first, second, strict=False)
    return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))


def explain_validation(
    error: ValidationError, model: type[BaseModel], *, hidden: Collection[str] = ()
) -> str:
    """One line for each error of a validation, with the value and what is allowed.

    With ``hidden`` (top-level keys), the values of these and of unknown keys are replaced by their
    types: they may hold a key or a password.
    """
    # pydantic reports an error for each member of a union: the first member is what people mean.
    details: dict[tuple[int | str, ...], ErrorDetails] = {}
    for detail in error.errors(include_url=False):
        place = tuple(_without_types(detail["loc"]))
        details.setdefault(place, {**detail, "loc": place})
    for place, detail in list(details.items()):
        # pydantic counts only the valid entries of a list: their errors are what is wrong with it.
        within = any(len(other) > len(place) == _common(other, place) for other in details)
        if detail["type"] == "too_short" and within:
            del details[place]
    if hidden:
        for place, detail in details.items():
            if place[0] in hidden or detail["type"] == "extra_forbidden":
                detail["input"] = _Hidden(type(detail["input"]).__name__)
    return "\n".join(_explain_detail(detail, model) for detail in details.values())


@dataclass(frozen=True)
class _Hidden:
    """Replacement of a value that messages must not show, with the name of the value's type."""

    kind: str

    def __repr__(self) -> str:
        return f"a value of type {self.kind}, not shown"


_TYPE = re.compile(r"(constrained-|literal\[|dict\[|tuple\[|list\[).*|int|str|float|bool")


def _without_types(location: Sequence[int | str]) -> Iterator[int | str]:
    """A location without the names of the types that pydantic tried there."""
    for part in location:
        if not (isinstance(part, str) and _TYPE.fullmatch(part)):
            yield part


def _within(name: str, parent: str) -> bool:
    return not parent or name.startswith(f"{parent}.")


def _explain_detail(detail: ErrorDetails, model: type[BaseModel]) -> str:
    location = [part for at, part in enumerate(detail["loc"]) if not _is_tag(at, detail, model)]
    key = ".".join(map(str, location))
    got = detail["input"]
    if detail["type"] == "extra_forbidden":
        section = ".".join(map(str, location[:-1]))
        prefix = f"{section}." if section else ""
        here = [f"{prefix}{name}" for name in fields_at(detail["loc"][:-1], model)]
        return _unknown(key, f" (got {_shorten(got)})", [*here, *schema_keys(model)], here)

    # Raised by a validator of ours, with a full message.
    if detail["type"] == "value_error":
        return ": ".join(filter(None, [key, str(detail["ctx"]["error"])]))
    if form := _form(detail, location, model):
        return f"{key}: got {_shorten(got)}; {form}"
    if detail["type"] == "missing":
        return f"{key} is missing{_where_to_set(location, got)}"
    context = detail.get("ctx", {})
    expected = str(context.get("expected") or context.get("expected_tags") or "")
    hint = ""
    if expected:
        allowed = [name.strip(" '") for name in expected.replace(" or ", ",").split(",")]
        if detail["type"] == "union_tag_invalid":
            # pydantic puts it in quotes: 'name', or 'kind' of models and scorers.
            field = context["discriminator"].strip("'")
            tag = context["tag"]
            near = did_you_mean(tag, allowed)
            return f"{key}.{field}: got {tag!r}; allowed: {', '.join(allowed)}{near}"
        hint = did_you_mean(str(got), allowed)
    return f"{key}: got {_shorten(got)}; {detail['msg'][0].lower()}{detail['msg'][1:]}{hint}"


def _form(
    detail: ErrorDetails, location: Sequence[int | str], model: type[BaseModel]
) -> str | None:
    """How to write a section or a list for which another value was given; None for other errors."""
    if detail["type"] in ("model_type", "model_attributes_type"):
        key = ".".join(map(str, location))
        return f"it is a section: set its keys one by one, {key}.<key>=<value>"
    got = detail["input"]
    if detail["type"] in ("tuple_type", "list_type") and (
        isinstance(got, str) or got == _Hidden("str")
    ):
        return _as_list(location, got, model)
    return None


def _as_list(location: Sequence[int | str], text: Any, model: type[BaseModel]) -> str:
    """How to write a text where a list is expected, as an override or a line of a YAML file."""
    # A value that messages must not show is not in the example, either.
    example = json.dumps(text, ensure_ascii=False) if isinstance(text, str) else '"<text>"'
    if "machine" in model.model_fields:
        if isinstance(text, str) and re.fullmatch(r"[\w./-]+", text):
            example = text
        key = ".".join(map(str, location))
        return f"a list is expected: {shlex.quote(f'{key}=[{example}]')}"
    return f"a list is expected: {location[-1]}: [{example}]"


def _where_to_set(location: Sequence[int | str], section: Any) -> str:
    """How to set a missing key: in the file of its section, or as an override."""
    key = ".".join(map(str, location))
    name = section.get("name") if isinstance(section, dict) else None
    group = str(location[-2]) if len(location) > 1 else ""
    # Some keys of the other groups are set by the scale, not by the group's file.
    if group not in ("estimator", "scorer", "model") or not name:
        return f": every key is needed; write {key}=<value>"
    shown = f"conf/{group}/{name}.yaml"
    path = REPOSITORY / shown
    if not path.exists():
        return f" in {shown} of an installed package: add {location[-1]}: <value> to that file"
    # Hydra refuses an override of a key that the file lacks.
    if not re.search(rf"^{location[-1]}:", path.read_text(), re.MULTILINE):
        return f" in {shown}: add {location[-1]}: <value> to that file"
    return f" in {shown}; write {key}=<value>"


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _is_tag(at: int, detail: ErrorDetails, model: type[BaseModel]) -> bool:
    """Return True if a part of a location is the tag of a union (`gigpo`) and not a YAML key.

    ``at``: its place. A location may have a name as tag and as key: trainer, verl, verl, overrides.
    """
    part = detail["loc"][at]
    before = models_at(detail["loc"][:at], model)
    after = models_at(detail["loc"][: at + 1], model)
    # A field's name leads to the models below it; a tag leaves some of the models of its union.
    narrows = at > 0 and len(before) > 1 and len(after) <= len(before)
    return narrows and any(has_tag(member, part) for member in before)
