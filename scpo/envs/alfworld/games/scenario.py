"""Sampling of a scenario: a room, its things at sampled places, and a task that can be done there.

Things are spread so that a policy must search: every kind lies at a place drawn among all receptacles that can hold it,
the wanted thing never where it is wanted.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from scpo.envs.alfworld.assets import assets
from scpo.envs.alfworld.games.rooms import Receptacle, Room, holds, position, room

_TREATMENTS = {
    "pick_clean_then_place_in_recep": ("Cleanable", "clean", "SinkBasin"),
    "pick_heat_then_place_in_recep": ("Heatable", "heat", "Microwave"),
    "pick_cool_then_place_in_recep": ("Coolable", "cool", "Fridge"),
}
_LIGHT = "look_at_obj_in_light"
_PAIR = "pick_two_obj_and_place"
_LAMP_SURFACES = ("SideTable", "Desk", "Dresser", "Shelf", "DiningTable", "CoffeeTable")
_COPIES, _COPY_WEIGHTS = (1, 2, 3), (0.45, 0.30, 0.25)
# How much a kind of receptacle attracts things: surfaces fill up, closed places less. Tuned to the official games.
_ATTRACTION = {"CounterTop": 2.5, "DiningTable": 2.5, "Desk": 2.0, "Bed": 1.5, "Shelf": 0.6}
_ATTRACTION_CLOSED = 0.35


@dataclass(frozen=True)
class Thing:
    """An object; ``receptacle`` is None for decor, which stands nowhere in particular."""

    id: str
    kind: str
    receptacle: str | None


@dataclass(frozen=True)
class Scenario:
    """Everything a game says.

    Attributes:
        family: Kind of task.
        room: Number of the floor plan.
        target: Kind of the wanted object.
        destination: Kind of receptacle it must be put into; empty for the task under the lamp.
        receptacles: All receptacles by id.
        things: All objects.
        start: Where the agent stands first.
    """

    family: str
    room: int
    target: str
    destination: str
    receptacles: dict[str, Receptacle]
    things: tuple[Thing, ...]
    start: str

    @property
    def toggle(self) -> str:
        """Kind of lamp to switch on; empty if the task needs none."""
        return "DeskLamp" if self.family == _LIGHT else ""

    @property
    def treatment(self) -> tuple[str, str] | None:
        """Verb and kind of appliance of a clean, heat or cool task."""
        return _TREATMENTS[self.family][1:] if self.family in _TREATMENTS else None

    @property
    def wanted(self) -> int:
        """How many targets must be brought."""
        return 2 if self.family == _PAIR else 1


def sample(family: str, rooms: Sequence[int], rng: random.Random) -> Scenario:
    """Draw rooms until one suits the family; about two draws are needed."""
    constants = assets().constants
    suitable = [n for n in rooms if any(n in constants.SCENE_TYPE[kind] for kind in constants.GOALS_VALID[family])]
    while True:
        scenario = _try_room(family, room(rng.choice(suitable)), rng)
        if scenario is not None:
            return scenario


def _try_room(family: str, plan: Room, rng: random.Random) -> Scenario | None:
    receptacles = plan.furnish(rng)
    lamp_places = [r.id for kind in _LAMP_SURFACES for r in receptacles.values() if r.kind == kind]
    if family == _LIGHT and not (plan.has_desk_lamp and lamp_places):
        return None
    tasks = _tasks(family, plan.objects, sorted({r.kind for r in receptacles.values()}))
    if not tasks:
        return None
    target, destination = rng.choice(tasks)
    wanted = 2 if family == _PAIR else 1
    things: list[Thing] = []
    for kind in plan.objects:
        least, avoid = (wanted, destination) if kind == target else (1, "")
        things += _spread(kind, least, avoid, receptacles, rng)
    if sum(thing.kind == target for thing in things) < wanted:
        return None
    if plan.has_desk_lamp and lamp_places:
        things.append(Thing(f"DeskLamp{position(rng, spread=5)}", "DeskLamp", rng.choice(lamp_places[:2])))
    things += [Thing(f"{kind}{position(rng, spread=5)}", kind, None) for kind in plan.decor]
    start = plan.start({r.location for r in receptacles.values()}, rng)
    return Scenario(family, plan.number, target, destination, receptacles, tuple(things), start)


def _tasks(family: str, objects: Sequence[str], places: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs (kind of object, kind of destination) that make sense among these kinds of objects and receptacles."""
    actions = assets().constants.VAL_ACTION_OBJECTS
    if family == _LIGHT:
        unwieldy = set(actions["Heatable"]) | {"Pot", "Pan"}
        portable = [o for o in objects if o in ("Mug", "Bowl") or o not in unwieldy]
        return [(o, "") for o in portable if any(o in holds().get(place, ()) for place in places)]
    allowed, appliance = set(objects), ""
    if family in _TREATMENTS:
        ability, _, appliance = _TREATMENTS[family]
        allowed &= set(actions[ability])
        if appliance not in places:
            return []
    return [
        (kind, place)
        for kind in objects
        if kind in allowed
        for place in places
        if place != appliance and kind in holds().get(place, ()) and sum(kind in holds().get(p, ()) for p in places) > 1
    ]


def _spread(kind: str, least: int, avoid: str, receptacles: dict[str, Receptacle], rng: random.Random) -> list[Thing]:
    """Some copies of a kind at drawn places, none of them in a receptacle of the kind to avoid."""
    count = max(least, rng.choices(_COPIES, _COPY_WEIGHTS)[0])
    spots = [r for r in receptacles.values() if kind in holds().get(r.kind, ()) and r.kind != avoid]
    if not spots:
        return []
    weights = [_ATTRACTION_CLOSED if spot.openable else _ATTRACTION.get(spot.kind, 1.0) for spot in spots]
    places = rng.choices(spots, weights, k=count)
    ids = {f"{kind}{position(rng, spread=5)}": place.id for place in places}
    while len(ids) < count:  # two copies drew the same position: vanishingly rare, but then one would be lost
        ids[f"{kind}{position(rng, spread=5)}"] = places[-1].id
    return [Thing(name, kind, place) for name, place in ids.items()]
