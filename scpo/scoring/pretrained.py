"""Loader of pretrained models: a package's folder, a local folder or the Hugging Face hub."""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from scpo.errors import ScorerError, first_line
from scpo.installed import install_command

_PACKAGE = "package:"


def pretrained(path: str, auto_class: str, **settings: Any) -> tuple[Any, Any]:
    """Load tokenizer and model; only a name on the hub may cause a download.

    Args:
        path: ``package:<installed package>`` with the model in its folder ``model``, a local
            folder, or a hub name.
        auto_class: The class of transformers that loads the model.
        settings: Arguments of its ``from_pretrained``.

    Raises:
        ScorerError: torch and transformers are not installed, or the model does not exist.
    """
    return load_part(path, "AutoTokenizer"), load_part(path, auto_class, **settings)


def load_part(path: str, auto_class: str, **settings: Any) -> Any:
    """Load a tokenizer, model or configuration by its class of transformers.

    transformers is imported here, so that scorers without a model work where it is not installed.
    Arguments and errors as in :func:`pretrained`.
    """
    try:
        import transformers
    except ImportError as error:
        raise ScorerError(
            f"neural scorers need torch and transformers: {install_command('local')}"
        ) from error
    source = package_folder(path.removeprefix(_PACKAGE)) if path.startswith(_PACKAGE) else path
    # If the folder exists, the hub is never asked: otherwise transformers would look there for
    # optional files that the folder lacks, and a node without internet access would wait for the
    # time-out.
    local = Path(source).is_dir()
    # A download takes minutes, so it keeps its progress bar.
    loading = _without_progress_bars() if local else nullcontext()
    try:
        with loading:
            return getattr(transformers, auto_class).from_pretrained(
                source, local_files_only=local, **settings
            )
    except (OSError, ValueError) as error:
        raise ScorerError(_missing(path, local, error)) from error


@contextmanager
def _without_progress_bars() -> Iterator[None]:
    """Turn off the progress bars that transformers shows for each file."""
    from transformers.utils import logging as messages

    enabled = messages.is_progress_bar_enabled()
    messages.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if enabled:
            messages.enable_progress_bar()  # type: ignore[no-untyped-call]


def _missing(path: str, local: bool, error: Exception) -> str:
    """Message for a model that cannot be loaded; for a hub name, with how to avoid a download."""
    reason = first_line(error)
    if local:
        return (
            f"no model of transformers in the folder {path!r} ({reason}): it needs "
            "config.json, weights, tokenizer"
        )
    return (
        f"no model at {path!r} ({reason}): expected package:<installed package>, a local folder or "
        "a name on the Hugging Face hub. On a machine without internet access, run `hf download "
        f"{path} --local-dir DIR` on one that has it, copy DIR, and add scorer.path=DIR; without "
        "the model, scorer=minilm and scorer=lexical work"
    )


def package_folder(package: str) -> str:
    """Folder ``model`` of an installed package.

    Raises:
        ScorerError: The package is not installed.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ScorerError(
            f"the scorer's model comes with the package {package!r}, which is not installed: "
            f"pip install {package.replace('_', '-')}"
        )
    return str(Path(spec.submodule_search_locations[0]) / "model")
