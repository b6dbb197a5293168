"""WebShop's text protocol: an agent shops for one goal at a time in a shared catalogue."""

from __future__ import annotations

import random
from typing import TypedDict

from scpo.envs.webshop.catalogue.catalogue import Catalogue, Product
from scpo.envs.webshop.catalogue.goals import Goal, goal_order
from scpo.envs.webshop.shop.pages import SEARCH, START, Page, click, clickables, observation, search
from scpo.envs.webshop.shop.reward import NounRule, NounRuleName, noun_rule, reward
from scpo.errors import ConfigError


class Actions(TypedDict):
    """Available actions of a page, in the original's format."""

    has_search_bar: bool
    clickables: list[str]


class WebShop:
    """The environment of the original (``WebAgentTextEnv`` in text mode), step for step.

    Args:
        catalogue: Shared by all environments of a process.
        seed: Determines the order of the goals, the drawn prices and the price bounds.
        nouns: How the reward compares titles, see
            :func:`scpo.envs.webshop.shop.reward.noun_rule`.
        human: Use the human goals instead of the synthetic ones.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        seed: int,
        nouns: NounRuleName | NounRule = "spacy",
        *,
        human: bool = False,
    ) -> None:
        self.catalogue = catalogue
        self.goals = goal_order(catalogue, seed, human)
        self.page = START
        self.score = 0.0
        self._nouns = noun_rule(nouns)
        self._goal: Goal | None = None
        self._rng = random.Random()

    @property
    def goal(self) -> Goal:
        """The goal of this episode.

        Raises:
            ConfigError: :meth:`reset` was not called yet.
        """
        if self._goal is None:
            raise ConfigError("the episode has no goal yet: call reset(goal_index) first")
        return self._goal

    @property
    def done(self) -> bool:
        return self.page.kind == "done"

    def reset(self, goal_index: int) -> str:
        """Begin an episode with goal ``goal_index`` of the seed's order.

        Returns:
            The text of the search page.

        Raises:
            CatalogueError: The index is out of range.
        """
        self._goal = self.goals[goal_index]
        # Seeded by the goal, so that the search "<r>" draws the same products for all siblings.
        self._rng = random.Random(f"{self.goals.seed}/{goal_index}")
        self.page = START
        self.score = 0.0
        return self.observation

    @property
    def observation(self) -> str:
        """Text of the current page."""
        return observation(self.page, self.goal.instruction, self.score)

    def available_actions(self) -> Actions:
        """Clickable elements, and whether there is a search bar."""
        return {"has_search_bar": self.page.kind == "search", "clickables": clickables(self.page)}

    def step(self, action: str) -> tuple[str, float, bool]:
        """Execute ``search[...]`` or ``click[...]``; any other text changes nothing.

        After the end of the episode no action changes anything.

        Returns:
            The page's text, the reward in [0, 1] of this step, and whether the episode is over.
        """
        earned = 0.0
        if not self.done:
            self.page = self._next_page(action)
            if self.done:
                earned = self.score = self._reward()
        return self.observation, earned, self.done

    def _next_page(self, action: str) -> Page:
        """Page after an action; a search works on every page, even without a search bar."""
        name, argument = parse_action(action)
        if name == "search":
            return search(argument, self._find)
        # `click[search]` is listed, but changes nothing: only `search[...]` has keywords.
        if name == "click" and argument != SEARCH and argument in clickables(self.page):
            return click(self.page, argument, self._find)
        return self.page

    def _find(self, keywords: str) -> tuple[Product, ...]:
        return self.catalogue.find(keywords, self._rng)

    def _reward(self) -> float:
        assert self.page.product is not None, "only a product can be bought"  # noqa: S101
        price = self.goals.price(self.page.product)
        return reward(self.page.product, self.page.options, price, self.goal, self._nouns)


def parse_action(action: str) -> tuple[str, str]:
    r"""Name and lower-case argument of an action; both empty if the text has another form.

    Equals a match of the original's greedy ``(.+)\[(.+)\]`` on the first line, but takes linear
    time. The argument ends before the last ``]`` and begins after the last ``[`` that leaves it and
    the name at least one character.
    """
    line = action.partition("\n")[0]
    end = line.rfind("]")
    start = line.rfind("[", 1, max(end - 1, 0))
    if start > 0:
        return line[:start], line[start + 1 : end].lower()
    return "", ""
