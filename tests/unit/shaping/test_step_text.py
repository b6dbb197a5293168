import pytest

from scpo.shaping.step_text import StepFilter, step_texts, surviving
from tests.support.step_batches import make_batch


@pytest.mark.parametrize(
    ("form", "texts"),
    [
        ("action_next_observation", ["a || now a", "b || now b"]),
        ("observation_action", ["start || a", "a || b"]),
        ("action", ["a", "b"]),
    ],
)
def test_step_texts(form, texts):
    assert step_texts(make_batch((0, 0, "a b", 0)), form).tolist() == texts


def keeps(observations, valid=None, anchors=None, unchanged=False):
    batch = make_batch(
        (0, 0, " ".join("x" * len(observations)), 0),
        next_observation_N=observations,
        valid_N=[True] * len(observations) if valid is None else valid,
        **({"anchor_N": anchors} if anchors else {}),
    )
    return surviving(batch, StepFilter(no_op_observations=("Nothing happens.",), no_op_if_unchanged=unchanged)).tolist()


def test_invalid_empty_and_no_op_steps_are_left_out():
    observations = ["You open it.", "You open it.", "", " \n", "Nothing happens.", " Nothing happens.\n", "Nothing."]
    assert keeps(observations, valid=[True, False, *[True] * 5]) == [True, False, False, False, False, False, True]


def test_an_unchanged_page_is_a_no_op_only_where_the_config_says_so():
    observations, anchors = ["page 2", "page 2 "], ["page 1", "page 2"]
    assert keeps(observations, anchors=anchors) == [True, True]
    assert keeps(observations, anchors=anchors, unchanged=True) == [True, False]


def test_where_unchanged_pages_are_no_ops_named_and_empty_answers_stay_so():
    observations, anchors = ["Nothing happens.", "", "page 1"], ["page 1", "page 1", "page 0"]
    assert keeps(observations, anchors=anchors, unchanged=True) == [False, False, True]


def test_no_rows_no_texts():
    batch = make_batch()
    assert step_texts(batch, "observation_action").shape == (0,)
    assert surviving(batch, StepFilter(no_op_observations=(), no_op_if_unchanged=True)).shape == (0,)
