import numpy as np
import pytest

from scpo.errors import StepBatchError
from scpo.steps import StepBatch
from tests.support.step_batches import FIELDS, make_batch, random_batch, take

BATCH = make_batch((0, 10, "a b c", 1), (1, 11, "a b", 0))


def test_columns_become_arrays_of_the_contract():
    assert BATCH.group_N.dtype == BATCH.position_N.dtype == np.int64
    assert BATCH.step_N.dtype == np.int32
    assert BATCH.reward_N.dtype == np.float32
    assert BATCH.valid_N.dtype == np.bool_
    assert BATCH.anchor_N.dtype == object
    assert len(BATCH) == 5


def test_a_batch_cannot_be_changed_nor_changes_what_it_was_made_of():
    reward_N = np.zeros(2, np.float32)
    batch = make_batch((0, 0, "a b", 0), reward_N=reward_N)
    for array in (*vars(batch.timeline).values(), *(getattr(batch, name) for name in FIELDS)):
        if array is not None:
            with pytest.raises(ValueError, match="read-only"):
                array[:] = array[::-1]
    reward_N += 1  # still the caller's own
    assert batch.reward_N.tolist() == [0, 0]


@pytest.mark.parametrize("field", [name for name in FIELDS if getattr(BATCH, name) is not None])
def test_a_column_of_another_length_is_named(field):
    values = {name: getattr(BATCH, name) for name in FIELDS}
    with pytest.raises(StepBatchError, match=r"StepBatch\.\w+ has shape \(\d,\), expected \(\d,\) like group_N"):
        StepBatch(**(values | {field: values[field][:4]}))


def test_optional_columns_have_a_length_too():
    with pytest.raises(StepBatchError, match=r"StepBatch\.entropy_N has shape \(2,\), expected \(5,\)"):
        take(BATCH, np.arange(5), entropy_N=[0.1, 0.2])


@pytest.mark.parametrize("field", ["reward_N", "episode_return_N"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_reward_that_is_no_number_names_its_row(field, value):
    column = getattr(BATCH, field).copy()
    column[3] = value
    with pytest.raises(StepBatchError, match=rf"row 3 \(group 1, trajectory 11, step 0\): {field} is .*finite"):
        take(BATCH, np.arange(5), **{field: column})


@pytest.mark.parametrize(
    ("steps", "row", "complaint"),
    [([0, 1, 1, 0, 1], 2, "step_N is 1, expected 2"), ([0, 1, 3, 0, 1], 2, "step_N is 3, expected 2"),
     ([0, 1, 2, 1, 2], 3, "step_N is 1, expected 0"), ([-1, 0, 1, 0, 1], 0, "step_N is -1, expected 0")],
)  # fmt: skip
def test_steps_of_a_trajectory_start_at_zero_and_have_no_gap_or_double(steps, row, complaint):
    with pytest.raises(StepBatchError, match=rf"row {row} .*{complaint}"):
        take(BATCH, np.arange(5), step_N=steps)


@pytest.mark.parametrize(
    ("field", "column"),
    [
        ("group_N", [0, 0, 7, 1, 1]),
        ("episode_return_N", [1, 1, 0, 0, 0]),
        ("success_N", [True, True, False, False, False]),
        ("won_N", [True, True, False, False, False]),
    ],
)
def test_what_a_trajectory_shares_may_not_change_on_the_way(field, column):
    with pytest.raises(StepBatchError, match=rf"row 2 .*{field} is .*all rows of a trajectory share one value"):
        take(BATCH, np.arange(5), **{field: column})


def test_a_text_that_is_none_names_its_row():
    with pytest.raises(StepBatchError, match=r"StepBatch\.anchor_N: row 1 holds None, expected a str"):
        take(BATCH, np.arange(5), anchor_N=["a", None, "b", "c", "d"])


def test_copies_may_repeat_a_step_but_unmarked_doubles_may_not():
    doubled = take(BATCH, [0, 1, 2, 3, 4, 2])
    assert doubled.original_N.tolist() == [True] * 5 + [False]
    with pytest.raises(StepBatchError, match="step_N is 2, expected 3"):
        take(doubled, np.arange(6), is_copy_N=[False] * 6)


def test_rows_may_come_in_any_order_and_there_may_be_none():
    assert len(take(BATCH, [4, 0, 3, 2, 1])) == 5
    assert len(make_batch()) == 0


@pytest.mark.parametrize("seed", range(5))
def test_trajectories_are_cut_in_time_order(seed):
    batch = random_batch(seed, copies=4)
    line = batch.timeline
    assert len(line.id_K) == len(np.unique(batch.trajectory_N))
    for k, trajectory in enumerate(line.id_K):
        rows = line.rows_of(k)
        assert (batch.trajectory_N[rows] == trajectory).all()
        assert batch.step_N[rows].tolist() == list(range(line.length_K[k]))
        assert not batch.is_copy_N[rows].any()


def test_neighbours_of_a_shuffled_batch_with_copies():
    line = take(make_batch((0, 0, "a b c", 1), (0, 1, "a", 0)), [2, 0, 3, 1, 1]).timeline  # 2 0 | 0 | 1 and its copy
    assert line.neighbours(1).tolist() == [-1, 3, -1, 0, 0]
    assert line.neighbours(-1).tolist() == [3, -1, -1, 1, 1]
    assert line.neighbours(-2).tolist() == [1, -1, -1, -1, -1]
    assert line.neighbours(0).tolist() == [0, 1, 2, 3, 3]
    assert line.length_N.tolist() == [3, 3, 1, 3, 3]


def test_trajectories_come_by_group_and_id():
    line = make_batch((1, 0, "a b", 1), (0, 5, "a", 0), (0, 2, "a b c", 1)).timeline
    assert (line.group_K.tolist(), line.id_K.tolist()) == ([0, 0, 1], [2, 5, 0])
    assert (line.length_K.tolist(), line.success_K.tolist()) == ([3, 1, 2], [True, False, True])
    assert line.row_KT.tolist() == [[3, 4, 5], [2, -1, -1], [0, 1, -1]]
    assert line.table(np.arange(1, 7)).tolist() == [[4, 5, 6], [3, 0, 0], [1, 2, 0]]
    assert line.column(line.table(np.arange(6))).tolist() == list(range(6))


def test_a_step_stands_where_it_or_its_first_copy_does():
    batch = take(make_batch((0, 0, "a b", 0)), [0, 1, 1], position_N=[1, 2, 0])
    assert batch.timeline.position_N.tolist() == [1, 0, 0]


@pytest.mark.parametrize("steps", [[0, 1, 0, 1], [0, 1, 0, -1]])
def test_a_copy_without_its_original_is_named(steps):
    batch = make_batch((0, 0, "a b", 1), (0, 7, "a b", 0))
    with pytest.raises(StepBatchError, match=rf"row 3 \(group 0, trajectory 7, step {steps[3]}\): it is a copy"):
        take(batch, [0, 1, 2, 2], step_N=steps)


def test_no_rows_have_no_timeline():
    line = make_batch().timeline
    assert line.neighbours(1).dtype == np.int64
    assert line.length_N.shape == line.id_K.shape == (0,)


REFUSED = {
    "texts for booleans": ("success_N", ["False"] * 5, "row 0 holds 'False', expected True or False"),
    "a text among booleans": ("won_N", [True, True, "no", False, False], "row 2 holds 'no', expected True or False"),
    "None": ("valid_N", [True, None, True, True, True], "row 1 holds None"),
    "2 for a boolean": ("valid_N", [1, 1, 2, 1, 1], "row 2 holds 2, expected True or False"),
    "fractional ids": ("group_N", [0.2, 0.2, 0.2, 0.7, 0.7], "row 0 holds 0.2, expected an integer"),
    "fractional ids in an array": ("trajectory_N", np.array([10, 10, 10, 11.5, 11.5]), "row 3 holds 11.5"),
    "uuids": ("group_N", ["a-b"] * 5, r"row 0 holds 'a-b', expected an integer.*np\.unique"),
    "steps beyond int32": ("step_N", [0, 1, 2, 2**32, 1], "row 3 holds 4294967296, expected an integer within int32"),
    "the same in an array": ("step_N", np.array([0, 1, 2, 2**32, 1]), "row 3 holds 4294967296"),
    "ids beyond int64": ("group_N", np.array([2**63 + 1] * 5, dtype=np.uint64), "row 0 holds 9223372036854775809"),
    "NaN for an id": ("group_N", [float("nan")] * 5, "row 0 holds nan, expected an integer"),
    "a masked array": ("reward_N", np.ma.masked_array(np.zeros(5), [0, 1, 0, 0, 0]), "masked array"),
    "a reward beyond float32": (
        "reward_N",
        [0.0, 1e300, 0.0, 0.0, 0.0],
        "row 1 holds 1e\\+300, expected a number within",
    ),
    "an integer beyond any float": ("reward_N", [0, 0, 0, 0, 2**2000], "row 4 holds"),
    "complex numbers": ("reward_N", [1j] * 5, "row 0 holds 1j"),
    "numbers as text": ("reward_N", ["1.0"] * 5, "row 0 holds '1.0'"),
    "one text for all rows": ("anchor_N", "abcde", "expected a sequence with one value for each row"),
    "bytes": ("anchor_N", [b"x"] * 5, "row 0 holds b'x', expected a str"),
    "a number for all rows": ("group_N", 3, "the int '3'"),
    "rows of several numbers": ("reward_N", np.zeros((5, 2)), "expected a sequence|row 0 holds"),
}


@pytest.mark.parametrize(("field", "value", "complaint"), REFUSED.values(), ids=REFUSED)
def test_a_value_that_would_change_in_the_contracts_dtype_is_refused_with_its_field_and_row(field, value, complaint):
    with pytest.raises(StepBatchError, match=rf"StepBatch\.{field}.*({complaint})"):
        take(BATCH, np.arange(5), **{field: value})


@pytest.mark.parametrize(
    "value",
    [[0, 0, 0, 1, 1], np.float64([0, 0, 0, 1, 1]), np.array([0, 0, 0, 1, 1], dtype=object), np.uint8([0, 0, 0, 1, 1])],
    ids=["list", "float64", "object", "uint8"],
)
def test_whole_numbers_of_any_type_are_ids(value):
    assert take(BATCH, np.arange(5), group_N=value).group_N.tolist() == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("field", ["entropy_N", "hindsight_logprob_N"])
def test_a_measured_column_may_lack_values_and_holds_no_infinity(field):
    assert np.isnan(getattr(take(BATCH, np.arange(5), **{field: [np.nan] * 5}), field)).all()
    with pytest.raises(StepBatchError, match=rf"row 2 .*{field} is inf, expected a finite number or NaN"):
        take(BATCH, np.arange(5), **{field: [0.0, 0.0, np.inf, 0.0, 0.0]})
