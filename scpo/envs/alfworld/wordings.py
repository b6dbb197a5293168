"""ALFWorld's observations and states in other words."""

from __future__ import annotations

import re

from scpo.envs.alfworld.sentences import (
    ALIASES,
    AT,
    EMPTY,
    HOLDING,
    MOVED,
    NOWHERE,
    SENTENCES,
    TREATMENTS,
)
from scpo.envs.rewording import Draw, capitalised

_FORMS = [(re.compile(pattern, re.DOTALL), forms) for pattern, forms in SENTENCES]
_SEPARATOR = re.compile(r", and |, ")
_ARTICLE = re.compile(r"^(?:a|an|the) ")
# A numbered name ("the mug 1") with its article, which a pronoun replaces too.
_NAME = re.compile(r"\b(?:[Tt]he |[Aa] )?([a-z]+ \d+)\b")

# Only the kind has aliases: the number is kept, so that things stay apart.
_KIND = re.compile(r"\b([a-z]+)( \d+)\b")


def reworded(observation: str, draw: Draw, last_action: str = "") -> str:
    """An observation in other words.

    A sentence of unknown form, and what follows it, stays as it is.

    Args:
        observation: The game's own text.
        draw: The draws of this step.
        last_action: The command that it answers.
    """
    sentences = []
    place = 0
    while place < len(observation):
        if observation[place].isspace():
            place += 1
            continue
        match, forms = _match(observation, place)
        # An unknown sentence ends the rewording: where the next one begins is unknown too.
        if match is None:
            sentences.append(observation[place:])
            break
        sentences.append(_sentence(draw.form(forms), match.groupdict(), draw))
        place = match.end()
    return _finished(" ".join(sentences), draw, last_action)


def reworded_state(
    observation: str, location: str, held: str, moved: str, draw: Draw | None
) -> str:
    """A state in sentences: the observation, then place, hand and what was moved.

    Args:
        observation: What the agent was shown, reworded or not.
        location: The receptacle that it went to last; empty at the start.
        held: The thing in hand with what was done to it; empty if none.
        moved: As ``Transcript.moved`` lists it.
        draw: The draws of this step; None: every sentence in its first form.
    """
    sentences = [
        _state_sentence(AT if location else NOWHERE, {"r": location}, draw),
        _state_sentence(HOLDING if held else EMPTY, {"o": _treated(held, draw)}, draw),
    ]
    for entry in moved.split(", ") if moved else ():
        thing, _, rest = entry.partition(" from ")
        origin, _, place = rest.partition(" to ")
        values = {"o": _treated(thing, draw), "r": origin, "p": place}
        sentences.append(_state_sentence(MOVED, values, draw))
    if draw is None:
        return " ".join([observation, *sentences])
    # The observation has its aliases already.
    ordered = " ".join(draw.ordered(sentences))
    return " ".join([observation, _with_aliases(ordered, draw)])


def _match(observation: str, place: int) -> tuple[re.Match[str] | None, tuple[str, ...]]:
    """First known sentence that begins at ``place``, and its forms."""
    for pattern, forms in _FORMS:
        match = pattern.match(observation, place)
        if match:
            return match, forms
    return None, ()


def _state_sentence(forms: tuple[str, ...], values: dict[str, str], draw: Draw | None) -> str:
    form = forms[0] if draw is None else draw.form(forms)
    return capitalised(form.format(**values))


def _sentence(form: str, groups: dict[str, str], draw: Draw) -> str:
    """A sentence in the drawn form, with its lists shuffled and its adjectives as synonyms."""
    values = dict(groups)
    for name in ("list", "facing"):
        if name in values:
            values[name] = _listed(values[name], draw)
    if "adj" in values:
        words = values["adj"].split()
        values["adj"] = " ".join(draw.synonym(TREATMENTS.get(word, (word,))) for word in words)
    return capitalised(form.format(**values))


def _listed(things: str, draw: Draw) -> str:
    """A list of the game, shuffled by the arm ``order``."""
    named = draw.ordered(_SEPARATOR.split(things))
    # Articles are written anew, because the things have other places in the list now.
    if draw.has("order") and len(named) > 1:
        bare = [_ARTICLE.sub("", thing).removeprefix("and ") for thing in named]
        *first, last = [f"a {thing}" for thing in bare]
        return f"{', '.join(first)}, and {last}"
    return things


def _treated(thing: str, draw: Draw | None) -> str:
    """``mug 1 clean hot`` as "mug 1 (clean, hot)"."""
    words = thing.split()
    # Only kind and number: the thing was not treated.
    if len(words) <= 2:
        return thing
    name = " ".join(words[:2])
    treatments = []
    for word in words[2:]:
        synonyms = TREATMENTS.get(word, (word,))
        treatments.append(synonyms[0] if draw is None else draw.synonym(synonyms))
    return f"{name} ({', '.join(treatments)})"


def _with_aliases(text: str, draw: Draw) -> str:
    """The text; the arm ``aliases`` replaces the kinds of numbered names by synonyms."""
    if not draw.has("aliases"):
        return text

    def aliased(match: re.Match[str]) -> str:
        kind, number = match[1], match[2]
        return draw.alias((kind, *ALIASES.get(kind, ()))) + number

    return _KIND.sub(aliased, text)


def _finished(text: str, draw: Draw, last_action: str) -> str:
    """The text after the arms that act on whole observations: pronouns, aliases, suffix."""
    names = _NAME.findall(last_action)
    # Pronouns come before aliases, because they are found by the game's own names.
    with_pronouns = draw.with_pronouns(text, _NAME, names[0] if names else "")
    return draw.with_suffix(_with_aliases(with_pronouns, draw))
