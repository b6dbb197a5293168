"""A scenario written as ALFWorld writes its games: a PDDL problem, the task in words, a walkthrough."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from types import SimpleNamespace

from scpo.envs.alfworld.assets import assets
from scpo.envs.alfworld.games.rooms import holds
from scpo.envs.alfworld.games.scenario import Scenario

_ESCAPES = str.maketrans({"|": "_bar_", "-": "_minus_", "+": "_plus_", ".": "_dot_", ",": "_comma_"})
_ABILITIES = ("cleanable", "heatable", "coolable", "sliceable", "toggleable")
# The domain's actions name these types, so every problem must declare them.
_DOMAIN_RECEPTACLES = {"SinkBasin", "Microwave", "Fridge"}
_DOMAIN_OBJECTS = {"Knife", "ButterKnife"}


def pddl(scenario: Scenario, name: str) -> str:
    """The PDDL problem in the official format."""
    lines = [f"(define (problem {name})", "(:domain alfred)", "(:objects", *_objects(scenario), ")"]
    lines += ["(:init", *(f"    ({fact})" for fact in _facts(scenario)), ")"]
    goal = assets().goals.gdict[scenario.family]["pddl"].replace("#", "-")
    words = {"obj": scenario.target, "recep": scenario.destination, "toggle": scenario.toggle}
    return "\n".join(lines) + "\n" + str(goal.format(**words))


def sentence(scenario: Scenario, rng: random.Random) -> str:
    """The task in words, one of the family's official templates."""
    template = rng.choice(assets().goals.gdict[scenario.family]["templates"])
    words = {"obj": scenario.target, "recep": scenario.destination, "toggle": scenario.toggle, "mrecep": ""}
    return str(template.format(**{key: word.lower() for key, word in words.items()}))


def walkthrough(scenario: Scenario) -> list[str]:
    """Commands that win: the scenario knows where everything is."""
    names = _names(scenario)
    receptacles = scenario.receptacles
    commands: list[str] = []
    opened: set[str] = set()
    at = scenario.start

    def go(receptacle: str, *, opening: bool = True) -> None:
        nonlocal at
        if receptacles[receptacle].location != at:  # the engine has no command for going where one stands
            commands.append(f"go to {names[receptacle]}")
            at = receptacles[receptacle].location
        if opening and receptacles[receptacle].openable and receptacle not in opened:
            opened.add(receptacle)
            commands.append(f"open {names[receptacle]}")

    def first(kind: str) -> str:
        return next(r.id for r in receptacles.values() if r.kind == kind)

    targets = [thing for thing in scenario.things if thing.kind == scenario.target]
    for thing in targets[: scenario.wanted]:
        assert thing.receptacle is not None  # noqa: S101 (only decor stands nowhere, and decor is never wanted)
        go(thing.receptacle)
        commands.append(f"take {names[thing.id]} from {names[thing.receptacle]}")
        if scenario.treatment is not None:
            verb, appliance = scenario.treatment[0], first(scenario.treatment[1])
            go(appliance, opening=False)
            commands.append(f"{verb} {names[thing.id]} with {names[appliance]}")
        if scenario.destination:
            go(first(scenario.destination))
            commands.append(f"move {names[thing.id]} to {names[first(scenario.destination)]}")
    if scenario.toggle:
        lamp = next(thing for thing in scenario.things if thing.kind == scenario.toggle)
        assert lamp.receptacle is not None  # noqa: S101 (a lamp that tasks use stands on something)
        go(lamp.receptacle, opening=False)
        commands.append(f"use {names[lamp.id]}")
    return commands


@functools.lru_cache(maxsize=4096)
def _pddl_name(text: str) -> str:
    return text.translate(_ESCAPES)


def _names(scenario: Scenario) -> dict[str, str]:
    """Names that the game will give to things and receptacles, e.g. ``desk 1``."""
    ids = [*scenario.receptacles, *(thing.id for thing in scenario.things)]
    infos = {name: SimpleNamespace(id=_pddl_name(name).lower()) for name in ids}
    demangler = assets().demangler(game_infos=infos)
    return {name: demangler.demangle_alfred_name(info.id) for name, info in infos.items()}


def _kinds(scenario: Scenario) -> tuple[list[str], list[str]]:
    """Kinds of receptacles and of objects that the problem declares."""
    receptacles = {receptacle.kind for receptacle in scenario.receptacles.values()} | _DOMAIN_RECEPTACLES
    objects = {thing.kind for thing in scenario.things} | _DOMAIN_OBJECTS
    return sorted(receptacles), sorted(objects)


def _locations(scenario: Scenario) -> list[str]:
    return sorted({receptacle.location for receptacle in scenario.receptacles.values()} | {scenario.start})


def _objects(scenario: Scenario) -> Iterator[str]:
    receptacle_kinds, object_kinds = _kinds(scenario)
    yield "agent1 - agent"
    yield from (f"    {kind}Type - otype" for kind in object_kinds)
    yield from (f"    {kind}Type - rtype" for kind in receptacle_kinds)
    yield from (f"    {_pddl_name(thing.id)} - object" for thing in scenario.things)
    yield from (f"    {_pddl_name(name)} - receptacle" for name in scenario.receptacles)
    yield from (f"    {_pddl_name(name)} - location" for name in _locations(scenario))


def _facts(scenario: Scenario) -> Iterator[str]:
    receptacle_kinds, object_kinds = _kinds(scenario)
    yield f"atLocation agent1 {_pddl_name(scenario.start)}"
    for receptacle in scenario.receptacles.values():
        name = _pddl_name(receptacle.id)
        yield f"receptacleType {name} {receptacle.kind}Type"
        yield f"receptacleAtLocation {name} {_pddl_name(receptacle.location)}"
        if receptacle.openable:
            yield f"openable {name}"
    for place in receptacle_kinds:
        yield from (f"canContain {place}Type {kind}Type" for kind in object_kinds if kind in holds().get(place, ()))
    yield from _thing_facts(scenario)


def _thing_facts(scenario: Scenario) -> Iterator[str]:
    constants = assets().constants
    portable = frozenset[str]().union(*holds().values())
    nowhere = _locations(scenario)[0]
    for thing in scenario.things:
        name = _pddl_name(thing.id)
        yield f"objectType {name} {thing.kind}Type"
        if thing.kind in portable:
            yield f"pickupable {name}"
        if thing.kind in constants.MOVABLE_RECEPTACLES:
            yield f"isReceptacleObject {name}"
        able = constants.VAL_ACTION_OBJECTS
        yield from (f"{fact} {name}" for fact in _ABILITIES if thing.kind in able[fact.capitalize()])
        if thing.receptacle is None:
            yield f"objectAtLocation {name} {_pddl_name(nowhere)}"
        else:
            yield f"inReceptacle {name} {_pddl_name(thing.receptacle)}"
            yield f"objectAtLocation {name} {_pddl_name(scenario.receptacles[thing.receptacle].location)}"
