"""Random draws of a rewording, and the arms that fit any environment: irrelevant suffix, pronouns.

A rewording is a pure function of (seed, task, sibling, step), so a resumed run draws the same one
and other episodes do not change it.
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
        told: The observation of each step in the wording that was drawn for it.
    """

    def __init__(self, config: WordingsConfig, task: str, sibling: int) -> None:
        self.config = config
        self.told: list[str] = []
        self._place = f"{config.seed}/{task}/{sibling}"

    def draw(self, step: int) -> Draw | None:
        """The draws for the observation after ``step`` actions; None: it is not reworded."""
        # Python's own hash differs from process to process.
        digest = hashlib.blake2b(f"{self._place}/{step}".encode(), digest_size=8).digest()
        generator = random.Random(int.from_bytes(digest, "little"))
        if generator.random() < self.config.dose:
            return Draw(self.config, generator)
        return None

    def told_history(self, history: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """A transcript's (observation, action) pairs, with the observations of ``told``."""
        return [(self.told[step], action) for step, (_, action) in enumerate(history)]


def rewording_of(config: WordingsConfig, task: str, sibling: int) -> Rewording | None:
    """The rewording of an episode; None where nothing is reworded."""
    if config.dose > 0:
        return Rewording(config, task, sibling)
    return None


class Draw:
    """Draws for one observation, in the order of its text.

    For an arm that is switched off, a method draws nothing and returns the environment's own form.
    """

    def __init__(self, config: WordingsConfig, generator: random.Random) -> None:
        self._config = config
        self._generator = generator

    def has(self, arm: str) -> bool:
        """Return True if an arm is switched on."""
        return arm in self._config.arms

    def form(self, forms: Sequence[str]) -> str:
        """One of the paraphrases in use; ``forms[0]`` is the environment's own text."""
        own, *paraphrases = forms
        if not self.has("paraphrase"):
            return own
        first = self._config.first
        in_use = paraphrases[first : first + self._config.count]
        return self._generator.choice(in_use)

    def synonym(self, words: Sequence[str]) -> str:
        """One of these words; the first if the arm ``paraphrase`` is off."""
        if self.has("paraphrase"):
            return self._generator.choice(list(words))
        return words[0]

    def alias(self, names: Sequence[str]) -> str:
        """One of these names; the first if the arm ``aliases`` is off."""
        if self.has("aliases"):
            return self._generator.choice(list(names))
        return names[0]

    def ordered(self, things: Sequence[str]) -> list[str]:
        """The things, shuffled by the arm ``order``."""
        shuffled = list(things)
        if self.has("order"):
            self._generator.shuffle(shuffled)
        return shuffled

    def with_suffix(self, text: str) -> str:
        """The text; the arm ``suffix`` adds a time, a battery level or an advertisement."""
        if not self.has("suffix"):
            return text
        hour = self._generator.randrange(24)
        minute = self._generator.randrange(60)
        battery = self._generator.randrange(1, 101)
        advertisement = self._generator.choice(ADVERTISEMENTS)
        sentences = [f"It is {hour:02}:{minute:02}.", f"Battery: {battery} %.", advertisement]
        return f"{text} {self._generator.choice(sentences)}"

    def with_pronouns(self, text: str, name: re.Pattern[str], spoken_of: str = "") -> str:
        """The text; the arm ``pronouns`` writes "it" for a name that repeats the one before it.

        Args:
            text: A text.
            name: Matches a name with its article; its first group is the name without the article.
            spoken_of: The thing that the last action named. In half of the texts, even its first
                mention is "it", as in "You open it.", so that the text does not identify the thing.
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
        # The text may now begin with "it".
        return capitalised("".join([*pieces, text[end:]]))


def capitalised(text: str) -> str:
    """The text with its first letter in upper case; ``str.capitalize`` would lower the others."""
    return text[:1].upper() + text[1:]
