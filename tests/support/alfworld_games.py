"""What the ALFWorld tests share: configurations, official games, and the stock engine."""

import os
import random
from dataclasses import dataclass
from pathlib import Path

from omegaconf import OmegaConf

from scpo.envs.alfworld.assets import assets
from scpo.envs.alfworld.games.games import Game, OfficialGames
from scpo.schema.env import AlfworldConfig
from scpo.schema.model import WarmStart
from tests.support.data_folders import DATA, shared, unpacked

ROOT = Path(__file__).parents[2]
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


def official_data() -> str:
    """Folder of a few official games: three of each family in each split."""
    return str(unpacked(DATA / "alfworld" / "games.tar.xz"))


def more_official_data() -> str | None:
    """Folder of many official games where there is one: ``$ALFWORLD_DATA``, or every twelfth of the large data."""
    folder = os.environ.get("ALFWORLD_DATA")
    if folder and (Path(folder) / "json_2.1.1" / "valid_seen").is_dir():
        return folder
    archive = shared("data", "alfworld", "games.tar.xz")
    return None if archive is None else str(unpacked(archive, _every_twelfth))


def _every_twelfth(names: list[str]) -> set[str]:
    return {name for name in names[::12] if "valid_train" not in name}


def official_games(split: str, per_family: int, *, more: int = 0) -> list[Game]:
    """A few official games of every family, and ``more`` of each where there are many."""
    sources = [(official_data(), per_family), (more_official_data() if more else None, more)]
    return [
        OfficialGames(folder).read(game)
        for folder, count in sources
        if folder
        for ids in OfficialGames(folder).ids(split).values()
        for game in ids[:count]
    ]


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
