"""What the ALFWorld tests share: configurations, official games where there are some, and the stock engine."""

import atexit
import functools
import os
import random
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from scpo.envs.alfworld.assets import assets
from scpo.envs.alfworld.games.game import Game
from scpo.envs.alfworld.games.official_games import OfficialGames
from scpo.schema.env import AlfworldConfig
from scpo.schema.model import WarmStart

ROOT = Path(__file__).parents[2]
ARCHIVE = ROOT.parent / "shared" / "data" / "alfworld" / "games.tar.xz"
SMALL_PANELS = {
    "train_panel": {"split": "train", "games": 6, "seed": 0},
    "validation_panels": {"valid_seen": {"split": "valid_seen", "games": 6, "seed": 0}},
    "probe_panel": {"split": "valid_seen", "games": 1, "seed": 0},
}


def alfworld_config(**changes) -> AlfworldConfig:
    """The shipped configuration with small panels and some changes."""
    shipped = OmegaConf.to_container(OmegaConf.load(ROOT / "conf" / "env" / "alfworld.yaml"))
    return AlfworldConfig.model_validate({**shipped, **SMALL_PANELS, "prompt": "compact", **changes})


def warm_start(games: int, demonstrations: int = 3, seed: int = 0) -> WarmStart:
    return WarmStart(
        games=games,
        demonstrations_per_game=demonstrations,
        stop_detour=0.45,
        max_detours=5,
        steps=1,
        batch_size=1,
        learning_rate=1e-3,
        prompt_loss_weight=0.0,
        seed=seed,
    )


@functools.cache
def official_data() -> str:
    """Folder of official games (``$ALFWORLD_DATA``, or some unpacked from the developers' archive); else skip."""
    folder = os.environ.get("ALFWORLD_DATA")
    if folder and (Path(folder) / "json_2.1.1" / "valid_seen").is_dir():
        return folder
    if not ARCHIVE.is_file():
        pytest.skip("no official ALFWorld games: ALFWORLD_DATA is not set and ../shared holds none")
    unpacked = tempfile.TemporaryDirectory(prefix="alfworld-")
    atexit.register(unpacked.cleanup)
    with tarfile.open(ARCHIVE) as archive:
        files = sorted(member.name for member in archive.getmembers() if member.isfile())
        wanted = {name for name in files if "valid_train" not in name}
        wanted &= set(files[::12])
        # In the archive's order: going back in an xz stream starts it again.
        archive.extractall(unpacked.name, [m for m in archive.getmembers() if m.name in wanted], filter="data")
    return unpacked.name


def official_games(split: str, per_family: int) -> list[Game]:
    """A few official games of every family."""
    source = OfficialGames(official_data())
    return [source.read(game) for ids in source.ids(split).values() for game in ids[:per_family]]


@dataclass
class Seen:
    """What an engine shows after a command."""

    observation: str
    admissible: list[str]
    won: bool
    score: int
    done: bool


class StockEngine:
    """TextWorld's own engine in ALFWorld's own wrapper, as verl-agent runs it; a second to load, another to reset."""

    def __init__(self, game: Game) -> None:
        assets()
        import textworld
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
        from textworld.envs import PddlEnv

        infos = textworld.EnvInfos(won=True, admissible_commands=True, feedback=True)
        self._engine = AlfredDemangler(PddlEnv(infos), shuffle=False)
        texts = {"pddl_domain": game.domain, "pddl_problem": game.problem, "grammar": game.grammar}
        self._engine.load(texts)

    def reset(self) -> Seen:
        return self._seen(self._engine.reset(), 0, False)

    def step(self, command: str) -> Seen:
        return self._seen(*self._engine.step(command))

    def _seen(self, state, score, done) -> Seen:
        return Seen(state.feedback, list(state["admissible_commands"]), bool(state["won"]), score, done)


def wander(seen: Seen, rng: random.Random) -> str:
    """A random command, rarely a mere walk: things must be moved for states to differ."""
    hands_on = [command for command in seen.admissible if not command.startswith("go to")]
    return rng.choice(hands_on if rng.random() < 0.6 else seen.admissible)
