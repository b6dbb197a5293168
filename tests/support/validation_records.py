"""Records of validations, as a trainer writes them, with invented outcomes: a function of game, seed and step."""

import json

from scpo.diagnostics.validation_episodes import Played, Turn, save_validation
from scpo.records import RunFolder
from tests.support.run_records import write_lines

FAMILIES = ("pick_and_place_simple", "look_at_obj_in_light", "pick_heat_then_place_in_recep")
GAMES = 12
MARKUP = "<script>alert(3)</script> & <b>"


def won(game, seed, step):
    """Later games are harder, later steps and seeds better; the last game is won by nobody."""
    return game < GAMES - 1 and game <= step + 2 * seed


def write_validations(folder, seed, *steps, panels=("valid_seen",), repeats=1):
    """``validation_step_<n>.json.gz`` for each step; success rates that the run logged become those of its episodes."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for step in steps:
        episodes = {panel: list(_episodes(panel, seed, step, repeats)) for panel in panels}
        save_validation(RunFolder(folder), step, episodes)
        for line in lines:
            logged = {panel for panel in panels if f"val/{panel}/success_rate" in line}
            for panel in logged if line["step"] == step else ():
                rate = sum(episode.won for episode in episodes[panel]) / len(episodes[panel])
                line[f"val/{panel}/success_rate"] = rate
    write_lines(folder / "metrics.jsonl", lines)


def _episodes(panel, seed, step, repeats):
    for game in range(GAMES):
        for repeat in range(repeats):
            turns = [Turn(f"go to shelf {t}", f"You arrive at shelf {t}. {MARKUP}", t != 1) for t in range(3)]
            family = FAMILIES[game % len(FAMILIES)]
            name = f"{panel}/generated-0/{game:06d}-{family}"
            yield Played(
                name,
                family,
                repeat,
                won=won(game, seed, step),
                length=3,
                invalid=1,
                score=None,
                start=f"Task {game}",
                turns=turns,
            )
