"""The facts of a state, as the text grammar asks for them: by predicate, in the order the stock engine sorts them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from scpo.envs.alfworld.planning.word_rows import Atom

Arguments = tuple[str, ...]
NEGATION = "not_"


def by_predicate(atoms: Iterable[Atom]) -> dict[str, list[Arguments]]:
    """Arguments of each predicate's facts, sorted."""
    found: dict[str, list[Arguments]] = {}
    for predicate, *arguments in atoms:
        found.setdefault(predicate, []).append(tuple(arguments))
    return {predicate: sorted(set(rows)) for predicate, rows in found.items()}


class Facts:
    """Facts of one state: those of the game's start, with a few removed and a few added."""

    def __init__(
        self, start: Mapping[str, Sequence[Arguments]], removed: Iterable[Atom], added: Iterable[Atom]
    ) -> None:
        self._start = start
        self._changed: dict[str, list[Arguments]] = {}
        for predicate, *arguments in removed:
            self._own(predicate).remove(tuple(arguments))
        touched = set()
        for predicate, *arguments in added:
            self._own(predicate).append(tuple(arguments))
            touched.add(predicate)
        for predicate in touched:
            self._changed[predicate].sort()

    def rows(self, predicate: str) -> Sequence[Arguments]:
        """Sorted arguments of all facts of this predicate."""
        changed = self._changed.get(predicate)
        return self._start.get(predicate, ()) if changed is None else changed

    def _own(self, predicate: str) -> list[Arguments]:
        if predicate not in self._changed:
            self._changed[predicate] = list(self._start.get(predicate, ()))
        return self._changed[predicate]
