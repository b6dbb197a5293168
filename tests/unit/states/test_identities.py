"""Each identity on texts whose states are known."""

import numpy as np
import pytest

from scpo.errors import ScorerError
from scpo.states.congruence import closed
from scpo.states.identity import (
    Visits,
    acted_names,
    key_ids,
    lasting_verbs,
    verbs_used,
    word_counts,
)
from scpo.states.learned import kept_by_equals
from scpo.states.registry import IDENTITIES, find_identity, identify
from scpo.states.words import names_in
from tests.support.step_batches import TableScorer, make_batch, take


def states_of(name, texts, threshold=None, scorer=None, **columns):
    """Which of these observations of one group are one state; each is seen by a rollout of its own."""
    batch = make_batch(*[(0, k, "x", 0) for k in range(len(texts))], anchor_N=texts, **columns)
    ids = identify(batch, "anchor", find_identity(name, threshold), scorer)
    return key_ids(ids.source_N.tolist()).tolist()


def test_entities_join_wordings_and_part_cabinets():
    texts = ["On the cabinet 1, you see a mug 1.", "Mug 1 lies on cabinet 1", "On the cabinet 2, you see a mug 1."]
    assert states_of("entities", texts) == [0, 0, 2]


def test_entities_count_names_and_do_not_read_what_is_said_of_them():
    assert states_of("entities", ["mug 1 and mug 1", "mug 1", "a hot mug 1"]) == [0, 1, 1]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("You see a mug 12.", (("mug 12", 1),)),
        ("B07XYZ1234 costs $12.99", (("$12.99", 1), ("b07xyz1234", 1))),
        ("nothing", ()),
    ],
)
def test_names_are_words_with_a_number(text, names):
    assert names_in(text) == names


def test_names_are_not_counted_as_words_nor_is_a_part_of_them():
    batch = make_batch((0, 0, "a", 0))
    batch = take(batch, [0], anchor_N=["On cabinet 1 is mug 2, on shelf 3 nothing."])
    counts = word_counts(Visits.of(batch, "anchor"))
    # on twice, is, nothing; not "cabine" of cabinet 1
    assert sorted(counts[0][counts[0] > 0].tolist()) == [1, 1, 2]


def test_tfidf_ignores_the_order_of_words_but_not_the_words():
    texts = ["a mug 1 and a pen 2 lie here", "here lie a pen 2 and a mug 1", "the fridge 1 is closed"]
    assert states_of("tfidf", texts) == [0, 0, 2]


def test_a_text_without_words_is_one_state_only_with_itself():
    assert states_of("tfidf", ["!", "!", "?"]) == [0, 0, 2]


def test_the_first_leader_that_is_near_enough_is_joined():
    near = {("a", "b"): 0.7, ("b", "c"): 0.9, ("a", "c"): 0.5}
    assert states_of("scorer", ["a", "b", "c"], scorer=TableScorer(near)) == [0, 0, 2]
    assert states_of("scorer", ["a", "b", "c"], 0.5, scorer=TableScorer(near)) == [0, 0, 0]


class Matrix(TableScorer):
    """A scorer that knows all pairs at once."""

    def similarities(self, texts):
        return np.array([[self.table.get((a, b), float(a == b)) for b in texts] for a in texts])


def test_all_pairs_at_once_give_the_same_states_and_ask_for_no_pair():
    near = {("a", "b"): 0.7, ("b", "a"): 0.7, ("b", "c"): 0.9, ("c", "b"): 0.9}
    scorer = Matrix(near)
    assert states_of("scorer", ["a", "b", "c"], scorer=scorer) == [0, 0, 2]
    assert scorer.asked == []


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (np.ones(2), r"of 3 texts gave an array of shape \(2,\): expected \(3, 3\)"),
        (np.array([[1, np.nan, 0], [0, 1, 0], [0, 0, 1]]), r"gave nan to the pair \('a', 'b'\)"),
        (np.array([[1, 0, 0], [1.5, 1, 0], [0, 0, 1]]), r"gave 1.5 to the pair \('b', 'a'\)"),
    ],
)
def test_all_pairs_at_once_are_checked_like_single_ones(answer, complaint):
    scorer = Matrix({})  # asked of both texts and of the last step's empty observation
    scorer.similarities = lambda texts: answer
    with pytest.raises(ScorerError, match=complaint):
        states_of("scorer", ["a", "b"], scorer=scorer)


def test_facts_part_what_names_join():
    names = ["mug 1 is hot", "the mug 1 was heated", "mug 1 is cold"]
    facts = ["hot", "hot", "cold"]
    assert states_of("entities", names) == [0, 0, 0]
    assert states_of("facts", names, facts_N=facts, next_facts_N=facts) == [0, 0, 2]


def test_closure_joins_what_the_same_actions_lead_to():
    # two rollouts do the same; their texts never agree
    batch = make_batch((0, 0, "a b", 1), (0, 1, "a b", 0), anchor_N=["s", "p", "q", "r"])
    ids = identify(batch, "anchor", IDENTITIES["closure"])
    assert ids.source_N[0] == ids.source_N[2]  # siblings start in one state
    assert ids.source_N[1] == ids.source_N[3]
    other = take(batch, np.arange(4), action_N=["a", "b", "c", "b"])
    ids = identify(other, "anchor", IDENTITIES["closure"])
    assert ids.source_N[1] != ids.source_N[3]


def test_a_text_that_returns_joins_the_states_before_it_in_closure():
    batch = make_batch((0, 0, "a b c", 1), (0, 1, "a b c", 0), anchor_N=["s", "t", "s", "s", "u", "v"])
    visits = Visits.of(batch, "anchor")
    label_M = closed(visits.batch, visits.group_M, key_ids(visits.text_M))
    # "s" is seen again after a, b: the other rollout's "v" after a, b is that state too
    assert label_M[0] == label_M[2] == label_M[5]
    assert label_M[1] == label_M[4] != label_M[0]


def cooked(words):
    """Rollouts that look, or heat, or neither, before they go; what is shown after heating has ``words`` of its own."""
    rollouts = [
        (0, k, " ".join([*["look"] * (k // 2 % 2), "heat" if k % 2 else "wave", "go", "end"]), 0) for k in range(64)
    ]
    batch = make_batch(*rollouts)
    after = []
    for row in range(len(batch)):
        episode = batch.timeline.rows_of(int(batch.timeline.slot_N[row]))[: batch.step_N[row] + 1]
        trace = words[batch.trajectory_N[row] % len(words)] if "heat" in batch.action_N[episode] else "cold"
        after.append(f"number {'abcdefgh'[row % 8]} {trace}")  # no text is said twice in a state by rule
    before_N = batch.timeline.neighbours(-1)
    anchor_N = [after[before] if before >= 0 else "start" for before in before_N]
    return take(batch, np.arange(len(batch)), anchor_N=anchor_N, next_observation_N=after)


def lasting_of(batch):
    visits = Visits.of(batch, "anchor")
    used_MV, verbs = verbs_used(visits)
    lasts_V = lasting_verbs(visits, used_MV, key_ids(acted_names(visits)))
    return {verb for verb, lasts in zip(verbs, lasts_V, strict=True) if lasts}


@pytest.mark.parametrize("words", [["hot"], ["cold"]], ids=["a trace", "no trace"])
def test_a_verb_lasts_if_the_words_after_it_tell_that_it_was_used(words):
    lasting = lasting_of(cooked(words))
    assert ("heat" in lasting or "wave" in lasting) == (words == ["hot"])  # either says which of the two was done
    assert "look" not in lasting


def test_what_equal_states_do_not_share_is_dropped_and_what_tells_others_apart_is_kept():
    # siblings that have done the same are in equal states; which word introduces it varies in them
    batch = make_batch(*[(0, k, "heat go" if k % 2 else "wave go", 0) for k in range(24)])
    texts = []
    for row in range(len(batch)):
        hot = batch.trajectory_N[row] % 2 and batch.step_N[row]
        texts.append(f"{'says' if row // 4 % 2 else 'tells'} {'hot' if hot else 'cold'}")
    batch = take(batch, np.arange(len(batch)), anchor_N=texts, action_N=["do", "go"] * 24)
    visits = Visits.of(batch, "anchor")
    hot_M = np.array(["hot" in text for text in visits.text_M])
    says_M = np.array(["says" in text for text in visits.text_M])
    value_MF = np.stack([hot_M, says_M], axis=1).astype(np.int64)
    assert kept_by_equals(visits, value_MF, key_ids(hot_M.tolist())).tolist() == [True, False]


def test_history_parts_states_after_different_last_actions_and_joins_wordings():
    batch = make_batch(
        (0, 0, "go take", 1), (0, 1, "go take", 0), (0, 2, "fly take", 0),
        anchor_N=["start", "at desk 1", "begin", "desk 1 is here", "hello", "at desk 1"],
    )  # fmt: skip
    ids = identify(batch, "anchor", IDENTITIES["history"])
    assert ids.source_N[1] == ids.source_N[3] != ids.source_N[5]


def test_history_ignores_numbers_that_no_action_speaks_of():
    texts = ["desk 1, time 12", "desk 1, time 13", "desk 2, time 12"]
    batch = make_batch(*[(0, k, "x", 0) for k in range(3)], anchor_N=texts, action_N=["go desk 1", "go desk 2", "x"])
    ids = identify(batch, "anchor", IDENTITIES["history"])
    assert ids.source_N[0] == ids.source_N[1] != ids.source_N[2]


def test_difflib_reads_the_trainers_order():
    texts = ["aaaa", "aaab", "aabb"]
    assert states_of("difflib", texts, 0.75) == [0, 0, 2]
    assert len(set(states_of("difflib", texts, 0.75, position_N=[1, 0, 2]))) == 1
