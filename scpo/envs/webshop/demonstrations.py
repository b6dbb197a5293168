"""Demonstrations for the warm start of a small policy, played by a scripted shopper.

The shopper knows the goal and finds nearly every product at the first position; a policy that
imitates it would not learn to read the results. So most demonstrations search with only some of the
words, and some of them open a wrong product first. Demonstrations for a policy that chooses from a
list only take listed actions.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator, Mapping, Sequence

from scpo.envs.base import Demonstration, Task
from scpo.envs.projection import CLOSE_TAG, respond
from scpo.envs.webshop.catalogue.catalogue import Catalogue
from scpo.envs.webshop.catalogue.goals import Goal
from scpo.envs.webshop.compact_actions import listed
from scpo.envs.webshop.episode import WebshopEpisode
from scpo.envs.webshop.panels import GoalPanels
from scpo.envs.webshop.prompts import MARKS, compact_response, wish
from scpo.envs.webshop.shop.pages import BACK, BUY, NEXT, PAGE_SIZE, PREVIOUS
from scpo.envs.webshop.shop.shop import WebShop
from scpo.envs.webshop.wish import searches
from scpo.errors import PanelError
from scpo.progress import progress
from scpo.schema.env import WebshopConfig
from scpo.schema.model import Imitation

logger = logging.getLogger(__name__)

# Pages of results: a search returns at most 50 products, ten on each page.
PAGES = 5


def query_for(goal: Goal) -> str:
    """Query of the scripted shopper: words of the instruction."""
    return " ".join([*goal.attributes, goal.query])


def buy(shop: WebShop, queries: Sequence[str] | None = None) -> Iterator[str]:
    """Yield the actions that fulfil the shop's goal; take each before the next is requested.

    If a query does not find the product, the next one is tried. Default queries: the words of the
    instruction, then the product's title, which no instruction contains.
    """
    if queries is None:
        queries = (query_for(shop.goal), shop.goal.title)
    target = shop.goal.asin.lower()
    for query in queries:
        yield f"search[{query}]"
        for _ in range(PAGES - 1):
            if target in shop.available_actions()["clickables"]:
                break
            yield f"click[{NEXT}]"
        if target in shop.available_actions()["clickables"]:
            yield f"click[{target}]"
            yield from choose_and_pay(shop.goal)
            return
        yield f"click[{BACK}]"


def choose_and_pay(goal: Goal) -> Iterator[str]:
    """The clicks on the product's page."""
    values = goal.options.values() if isinstance(goal.options, Mapping) else goal.options
    yield from (f"click[{value}]" for value in values)
    yield f"click[{BUY}]"


# No horizon: a demonstration ends with the purchase.
_ENDLESS = 10_000

# The vocabulary has the numbers below it: prices in whole dollars.
_NUMBERS = 1000


def demonstrations(
    config: WebshopConfig,
    panels: GoalPanels,
    start: Callable[[Task, WebshopConfig], WebshopEpisode],
    warm_start: Imitation,
) -> list[Demonstration]:
    """Play ``demonstrations_per_game`` demonstrations on training goals outside the training panel.

    Args:
        config: The environment's configuration.
        panels: The environment's goals.
        start: Begins an episode of a task with this configuration of the protocol.
        warm_start: How many goals and demonstrations, how often to stop a detour, the seed.

    Raises:
        PanelError: The training split has too few goals outside the panel.
    """
    choosing = config.prompt == "memory"
    shopper = _ChoosingShopper if choosing else _Shopper
    shown = config.model_copy(
        update={"prompt": "memory" if choosing else "compact", "horizon": _ENDLESS}
    )
    made = []
    tasks = [panels.task(task_id) for task_id in panels.untrained(warm_start, "goals", "catalogue")]
    for task in progress(tasks, "demonstrations for the warm start", "goal"):
        for repetition in range(warm_start.demonstrations_per_game):
            rng = random.Random(f"demonstration {warm_start.seed} {task.id} {repetition}")
            player = shopper(start(task, shown), warm_start.stop_detour, rng)
            # The first demonstration of a goal takes no detour.
            made.append(player.play(warm_start.max_detours if repetition else 0))

    found = [demonstration for demonstration in made if demonstration is not None]
    if not found:
        raise PanelError(
            f"none of the {warm_start.games} goals drawn for the imitation start is fulfilled by "
            f"what env.prompt={config.prompt} lists; use env.goals=synthetic or another catalogue"
        )
    if len(found) < len(made):
        logger.warning(
            "%d of %d goals' demonstrations are left out: what is listed does not fulfil them",
            len(made) - len(found),
            len(made),
        )
    return found


def vocabulary(catalogue: Catalogue, panels: GoalPanels) -> list[str]:
    """Texts that hold every word of a compact prompt.

    Wishes, titles, options, descriptions, numbers and the prompt's own words.
    """
    products = []
    for product in catalogue.products:
        products.append(" ".join([product.title, product.document, *product.bullets]).lower())
    wishes: set[str] = set()
    for split in ("train", "test"):
        for ids in panels.candidates(split).values():
            wishes |= {wish(panels.goal(task_id).instruction) for task_id in ids}

    actions = "search click back to search prev next description features reviews buy now"
    return [*products, *sorted(wishes), " ".join(map(str, range(_NUMBERS))), actions, MARKS]


class _Shopper:
    """Plays one demonstration.

    Args:
        episode: A fresh episode of the goal, without a horizon.
        stop: Probability to stop opening wrong products before each next one.
        rng: Draws the detours and the words of a vague query.
    """

    def __init__(self, episode: WebshopEpisode, stop: float, rng: random.Random) -> None:
        self._episode = episode
        self._stop = stop
        self._rng = rng
        self._prompts: list[str] = []
        self._responses: list[str] = []

    def play(self, detours: int) -> Demonstration | None:
        """Buy what the goal asks for, opening up to ``detours`` wrong products first.

        With 0 detours the search uses all words of the goal.
        """
        for action in buy(self._episode.shop, self._queries(vague=detours > 0)):
            target = action.removeprefix("click[").removesuffix("]")
            # A page with a single product has no wrong one to open.
            while target in self._listed() and len(self._listed()) > 1 and detours:
                if self._rng.random() <= self._stop:
                    break
                detours -= 1
                others = [name for name in self._listed() if name != target]
                self._do(f"click[{self._rng.choice(others)}]")
                self._do(f"click[{PREVIOUS}]")
            self._do(action)
        return Demonstration(self._episode.task.id, tuple(self._prompts), tuple(self._responses))

    def _do(self, action: str) -> None:
        """Take an action and keep it with the prompt that it answers."""
        self._prompts.append(self._episode.prompt())
        self._responses.append(self._response(action))
        self._episode.step(self._responses[-1])

    def _response(self, action: str) -> str:
        return compact_response(action, self._clickables())

    def _queries(self, *, vague: bool) -> list[str]:
        """Queries to try in order; a vague shopper begins with some of the words."""
        goal = self._episode.shop.goal
        full = [query_for(goal), goal.title]
        if not vague:
            return full
        # The catalogue's query is always kept, so that the search finds products of this kind.
        kept = self._rng.randint(0, len(goal.attributes))
        return [" ".join([*goal.attributes[:kept], goal.query]), *full]

    def _clickables(self) -> list[str]:
        return self._episode.transcript.actions["clickables"]

    def _listed(self) -> Sequence[str]:
        return listed(self._clickables())


class _ChoosingShopper(_Shopper):
    """Shopper restricted to listed searches; it knows which of them find the product."""

    def play(self, detours: int) -> Demonstration | None:
        """Play a demonstration; None if no listed action fulfils the goal."""
        # A goal that no listed search finds cannot be demonstrated with listed actions.
        made = super().play(detours) if self._finding_searches() else None
        listed_all = made is not None and all(map(_lists, made.prompts, made.responses))
        if listed_all and self._episode.shop.score == 1.0:
            return made
        return None

    def _response(self, action: str) -> str:
        return respond(action)

    def _queries(self, *, vague: bool) -> list[str]:
        found = self._finding_searches()
        return [self._rng.choice(found) if vague else found[0]]

    def _finding_searches(self) -> list[str]:
        """The listed searches that show the product on their first page."""
        shop = self._episode.shop
        finding = []
        for query in searches(self._episode.transcript.task):
            first_page = shop.catalogue.find(query, self._rng)[:PAGE_SIZE]
            if any(product.asin == shop.goal.asin for product in first_page):
                finding.append(query)
        return finding


def _lists(prompt: str, response: str) -> bool:
    """Return True if the prompt lists the action of the response."""
    return f"\n> {response.removesuffix(CLOSE_TAG).strip()}\n" in f"{prompt}\n"
