"""The 120 ALFRED rooms that the ``alfworld`` package ships, and what may stand and lie in them."""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Iterable
from dataclasses import dataclass

from scpo.envs.alfworld.assets import assets

# Pieces of furniture of a kind that the room is known to have but whose places were not recorded.
_COPIES = {"StoveBurner": 4, "Shelf": 2, "Drawer": 2, "Cabinet": 2}
_SCATTERED = {"Shelf", "Drawer", "Cabinet"}  # copies of these stand apart from each other
_LAMPS = {"DeskLamp", "FloorLamp", "Lamp"}
_HORIZONS = {0: 30, 30: 60}  # camera angles of the layouts, as the official games write them


@dataclass(frozen=True)
class Receptacle:
    """A place to look for objects and to put them."""

    id: str
    kind: str
    location: str
    openable: bool


@dataclass(frozen=True)
class Pose:
    """Where the agent stands to reach a receptacle: metres, degrees."""

    x: float
    z: float
    rotation: float
    horizon: float

    @property
    def location(self) -> str:
        """The pose on the grid of a quarter metre, as a PDDL location."""
        horizon = _HORIZONS.get(int(self.horizon), int(self.horizon))
        return f"loc|{round(self.x / 0.25)}|{round(self.z / 0.25)}|{round(self.rotation / 90) % 4}|{horizon}"


@dataclass(frozen=True)
class Room:
    """One floor plan.

    Attributes:
        number: ALFRED's number; its hundreds say the kind of room.
        placed: Receptacles with a recorded pose.
        unplaced: Kinds of receptacles seen in the room without a recorded pose.
        objects: Kinds of things that can be picked up.
        decor: Kinds of things that can only be seen.
        poses: Recorded poses.
        has_desk_lamp: A task under the lamp is possible.
    """

    number: int
    placed: tuple[Receptacle, ...]
    unplaced: tuple[str, ...]
    objects: tuple[str, ...]
    decor: tuple[str, ...]
    poses: tuple[Pose, ...]
    has_desk_lamp: bool

    def furnish(self, rng: random.Random) -> dict[str, Receptacle]:
        """All receptacles by id: those recorded, and for each other kind some at sampled places."""
        found = {receptacle.id: receptacle for receptacle in self.placed}
        for kind in self.unplaced:
            for pose in self._sample_poses(kind, rng):
                place = position(rng, pose.x, pose.z)
                receptacle = f"{kind[:-5]}{place}|{kind}" if kind.endswith("Basin") else f"{kind}{place}"
                found[receptacle] = Receptacle(receptacle, kind, pose.location, openable=False)
        return found

    def start(self, taken: Iterable[str], rng: random.Random) -> str:
        """A location where no receptacle is reached from."""
        taken = set(taken)
        pose = rng.choice(self.poses)
        while (location := _aside(pose, rng)) in taken:
            pose = rng.choice(self.poses)
        return location

    def _sample_poses(self, kind: str, rng: random.Random) -> list[Pose]:
        together = _turned(rng.choice(self.poses), rng)
        scattered = kind in _SCATTERED
        return [rng.choice(self.poses) if scattered else together for _ in range(_COPIES.get(kind, 1))]


def position(rng: random.Random, x: float = 0.0, z: float = 0.0, spread: float = 1.0) -> str:
    """A sampled position around (x, z) as ids carry it, e.g. ``|+01.25|+00.80|-02.33``."""
    numbers = (x + rng.uniform(-spread, spread), rng.uniform(0, 2), z + rng.uniform(-spread, spread))
    return "".join(f"|{number:+06.2f}" for number in numbers)


def _turned(pose: Pose, rng: random.Random) -> Pose:
    return Pose(pose.x + rng.choice((-0.5, 0.5)), pose.z, rng.choice((0, 90, 180, 270)), 30)


def _aside(pose: Pose, rng: random.Random) -> str:
    step = Pose(pose.x + rng.choice((-0.5, 0.5)), pose.z + rng.choice((-0.75, 0.75)), 90 * rng.randrange(4), 0)
    return step.location


@functools.cache
def holds() -> dict[str, frozenset[str]]:
    """Kinds of objects that each kind of receptacle can hold; slices and movable receptacles are not played."""
    constants = assets().constants
    return {
        receptacle: frozenset(kind for kind in kinds if "Sliced" not in kind)
        for receptacle, kinds in constants.VAL_RECEPTACLE_OBJECTS.items()
        if receptacle not in constants.MOVABLE_RECEPTACLES
    }


@functools.cache
def room(number: int) -> Room:
    """Read a floor plan."""
    constants, layouts = assets().constants, assets().layouts
    kinds = sorted(json.loads((layouts / f"FloorPlan{number}-objects.json").read_text(encoding="utf-8")))
    recorded = json.loads((layouts / f"FloorPlan{number}-openable.json").read_text(encoding="utf-8"))
    poses = {name: Pose(*numbers) for name, numbers in sorted(recorded.items())}
    openable = set(constants.OPENABLE_CLASS_LIST)
    placed = tuple(
        Receptacle(name, kind, pose.location, kind in openable)
        for name, pose in poses.items()
        if (kind := _kind(name)) in holds() or kind == "Toaster"
    )
    fixed = set(constants.RECEPTACLES) - set(constants.MOVABLE_RECEPTACLES) - {"PaintingHanger"}
    portable = frozenset[str]().union(*holds().values())
    return Room(
        number=number,
        placed=placed,
        unplaced=tuple(kind for kind in kinds if kind in fixed - {receptacle.kind for receptacle in placed}),
        objects=tuple(kind for kind in kinds if kind in portable),
        decor=tuple(kind for kind in kinds if kind not in portable | set(constants.RECEPTACLES) | _LAMPS),
        poses=tuple(poses.values()) or (Pose(0, 0, 0, 30),),
        has_desk_lamp="DeskLamp" in kinds,
    )


def _kind(receptacle: str) -> str:
    parts = receptacle.split("|")
    return parts[-1] if receptacle.endswith("Basin") else parts[0]
