"""Translations kept on disk: a game's first translation takes a fifth of a second, reading it back a few milliseconds.

A file is a gzip of two lines: a header (format, key, hash of the second line) and the translation as JSON. The key is
the hash of what was translated and of the versions that translated it. A file that does not say all that is rewritten.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
import os
from collections.abc import Sequence
from functools import cache
from multiprocessing import get_context
from pathlib import Path

from pydantic import TypeAdapter

from scpo.envs.alfworld.planning.translation import Translation, translate
from scpo.installed import installed_version
from scpo.records.files import replace_file

logger = logging.getLogger(__name__)
_FORMAT = 1
_FORM = TypeAdapter(Translation)


class TranslationStore:
    """Translations by content, in ``folder`` (None: nothing is kept)."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def get(self, domain: str, problem: str) -> Translation:
        """Read the translation, or translate and keep it.

        Raises:
            GameError: The problem cannot be translated.
        """
        if self._folder is None:
            return translate(domain, problem)
        key = translation_key(domain, problem)
        path = self._path(key)
        kept = _read(path, key)
        if kept is not None:
            return kept
        translation = translate(domain, problem)
        self._write(path, key, translation)
        return translation

    def make(self, games: Sequence[tuple[str, str]]) -> None:
        """Translate those (domain, problem) that are not kept yet, on all cores; for a process without threads."""
        if self._folder is None:
            return
        new = [game for game in games if not self._path(translation_key(*game)).exists()]
        if len(new) > 1:
            with get_context("fork").Pool(min(len(new), len(os.sched_getaffinity(0)))) as pool:
                pool.map(self._keep, new, chunksize=1)

    def _keep(self, game: tuple[str, str]) -> None:
        self.get(*game)

    def _path(self, key: str) -> Path:
        assert self._folder is not None  # noqa: S101 (for mypy: asked only where there is one)
        return self._folder / key[:2] / f"{key}.json.gz"

    def _write(self, path: Path, key: str, translation: Translation) -> None:
        body = _FORM.dump_json(translation)
        header = {"format": _FORMAT, "key": key, "sha256": hashlib.sha256(body).hexdigest()}
        content = gzip.compress(json.dumps(header).encode() + b"\n" + body, compresslevel=1, mtime=0)
        try:
            replace_file(path, content, durable=False)  # a torn file fails its hash and is made again
        except OSError as error:  # a cache that cannot be written costs time, not results
            logger.warning("translation not kept: cannot write %s: %s", path, error.strerror)


@cache
def package_version(package: str) -> str:
    """The version of a package; ``unknown`` where it was not installed as one."""
    return installed_version(package) or "unknown"


def translation_key(domain: str, problem: str) -> str:
    """Hash of everything a translation depends on."""
    parts = (f"format {_FORMAT}", package_version("fast-downward-textworld"), domain, problem)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _read(path: Path, key: str) -> Translation | None:
    """The translation in this file; None if there is no such file or it is not what its name says."""
    try:
        header_line, body = gzip.decompress(path.read_bytes()).split(b"\n", 1)
        header = json.loads(header_line)
        expected = {"format": _FORMAT, "key": key, "sha256": hashlib.sha256(body).hexdigest()}
        if header != expected:
            raise ValueError("its header is of another file")
        return _FORM.validate_json(body)
    except FileNotFoundError:
        return None
    except (OSError, EOFError, ValueError, TypeError) as error:
        logger.warning("translation %s is not usable (%s) and is made again", path, error)
        return None
