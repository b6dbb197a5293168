"""Lasting acts, on rollouts whose states are known."""

import numpy as np
import pytest

from scpo.credit.assign import assign
from scpo.credit.states import make_memory
from scpo.errors import RecordError
from scpo.library import load_method
from scpo.states.effects import ActMemory
from scpo.states.registry import IDENTITIES, identify
from tests.support.step_batches import make_batch, take

WASHED = ("washed", "rinsed", "clean", "spotless")
PLAIN = ("dusty", "dull", "grey", "stained")


def washing(cleaned=lambda k: k % 2 == 1, words=WASHED, rollouts=64):
    """Rollouts that clean mug 1 or rub it, look or not, and go to desk 1; after cleaning, texts use ``words``.

    Both acts lead to the same names and the same last action, and no wording is used twice in a row.
    """
    acts = [
        ["clean mug 1" if cleaned(k) else "rub mug 1", *["look"] * (k // 2 % 2), "go desk 1"] for k in range(rollouts)
    ]
    batch = make_batch(*[(k // 16, k, " ".join("x" for _ in done), k % 3) for k, done in enumerate(acts)])
    action_N = [acts[k][t] for k, t in zip(batch.trajectory_N, batch.step_N, strict=True)]
    after = []
    for row, k in enumerate(batch.trajectory_N):
        which = (words if cleaned(k) else PLAIN)[(row * 7 + k) % 4]
        place = " at desk 1" if action_N[row].startswith("go") else ""
        after.append(f"{'abcdefgh'[row % 8]} {which} mug 1{place}")
    before_N = batch.timeline.neighbours(-1)
    anchor_N = [after[before] if before >= 0 else "mug 1" for before in before_N]
    return take(batch, np.arange(len(batch)), action_N=action_N, anchor_N=anchor_N, next_observation_N=after)


def states(batch, memory=None):
    return identify(batch, "anchor", IDENTITIES["effects"], memory=memory)


def finals(batch, memory=None):
    """The state after the last step of each rollout of the first group: (cleaned, label)."""
    line = batch.timeline
    target_N = states(batch, memory).target_N
    rows = [line.rows_of(k)[-1] for k in range(16)]
    return [("clean mug 1" in batch.action_N[line.rows_of(k)], target_N[row]) for k, row in enumerate(rows)]


def test_wordings_of_one_state_are_joined_and_a_lasting_act_parts_states():
    labels = {done: {label for cleaned, label in finals(washing()) if cleaned == done} for done in (True, False)}
    assert len(labels[True]) == len(labels[False]) == 1
    assert labels[True] != labels[False]


def test_an_act_that_leaves_no_trace_does_not_last():
    memory = ActMemory()
    assert len({label for _, label in finals(washing(words=PLAIN), memory)}) == 1
    assert memory.verbs == set()


def test_one_of_two_acts_that_exclude_each_other_is_enough_and_looking_does_not_last():
    memory = ActMemory()
    states(washing(), memory)
    assert len(memory.verbs) == 1
    assert memory.verbs < {"clean", "rub"}


def test_what_was_found_is_remembered_where_a_batch_cannot_show_it():
    # Of the first group one rollout cleans, of the others all: too few to tell from chance.
    rare = washing(cleaned=lambda k: k >= 16 or k == 5)
    assert len({label for _, label in finals(rare)}) == 1
    memory = ActMemory()
    states(washing(), memory)
    labels = finals(rare, memory)
    assert len({label for _, label in labels}) == 2
    assert {cleaned for cleaned, label in labels if label == labels[5][1]} == {True}


def test_a_pronoun_for_what_the_last_action_named_changes_nothing():
    batch = washing()
    texts = [
        text.replace("mug 1", "it") if row % 3 == 0 and "mug 1" in action else text
        for row, (text, action) in enumerate(zip(batch.next_observation_N, batch.action_N, strict=True))
    ]
    before_N = batch.timeline.neighbours(-1)
    anchor_N = [texts[before] if before >= 0 else "mug 1" for before in before_N]
    told = take(batch, np.arange(len(batch)), anchor_N=anchor_N, next_observation_N=texts)
    assert np.array_equal(states(batch).source_N, states(told).source_N)


def test_admissible_commands_are_not_read():
    batch = washing()
    commands = [f"go desk {row}" for row in range(len(batch))]
    told = take(batch, np.arange(len(batch)), commands_N=commands, next_commands_N=commands)
    assert np.array_equal(states(batch).source_N, states(told).source_N)


def test_commands_that_a_state_text_ends_with_are_not_read():
    batch = washing()
    after = [f"go desk {row % 5}, clean mug 2" for row in range(len(batch))]
    before_N = batch.timeline.neighbours(-1)
    before = [after[row] if row >= 0 else "look" for row in before_N]
    listed = take(
        batch, np.arange(len(batch)), commands_N=before, next_commands_N=after,
        state_N=[f"{text} | {end}" for text, end in zip(batch.anchor_N, before, strict=True)],
        next_state_N=[f"{text} | {end}" for text, end in zip(batch.next_observation_N, after, strict=True)],
    )  # fmt: skip
    told = identify(listed, "state", IDENTITIES["effects"])
    assert np.array_equal(states(batch).source_N, told.source_N)


def test_copies_are_no_evidence():
    once = washing(rollouts=16)
    rows = np.repeat(np.arange(len(once)), 4)
    copies = take(once, rows, is_copy_N=np.arange(len(rows)) % 4 > 0)
    alone, copied = ActMemory(), ActMemory()
    states(once, alone)
    states(copies, copied)
    assert alone.verbs == copied.verbs


def test_a_run_has_a_memory_if_its_host_or_its_matcher_remembers():
    assert isinstance(make_memory(load_method("crbc", states="effects")), ActMemory)
    assert make_memory(load_method("crbc", states="history")) is None
    assert make_memory(load_method("grpo")) is None


def test_credit_of_a_step_adds_to_the_memory():
    memory = ActMemory()
    assign(washing(), None, load_method("gigpo", states="effects"), memory=memory)
    assert len(memory.verbs) == 1


def test_the_content_of_a_checkpoint_is_checked():
    memory = ActMemory()
    memory.verbs = {"b", "a"}
    assert memory.dump() == b'["a", "b"]'
    for content in (b"{", b"[1]", b'{"a": 1}'):
        with pytest.raises(RecordError, match="memory of states=effects"):
            ActMemory().load(content)


def test_a_batch_without_names_or_actions_is_labelled():
    source_N = states(make_batch((0, 0, "a b", 1), (0, 1, "a c", 0))).source_N
    assert source_N[0] == source_N[2] != source_N[1] == source_N[3]
