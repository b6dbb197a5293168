"""Random draws of a rewording, and the arms that fit any environment: irrelevant suffix, pronouns.

A rewording is a pure function of (seed, task, sibling, step): a resumed run draws the same one, and
none depends on what other episodes do.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Sequence

from scpo.schema.env import WordingsConfig

# Irrelevant sentences that no game and no shop contains.
ADVERTISEMENTS = (
    "Advertisement: fresh coffee around the corner.",
    "Advertisement: learn a language in a month.",
    "Advertisement: your car deserves a wash.",
    "Advertisement: the theatre opens tonight.",
)


class Rewording:
    """The draws of one episode.

    Args:
        config: Dose, arms and seed.
        task: Id of the task.
        sibling: The episode's index in its group. The same sibling of a task that is played again
            in a later training step has the same draws.

    Attributes:
        told: The reworded observations, step by step.
    """

    def __init__(self, config: WordingsConfig, task: str, sibling: int) -> None:
        self.config = config
        self.told: list[str] = []
        self._place = f"{config.seed}/{task}/{sibling}"

    def draw(self, step: int) -> Draw | None:
        """The draws of the observation after ``step`` actions; None: it stays as it is."""
        # A hash instead of Python's own, which differs from process to process.
        digest = hashlib.blake2b(f"{self._place}/{step}".encode(), digest_size=8).digest()
        generator = random.Random(int.from_bytes(digest, "little"))
        reworded = generator.random() < self.config.dose
        return Draw(self.config, generator) if reworded else None

    def told_history(self, history: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """A transcript's (observation, action) pairs with the reworded observations."""
        return [(self.told[step], action) for step, (_, action) in enumerate(history)]


def rewording_of(config: WordingsConfig, task: str, sibling: int) -> Rewording | None:
    """The rewording of an episode; None where nothing is reworded."""
    if config.dose > 0:
        return Rewording(config, task, sibling)
    return None


class Draw:
    """Draws for one observation, in the order of its text.

    Methods return the environment's own form for arms that are switched off, and then draw nothing.
    """

    def __init__(self, config: WordingsConfig, generator: random.Random) -> None:
        self._config = config
        self._generator = generator

    def has(self, arm: str) -> bool:
        """Return True if an arm is switched on."""
        return arm in self._config.arms

    def form(self, forms: Sequence[str]) -> str:
        """One of the paraphrases in use; without that arm the first form, the environment's own."""
        if not self.has("paraphrase"):
            return forms[0]
        first = self._config.first
        count = self._config.count
        # Form 0 is the environment's own text, not a paraphrase.
        in_use = [forms[1 + index] for index in range(first, min(first + count, len(forms) - 1))]
        return self._generator.choice(in_use)

    def synonym(self, words: Sequence[str]) -> str:
        """One of these words; the first without the arm of paraphrases."""
        if self.has("paraphrase"):
            return self._generator.choice(list(words))
        return words[0]

    def alias(self, names: Sequence[str]) -> str:
        """One of these names; the first without the arm of aliases."""
        if self.has("aliases"):
            return self._generator.choice(list(names))
        return names[0]

    def ordered(self, things: Sequence[str]) -> list[str]:
        """Listed things, in another order with that arm."""
        shuffled = list(things)
        if self.has("order"):
            self._generator.shuffle(shuffled)
        return shuffled

    def with_suffix(self, text: str) -> str:
        """The text and, with that arm, an irrelevant sentence: time, battery or advertisement."""
        if not self.has("suffix"):
            return text
        hour = self._generator.randrange(24)
        minute = self._generator.randrange(60)
        suffix = self._generator.choice(
            [
                f"It is {hour:02}:{minute:02}.",
                f"Battery: {self._generator.randrange(1, 101)} %.",
                self._generator.choice(ADVERTISEMENTS),
            ]
        )
        return f"{text} {suffix}"

    def with_pronouns(self, text: str, name: re.Pattern[str], spoken_of: str = "") -> str:
        """The text with "it" for a name that was the last one named, with that arm.

        Args:
            text: A text.
            name: Matches a name with its article; its first group is the name without it.
            spoken_of: The thing that the last action named. In half of the texts it is "it" from
                the start, as in "You open it.": then the text does not identify it.
        """
        if not self.has("pronouns"):
            return text
        last = spoken_of if spoken_of and self._generator.random() < 0.5 else ""
        pieces = []
        end = 0
        for match in name.finditer(text):
            repeated = match[1] == last
            pieces += [text[end : match.start()], "it" if repeated else match[0]]
            end, last = match.end(), match[1]
        joined = "".join([*pieces, text[end:]])
        # The text may now begin with "it".
        return joined[:1].upper() + joined[1:]
