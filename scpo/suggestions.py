"""The nearest known name for a misspelt one, in messages and on command lines."""

import argparse
import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn


def did_you_mean(name: str, known: Iterable[str], first: Sequence[str] = ()) -> str:
    """Return ``; did you mean x?`` with the nearest known name, or an empty string.

    Names that differ only in case are suggested first, then similar ones, then those that ``name``
    is a prefix of. A prefix of two letters would match too many names.

    Args:
        name: The unknown name.
        known: Names to compare it with.
        first: Names to suggest instead, if there are any.
    """
    # Without duplicates: rows of several tables may have the same name.
    names = list(dict.fromkeys(known))
    small = name.lower()
    nearest = list(first)
    nearest = nearest or [other for other in names if other.lower() == small]
    nearest = nearest or difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if not nearest and len(small) > 2:
        nearest = [other for other in names if other.lower().startswith(small)]
    if not nearest:
        return ""
    return f"; did you mean {' or '.join(nearest[:3])}?"


def _named_path(text: str) -> Path:
    """Path of an argument; refused if empty, because ``Path("")`` is the current folder."""
    if not text.strip():
        raise argparse.ArgumentTypeError(
            "an empty name (a variable that is not set?); the current folder is ."
        )
    return Path(text)


class SuggestingParser(argparse.ArgumentParser):
    """A parser that names the nearest command, choice or option for a misspelt one.

    argparse can do this since Python 3.14 (``suggest_on_error``), but older versions are supported.
    Arguments of ``type=Path`` may not be empty.

    Attributes:
        meant: Word that is not a choice -> the choice that a user of the word probably means.
    """

    meant: Mapping[str, str] = MappingProxyType({})

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Create a parser as argparse does."""
        super().__init__(*args, **kwargs)
        self.register("type", Path, _named_path)

    def error(self, message: str) -> NoReturn:
        """Exit with the message of argparse and, for an unknown word, a suggestion."""
        # The quotes around the choices differ between versions of Python.
        found = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        if found:
            known = re.findall(r"[\w.-]+", found[2])
            near = difflib.get_close_matches(found[1], self.meant, n=1)
            message += did_you_mean(found[1], known, [self.meant[name] for name in near])
        super().error(message)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does; an unknown option is answered with the nearest one."""
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            message = f"unrecognized arguments: {' '.join(unknown)}"
            option = unknown[0].partition("=")[0]
            if option.startswith("-"):
                message += did_you_mean(option, self._options_of(options))
            self.error(message)
        return options

    def _options_of(self, options: argparse.Namespace) -> list[str]:
        """The options of this parser, and of the commands that were chosen."""
        known: list[str] = []
        for action in self._actions:
            known += action.option_strings
            if isinstance(action.choices, Mapping):
                chosen = action.choices.get(getattr(options, action.dest, None))
                if isinstance(chosen, SuggestingParser):
                    known += chosen._options_of(options)
        return known
