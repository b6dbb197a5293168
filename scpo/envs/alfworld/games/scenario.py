"""Sampled household scenarios on the 120 ALFRED rooms, and their PDDL problems.

A scenario is a room, its objects at sampled places, and a task that can be done there. Each object
lies in a receptacle drawn from all that can hold it; a target never starts at its destination, so
that a policy must search. The problem, the task's sentence and the walkthrough have the format of
ALFWorld's own games.
"""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

from scpo.envs.alfworld.assets import assets

# Pieces of each kind of furniture that a room has without recorded places; of other kinds, one.
_FURNITURE_COPIES = {"StoveBurner": 4, "Shelf": 2, "Drawer": 2, "Cabinet": 2}

# Pieces of these kinds are placed apart from each other.
_SCATTERED = {"Shelf", "Drawer", "Cabinet"}
_LAMPS = {"DeskLamp", "FloorLamp", "Lamp"}

# Camera angle in the layouts -> angle that the official games write, in degrees.
_HORIZONS = {0: 30, 30: 60}


@dataclass(frozen=True)
class Receptacle:
    """A place to look for objects and to put them.

    Attributes:
        id: Name with its coordinates, as in the layouts, e.g. ``Shelf|+00.31|+01.20|-02.04``.
        kind: Class of furniture, e.g. ``Shelf``.
        location: PDDL location from which it is reached; several may share one.
        openable: The agent sees its content only after opening it.
    """

    id: str
    kind: str
    location: str
    openable: bool


@dataclass(frozen=True)
class Pose:
    """Position from which the agent reaches a receptacle.

    Attributes:
        x: Position on the floor, in metres.
        z: The other coordinate of the floor; y is the height.
        rotation: Direction that the agent faces, in degrees.
        horizon: Angle of the camera below the horizontal, in degrees.
    """

    x: float
    z: float
    rotation: float
    horizon: float

    @property
    def location(self) -> str:
        """The pose on the grid of a quarter metre, as a PDDL location."""
        horizon = _HORIZONS.get(int(self.horizon), int(self.horizon))
        x = round(self.x / 0.25)
        z = round(self.z / 0.25)
        return f"loc|{x}|{z}|{round(self.rotation / 90) % 4}|{horizon}"


@dataclass(frozen=True)
class Room:
    """One floor plan.

    Attributes:
        number: ALFRED's number of the floor plan; the hundreds digit is the kind of room.
        placed: Receptacles with a recorded pose.
        unplaced: Kinds of receptacles seen in the room without a recorded pose.
        objects: Kinds of things that can be picked up.
        decor: Kinds of things that can only be seen.
        poses: Recorded poses.
        has_desk_lamp: True if the room has the lamp that tasks under the lamp need.
    """

    number: int
    placed: tuple[Receptacle, ...]
    unplaced: tuple[str, ...]
    objects: tuple[str, ...]
    decor: tuple[str, ...]
    poses: tuple[Pose, ...]
    has_desk_lamp: bool

    def furnish(self, rng: random.Random) -> dict[str, Receptacle]:
        """Receptacles by id: the placed ones, and the unplaced kinds at sampled places."""
        found = {receptacle.id: receptacle for receptacle in self.placed}
        for kind in self.unplaced:
            for pose in self._sample_poses(kind, rng):
                place = position(rng, pose.x, pose.z)
                name = f"{kind}{place}"
                # As in the layouts, e.g. Sink|-01.99|+01.14|-00.98|SinkBasin.
                if kind.endswith("Basin"):
                    name = f"{kind.removesuffix('Basin')}{place}|{kind}"
                found[name] = Receptacle(name, kind, pose.location, openable=False)
        return found

    def start(self, taken: Iterable[str], rng: random.Random) -> str:
        """A location from which no receptacle is reached; ``taken``: those of receptacles."""
        taken = set(taken)
        pose = rng.choice(self.poses)
        # The engine identifies a location by its name: at the location of a receptacle, the agent
        # would begin the episode at that receptacle.
        while (location := _aside(pose, rng)) in taken:
            pose = rng.choice(self.poses)
        return location

    def _sample_poses(self, kind: str, rng: random.Random) -> list[Pose]:
        """Poses for all pieces of a kind whose places were not recorded."""
        # Drawn for scattered kinds too, since the order of the draws is fixed (`_try_room`).
        together = _turned(rng.choice(self.poses), rng)
        scattered = kind in _SCATTERED
        return [
            rng.choice(self.poses) if scattered else together
            for _ in range(_FURNITURE_COPIES.get(kind, 1))
        ]


def position(rng: random.Random, x: float = 0.0, z: float = 0.0, spread: float = 1.0) -> str:
    """A sampled position around (x, z) as ids carry it, e.g. ``|+01.25|+00.80|-02.33``."""
    numbers = (
        x + rng.uniform(-spread, spread),
        rng.uniform(0, 2),
        z + rng.uniform(-spread, spread),
    )
    return "".join(f"|{number:+06.2f}" for number in numbers)


def _turned(pose: Pose, rng: random.Random) -> Pose:
    """A pose half a metre away, in a drawn direction, from which unplaced furniture is reached."""
    return Pose(pose.x + rng.choice((-0.5, 0.5)), pose.z, rng.choice((0, 90, 180, 270)), 30)


def _aside(pose: Pose, rng: random.Random) -> str:
    """A location near a pose, at which an episode may begin."""
    step = Pose(
        pose.x + rng.choice((-0.5, 0.5)),
        pose.z + rng.choice((-0.75, 0.75)),
        90 * rng.randrange(4),
        0,
    )
    return step.location


@functools.cache
def holds() -> dict[str, frozenset[str]]:
    """Kinds of objects that each kind of receptacle can hold.

    Sliced objects and movable receptacles are left out.
    """
    constants = assets().constants
    whole_kinds = {}
    for receptacle, kinds in constants.VAL_RECEPTACLE_OBJECTS.items():
        if receptacle not in constants.MOVABLE_RECEPTACLES:
            whole_kinds[receptacle] = frozenset(kind for kind in kinds if "Sliced" not in kind)
    return whole_kinds


@functools.cache
def room(number: int) -> Room:
    """Read a floor plan."""
    constants = assets().constants
    layouts = assets().layouts
    objects_file = layouts / f"FloorPlan{number}-objects.json"
    poses_file = layouts / f"FloorPlan{number}-openable.json"
    kinds = sorted(json.loads(objects_file.read_text(encoding="utf-8")))
    recorded = json.loads(poses_file.read_text(encoding="utf-8"))
    poses = {name: Pose(*numbers) for name, numbers in sorted(recorded.items())}

    openable = set(constants.OPENABLE_CLASS_LIST)
    placed = []
    for name, pose in poses.items():
        kind = _kind(name)
        if kind in holds():
            placed.append(Receptacle(name, kind, pose.location, kind in openable))

    every_receptacle = set(constants.RECEPTACLES)
    fixed = every_receptacle - set(constants.MOVABLE_RECEPTACLES) - {"PaintingHanger"}
    unplaced = fixed - {receptacle.kind for receptacle in placed}
    portable = frozenset[str]().union(*holds().values())
    not_decor = portable | every_receptacle | _LAMPS
    return Room(
        number=number,
        placed=tuple(placed),
        unplaced=tuple(kind for kind in kinds if kind in unplaced),
        objects=tuple(kind for kind in kinds if kind in portable),
        decor=tuple(kind for kind in kinds if kind not in not_decor),
        # A room without recorded poses gets one, around which places are sampled.
        poses=tuple(poses.values()) or (Pose(0, 0, 0, 30),),
        has_desk_lamp="DeskLamp" in kinds,
    )


def _kind(receptacle: str) -> str:
    """Kind of a receptacle by its id; that of a basin is at the end, see ``Room.furnish``."""
    parts = receptacle.split("|")
    if receptacle.endswith("Basin"):
        return parts[-1]
    return parts[0]


# Ability that the object needs, verb and kind of appliance, by family.
_TREATMENTS = {
    "pick_clean_then_place_in_recep": ("Cleanable", "clean", "SinkBasin"),
    "pick_heat_then_place_in_recep": ("Heatable", "heat", "Microwave"),
    "pick_cool_then_place_in_recep": ("Coolable", "cool", "Fridge"),
}
_LIGHT = "look_at_obj_in_light"
_PAIR = "pick_two_obj_and_place"
_LAMP_SURFACES = ("SideTable", "Desk", "Dresser", "Shelf", "DiningTable", "CoffeeTable")

# Number of things of a kind in a room, and its probabilities.
_COPIES, _COPY_WEIGHTS = (1, 2, 3), (0.45, 0.30, 0.25)

# Relative probability that a thing is put into a receptacle of a kind, 1 for other kinds: more
# things lie on surfaces than in openable receptacles. Tuned to the official games.
_ATTRACTION = {"CounterTop": 2.5, "DiningTable": 2.5, "Desk": 2.0, "Bed": 1.5, "Shelf": 0.6}
_ATTRACTION_OPENABLE = 0.35


@dataclass(frozen=True)
class Thing:
    """Object in the room.

    Attributes:
        id: Kind and a sampled position, e.g. ``Mug|+01.25|+00.80|-02.33``.
        kind: ALFRED's class, e.g. ``Mug``.
        receptacle: Id of the receptacle that it lies in; None for decor, which has no place.
    """

    id: str
    kind: str
    receptacle: str | None


@dataclass(frozen=True)
class Scenario:
    """Content of a generated game.

    Attributes:
        family: Kind of task.
        room: Number of the floor plan.
        target: Kind of the object that the task is about.
        destination: Kind of receptacle that it must be put into; empty for the task under the lamp.
        receptacles: All receptacles by id.
        things: All objects, decor included.
        start: The agent's initial location.
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
        if self.family not in _TREATMENTS:
            return None
        return _TREATMENTS[self.family][1:]

    @property
    def wanted(self) -> int:
        """Number of target objects that the task needs."""
        return 2 if self.family == _PAIR else 1


def sample(family: str, rooms: Sequence[int], rng: random.Random) -> Scenario:
    """Draw rooms until one admits a task of the family, about two draws."""
    constants = assets().constants
    # Rooms of a type for which ALFRED has the family; a room may still lack the objects.
    suitable = []
    for number in rooms:
        if any(number in constants.SCENE_TYPE[kind] for kind in constants.GOALS_VALID[family]):
            suitable.append(number)
    while True:
        scenario = _try_room(family, room(rng.choice(suitable)), rng)
        if scenario is not None:
            return scenario


def _try_room(family: str, plan: Room, rng: random.Random) -> Scenario | None:
    """Furnish a room and draw task, things and start; None if the room admits no such task.

    The order of the draws is part of the games: another order would change all of them, and with
    them every panel's hash.
    """
    receptacles = plan.furnish(rng)
    # Sorted by the order of _LAMP_SURFACES, since only the first two places are used below.
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
        # A target at its destination would solve the task, or a part of it, at the start.
        least, avoid = (wanted, destination) if kind == target else (1, "")
        things += _spread(kind, least, avoid, receptacles, rng)
    if plan.has_desk_lamp and lamp_places:
        things.append(
            Thing(f"DeskLamp{position(rng, spread=5)}", "DeskLamp", rng.choice(lamp_places[:2]))
        )
    things += [Thing(f"{kind}{position(rng, spread=5)}", kind, None) for kind in plan.decor]
    start = plan.start({r.location for r in receptacles.values()}, rng)
    return Scenario(family, plan.number, target, destination, receptacles, tuple(things), start)


def _tasks(family: str, objects: Sequence[str], places: Sequence[str]) -> list[tuple[str, str]]:
    """Feasible pairs (kind of object, kind of destination) among these kinds.

    The room has a receptacle outside the destination that can hold the object, so that ``_spread``
    always finds a place for the target.
    """
    actions = assets().constants.VAL_ACTION_OBJECTS
    if family == _LIGHT:
        excluded = set(actions["Heatable"]) | {"Pot", "Pan"}
        examined = [o for o in objects if o in ("Mug", "Bowl") or o not in excluded]
        return [(o, "") for o in examined if any(o in holds().get(place, ()) for place in places)]

    allowed = set(objects)
    appliance = ""
    if family in _TREATMENTS:
        ability, _, appliance = _TREATMENTS[family]
        allowed &= set(actions[ability])
        if appliance not in places:
            return []
    pairs = []
    for kind in objects:
        if kind not in allowed:
            continue
        able = [place for place in places if kind in holds().get(place, ())]
        # With one kind of place for it in the room, the object could only lie at its destination.
        if len(able) > 1:
            pairs += [(kind, place) for place in able if place != appliance]
    return pairs


def _spread(
    kind: str, least: int, avoid: str, receptacles: dict[str, Receptacle], rng: random.Random
) -> list[Thing]:
    """Things of a kind in drawn receptacles not of kind ``avoid``; empty if none can hold it."""
    count = max(least, rng.choices(_COPIES, _COPY_WEIGHTS)[0])
    spots = [r for r in receptacles.values() if kind in holds().get(r.kind, ()) and r.kind != avoid]
    if not spots:
        return []
    weights = [
        _ATTRACTION_OPENABLE if spot.openable else _ATTRACTION.get(spot.kind, 1.0) for spot in spots
    ]
    places = rng.choices(spots, weights, k=count)
    ids = {f"{kind}{position(rng, spread=5)}": place.id for place in places}
    # Two things that draw the same position, which is very rare, share an id: draw again.
    while len(ids) < count:
        ids[f"{kind}{position(rng, spread=5)}"] = places[-1].id
    return [Thing(name, kind, place) for name, place in ids.items()]


_ESCAPES = str.maketrans(
    {"|": "_bar_", "-": "_minus_", "+": "_plus_", ".": "_dot_", ",": "_comma_"}
)
_ABILITIES = ("cleanable", "heatable", "coolable", "sliceable", "toggleable")

# Types that the domain's actions name, so that every problem must declare them.
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
    words = {
        "obj": scenario.target,
        "recep": scenario.destination,
        "toggle": scenario.toggle,
        "mrecep": "",
    }
    return str(template.format(**{key: word.lower() for key, word in words.items()}))


def walkthrough(scenario: Scenario) -> list[str]:
    """Commands that win, found from the places of things, which a policy does not know."""
    names = _names(scenario)
    receptacles = scenario.receptacles
    commands: list[str] = []
    opened: set[str] = set()
    at = scenario.start

    def go(receptacle: str, *, opening: bool = True) -> None:
        nonlocal at
        # The engine admits no "go to" for the location of the agent.
        if receptacles[receptacle].location != at:
            commands.append(f"go to {names[receptacle]}")
            at = receptacles[receptacle].location
        if opening and receptacles[receptacle].openable and receptacle not in opened:
            opened.add(receptacle)
            commands.append(f"open {names[receptacle]}")

    def first(kind: str) -> str:
        return next(r.id for r in receptacles.values() if r.kind == kind)

    targets = [thing for thing in scenario.things if thing.kind == scenario.target]
    for thing in targets[: scenario.wanted]:
        assert thing.receptacle is not None  # noqa: S101 (only decor has no place)
        go(thing.receptacle)
        commands.append(f"take {names[thing.id]} from {names[thing.receptacle]}")
        if scenario.treatment is not None:
            verb = scenario.treatment[0]
            appliance = first(scenario.treatment[1])
            go(appliance, opening=False)
            commands.append(f"{verb} {names[thing.id]} with {names[appliance]}")
        if scenario.destination:
            go(first(scenario.destination))
            commands.append(f"move {names[thing.id]} to {names[first(scenario.destination)]}")

    if scenario.toggle:
        lamp = next(thing for thing in scenario.things if thing.kind == scenario.toggle)
        assert lamp.receptacle is not None  # noqa: S101 (lamps that tasks use have a place)
        go(lamp.receptacle, opening=False)
        commands.append(f"use {names[lamp.id]}")
    return commands


@functools.lru_cache(maxsize=4096)
def _pddl_name(text: str) -> str:
    return text.translate(_ESCAPES)


def _names(scenario: Scenario) -> dict[str, str]:
    """Names of things and receptacles in the game's texts by id, e.g. ``desk 1``."""
    ids = [*scenario.receptacles, *(thing.id for thing in scenario.things)]
    infos = {name: SimpleNamespace(id=_pddl_name(name).lower()) for name in ids}
    demangler = assets().demangler(game_infos=infos)
    return {name: demangler.demangle_alfred_name(info.id) for name, info in infos.items()}


def _kinds(scenario: Scenario) -> tuple[list[str], list[str]]:
    """Kinds of receptacles and of objects that the problem declares."""
    receptacles = {receptacle.kind for receptacle in scenario.receptacles.values()}
    objects = {thing.kind for thing in scenario.things}
    return sorted(receptacles | _DOMAIN_RECEPTACLES), sorted(objects | _DOMAIN_OBJECTS)


def _locations(scenario: Scenario) -> list[str]:
    locations = {receptacle.location for receptacle in scenario.receptacles.values()}
    locations.add(scenario.start)
    return sorted(locations)


def _objects(scenario: Scenario) -> Iterator[str]:
    """Declarations of the problem: types first, then things, receptacles and locations."""
    receptacle_kinds, object_kinds = _kinds(scenario)
    yield "agent1 - agent"
    yield from (f"    {kind}Type - otype" for kind in object_kinds)
    yield from (f"    {kind}Type - rtype" for kind in receptacle_kinds)
    yield from (f"    {_pddl_name(thing.id)} - object" for thing in scenario.things)
    yield from (f"    {_pddl_name(name)} - receptacle" for name in scenario.receptacles)
    yield from (f"    {_pddl_name(name)} - location" for name in _locations(scenario))


def _facts(scenario: Scenario) -> Iterator[str]:
    """Initial facts: the agent, the receptacles, what they can hold, and the things."""
    receptacle_kinds, object_kinds = _kinds(scenario)
    yield f"atLocation agent1 {_pddl_name(scenario.start)}"
    for receptacle in scenario.receptacles.values():
        name = _pddl_name(receptacle.id)
        yield f"receptacleType {name} {receptacle.kind}Type"
        yield f"receptacleAtLocation {name} {_pddl_name(receptacle.location)}"
        if receptacle.openable:
            yield f"openable {name}"

    # For the kinds in the room and those that the domain names.
    for place in receptacle_kinds:
        held = holds().get(place, frozenset())
        for kind in object_kinds:
            if kind in held:
                yield f"canContain {place}Type {kind}Type"
    yield from _thing_facts(scenario)


def _thing_facts(scenario: Scenario) -> Iterator[str]:
    """Initial facts of the things: kind, abilities and place.

    Decor lies in no receptacle and gets the room's first location.
    """
    constants = assets().constants
    portable = frozenset[str]().union(*holds().values())
    decor_location = _locations(scenario)[0]
    for thing in scenario.things:
        name = _pddl_name(thing.id)
        yield f"objectType {name} {thing.kind}Type"
        if thing.kind in portable:
            yield f"pickupable {name}"
        if thing.kind in constants.MOVABLE_RECEPTACLES:
            yield f"isReceptacleObject {name}"
        for ability in _ABILITIES:
            if thing.kind in constants.VAL_ACTION_OBJECTS[ability.capitalize()]:
                yield f"{ability} {name}"
        location = decor_location
        if thing.receptacle is not None:
            yield f"inReceptacle {name} {_pddl_name(thing.receptacle)}"
            location = scenario.receptacles[thing.receptacle].location
        yield f"objectAtLocation {name} {_pddl_name(location)}"
