"""A scripted shopper: it knows the goal and buys what it asks for through the search, like a customer would."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from scpo.envs.webshop.catalogue.goals import Goal
from scpo.envs.webshop.shop.pages import BACK, BUY, NEXT
from scpo.envs.webshop.shop.shop import WebShop

PAGES = 5  # all that a search returns


def query_for(goal: Goal) -> str:
    """What the shopper types: words that stand in the instruction."""
    return " ".join([*goal.attributes, goal.query])


def buy(shop: WebShop, queries: Sequence[str] | None = None) -> Iterator[str]:
    """The actions that fulfil the goal of ``shop``, each to be taken before the next is asked for.

    Where a query does not find the product the shopper asks for the next one. None are given: for what the instruction
    tells, and at last for the product's title, which no instruction does.
    """
    for query in (query_for(shop.goal), shop.goal.title) if queries is None else queries:
        yield f"search[{query}]"
        target = shop.goal.asin.lower()
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
