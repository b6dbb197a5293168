import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scpo.errors import ConfigError, ContractError
from scpo.shaping.matcher import (
    MATCHERS,
    Cell,
    Credited,
    MatchRule,
    MatchTrace,
    answer,
    kmp_table,
    match,
    match_dense,
)

# Matchers that, by design, do not credit the only step for matching the only position.
LONGER_MATCHES = frozenset()

APART = np.eye(8, dtype=np.float32)  # a reference whose steps do not resemble each other


def cells(m, length, *hits):
    """M with 0.1 everywhere but at the given ``(u, v, score)``."""
    similarity = np.full((m, length), 0.1, np.float32)
    for u, v, score in hits:
        similarity[u, v] = score
    return similarity


def credit(similarity, order=None, self_similarity=APART, **changes):
    order = range(similarity.shape[1]) if order is None else order
    settings = {"theta": 0.6, "soft_base": 0.4} | changes
    return np.round(match_dense(similarity, self_similarity, order=order, **settings).astype(float), 6).tolist()


def trace(similarity, order, self_similarity=APART, **changes):
    rule = MatchRule(**({"theta": 0.6, "soft_base": 0.4} | changes))
    return answer(match(rule, len(similarity), order), {"failed": similarity, "self": self_similarity})


# Algorithm 2


def test_a_contiguous_run_earns_soft_credit():
    similarity = cells(3, 4, (0, 0, 1.0), (1, 2, 0.7), (2, 3, 0.6))
    # step 1 matches nothing: the walk falls back to the start, and steps 2 and 3 do not match position 0
    assert credit(similarity) == [1, 0, 0, 0]
    assert credit(similarity[:, [0, 2, 3]]) == [1, 0.5, pytest.approx(1 / 3, abs=1e-6)]


def test_the_order_decides_which_step_claims_a_position():
    similarity = cells(2, 3, (0, 0, 0.7), (0, 2, 1.0), (1, 1, 1.0))
    assert credit(similarity) == [0.5, 1, 0]
    assert credit(similarity, order=[2, 1, 0]) == [0, 1, 1]


def test_a_full_match_ends_the_walk():
    similarity = cells(1, 3, (0, 1, 0.7), (0, 2, 1.0))
    assert credit(similarity) == [0, 0.5, 0]
    assert trace(similarity, [0, 1, 2]).walk == ((0, -1), (1, 0))


def test_a_second_visit_of_a_position_earns_nothing():
    similarity = cells(3, 4, (0, 0, 1.0), (0, 2, 1.0), (1, 3, 1.0))
    assert credit(similarity) == [1, 0, 0, 1]
    assert trace(similarity, range(4)).walk == ((0, 0), (1, -1), (2, 0), (3, 1))


def test_a_self_similar_reference_falls_back_to_its_border():
    # reference a b a b c: after a b a b, a step that is no c but resembles position 2 goes on from the border a b
    reference, failed = "ababc", "ababac"
    similarity = np.array([[float(u == v) for v in failed] for u in reference], np.float32)
    among = np.array([[float(u == v) for v in reference] for u in reference], np.float32)
    assert kmp_table(among, 0.6) == [-1, -1, 0, 1, -1]
    walked = trace(similarity, range(6), among)
    assert [j for _, j in walked.walk] == [0, 1, 2, 3, 2, -1]
    assert [(cell.u, cell.v) for cell in walked.credited] == [(0, 0), (1, 1), (2, 2), (3, 3)]


def test_the_kmp_table_of_hand_worked_references():
    tables = {"aaaa": [-1, 0, 1, 2], "abcabd": [-1, -1, -1, 0, 1, -1], "aabaaa": [-1, 0, -1, 0, 1, 1], "x": [-1]}
    for letters, table in tables.items():
        among = np.array([[float(u == v) for v in letters] for u in letters])
        assert kmp_table(among, 0.5) == table


# Variants


def test_without_monotonicity_an_advance_behind_the_frontier_earns_too():
    similarity = cells(3, 4, (0, 0, 1.0), (0, 2, 0.7), (1, 3, 1.0))
    assert credit(similarity, monotonic=False) == [1, 0, 0.5, 1]


def test_after_a_full_match_the_walk_stops_or_restarts():
    similarity = np.ones((1, 3), np.float32)
    assert credit(similarity, monotonic=False) == [1, 0, 0]
    assert credit(similarity, monotonic=False, after_full_match="restart") == [1, 1, 1]
    assert credit(similarity, monotonic=True, after_full_match="restart") == [1, 0, 0]


def test_a_restart_goes_on_from_the_border_of_the_reference():
    reference, failed = "aba", "abaxabaaba"
    similarity = np.array([[float(u == v) for v in failed] for u in reference], np.float32)
    among = np.array([[float(u == v) for v in reference] for u in reference], np.float32)
    walked = trace(similarity, range(10), among, monotonic=False, after_full_match="restart")
    assert [j for _, j in walked.walk] == [0, 1, 2, -1, 0, 1, 2, 0, 1, 2]


def test_the_forward_matcher_skips_positions_and_unmatched_steps():
    similarity = cells(4, 4, (1, 0, 0.7), (0, 1, 1.0), (3, 3, 1.0))
    assert credit(similarity, matcher="forward") == [0.5, 0, 0, 1]
    assert credit(similarity) == [0, 1, 0, 0]
    assert trace(similarity, range(4), matcher="forward").walk == ((0, 1), (1, 1), (2, 1), (3, 3))


def test_forward_without_monotonicity_credits_every_similar_step():
    similarity = cells(3, 4, (1, 0, 1.0), (1, 1, 1.0), (2, 2, 1.0), (0, 3, 1.0))
    assert credit(similarity, matcher="forward") == [1, 0, 1, 0]
    assert credit(similarity, matcher="forward", monotonic=False) == [1, 1, 1, 0]
    assert credit(similarity, matcher="forward", monotonic=False, after_full_match="restart") == [1, 1, 1, 1]


# Numbers


@pytest.mark.parametrize("theta", [0.7, 0.6, 0.1, 0.9])
@pytest.mark.parametrize("matcher", sorted(MATCHERS.keys() - LONGER_MATCHES))
def test_a_float32_score_of_theta_reaches_theta(theta, matcher):
    """float32(0.7) is below the double 0.7: comparing them in double precision would lose the match."""
    similarity = np.full((1, 1), theta, np.float32)
    earned = match_dense(similarity, APART, theta, 0.0, [0], matcher=matcher)[0]
    assert earned == np.float32(theta), (
        "a reference of one step, a failed trajectory of one and a score of theta: the step matches (score >= "
        f"rule.theta) and earns rule.credit(score) = {theta}; a rule that does otherwise by design belongs in "
        "LONGER_MATCHES"
    )
    below = np.nextafter(np.float32(theta), np.float32(0))
    assert match_dense(np.full((1, 1), below), APART, theta, 0.0, [0], matcher=matcher)[0] == 0


def test_a_tie_at_theta_in_the_reference_counts_as_similar():
    assert kmp_table(np.full((3, 3), 0.7, np.float32), 0.7) == [-1, 0, 1]


def test_a_soft_base_above_theta_gives_matches_without_credit():
    similarity = cells(2, 2, (0, 0, 0.65), (1, 1, 0.95))
    assert credit(similarity, soft_base=0.9) == [0, 0.5]


@pytest.mark.parametrize(("m", "length"), [(0, 3), (3, 0), (0, 0)])
@pytest.mark.parametrize("matcher", sorted(MATCHERS))
def test_nothing_to_match_earns_nothing(m, length, matcher):
    assert credit(np.ones((m, length), np.float32), matcher=matcher) == [0] * length


@pytest.mark.parametrize("wrong", [{"theta": 0}, {"theta": 1.1}, {"soft_base": 1.0}, {"soft_base": -0.1}])
def test_thresholds_out_of_range_are_refused(wrong):
    with pytest.raises(ConfigError, match="allowed are 0 < theta <= 1"):
        MatchRule(**({"theta": 0.6, "soft_base": 0.4} | wrong))


def test_an_unknown_matcher_is_refused_with_the_allowed_ones():
    with pytest.raises(ConfigError, match="allowed: kmp, forward"):
        MatchRule(0.6, 0.4, matcher="dtw")


# Against an independent transcription of algorithm 2, table built in advance, one-based like the paper's sequence


def oracle(similarity, among, order, *, theta, soft_base, monotonic, restart):
    theta, soft_base = np.float32(theta), np.float32(soft_base)
    m = len(similarity)
    failure = [-1] * m
    k = -1
    for i in range(1, m):
        while k >= 0 and among[k + 1, i] < theta:
            k = failure[k]
        if among[k + 1, i] >= theta:
            k += 1
        failure[i] = k
    reward = np.zeros(similarity.shape[1], np.float32)
    j = best = -1
    for v in order:
        while j >= 0 and similarity[j + 1, v] < theta:
            j = failure[j]
        if similarity[j + 1, v] >= theta:
            j += 1
            if j > best or not monotonic:
                reward[v] = max(np.float32(0), (similarity[j, v] - soft_base) / (1 - soft_base))
                best = max(best, j)
        if j == m - 1:
            if restart and not monotonic:
                j = failure[j]
            else:
                break
    return reward


@st.composite
def problems(draw):
    m, length = draw(st.integers(1, 7)), draw(st.integers(0, 9))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    levels = np.array([0.2, 0.6, 0.7, 0.9, 1.0], np.float32)[: draw(st.integers(2, 5))]
    similarity, among = rng.choice(levels, (m, length)), rng.choice(levels, (m, m))
    return similarity, among, draw(st.sampled_from([0.6, 0.7])), rng.permutation(length).tolist()


@given(problem=problems(), monotonic=st.booleans(), restart=st.booleans(), soft_base=st.sampled_from([0.0, 0.4, 0.8]))
def test_the_coroutine_equals_the_pseudocode_bit_for_bit(problem, monotonic, restart, soft_base):
    similarity, among, theta, order = problem
    expected = oracle(similarity, among, order, theta=theta, soft_base=soft_base, monotonic=monotonic, restart=restart)
    after = "restart" if restart else "stop"
    got = match_dense(similarity, among, theta, soft_base, order, monotonic, after_full_match=after)
    assert got.dtype == np.float32
    assert np.array_equal(got, expected)


@given(problem=problems(), matcher=st.sampled_from(sorted(MATCHERS)))
def test_monotonic_credit_uses_each_position_once_and_moves_forward(problem, matcher):
    similarity, among, theta, order = problem
    walked = trace(similarity, order, among, theta=theta, matcher=matcher)
    positions = [cell.u for cell in walked.credited]
    assert positions == sorted(set(positions))
    credit_l = walked.credit_l(similarity.shape[1])
    assert credit_l.sum() <= len(similarity)
    assert ((credit_l >= 0) & (credit_l <= 1)).all()
    assert [v for v, _ in walked.walk] == order[: len(walked.walk)]


# A matcher of one's own


def test_an_unknown_matcher_is_told_how_to_add_one():
    with pytest.raises(
        ConfigError, match=r"matcher 'mine' is unknown; allowed: kmp, forward, .*scpo\.new matcher NAME"
    ):
        MatchRule(0.6, 0.4, matcher="mine")


def walking(monkeypatch, cell=None, walk=(), credited=(), result=None):
    """Match two steps with a reference of three by a matcher that asks and returns what is given."""

    def mine(rule, m, order):
        if cell is not None:
            yield cell
        return MatchTrace(walk, credited) if result is None else result

    monkeypatch.setitem(MATCHERS, "mine", mine)
    return trace(np.ones((3, 2), np.float32), range(2), matcher="mine")


@pytest.mark.parametrize("cell", [Cell("failed", 2, 1), Cell("self", 0, 2), Cell("failed", np.int64(0), np.int32(1))])
def test_a_matcher_of_ones_own_may_ask_for_any_cell(cell, monkeypatch):
    assert walking(monkeypatch, cell, walk=((0, -1), (1, 2))).walk == ((0, -1), (1, 2))


@pytest.mark.parametrize(
    "cell",
    [
        Cell("failed", 3, 0),
        Cell("failed", -1, 0),
        Cell("failed", 0, 2),
        Cell("failed", 0, 1.0),
        Cell("failed", "a", 0),
        Cell("self", 1, 1),
        Cell("self", 1, 3),
        Cell("other", 0, 0),
        ("failed", 0, 0),
        0.5,
    ],
)
def test_a_cell_that_is_not_there_is_named_with_the_matcher(cell, monkeypatch):
    with pytest.raises(ContractError, match=r"matcher 'mine' asked for .*; allowed, .* 3 steps") as caught:
        walking(monkeypatch, cell)
    assert repr(cell) in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"result": np.zeros(2)}, r"returned array\(\[0., 0.\]\); expected MatchTrace"),
        ({"walk": ((0, 3),)}, r"returned \(0, 3\) in the walk; .* -1 <= j < 3"),
        ({"walk": (0,)}, "returned 0 in the walk"),
        ({"credited": (Credited(0, 1, 1.0, float("nan")),)}, r"credited Credited\(.*credit=nan\); allowed"),
        ({"credited": (Credited(0, 1, 1.0, float("inf")),)}, r"numbers in \[0, 1\]"),
        ({"credited": (Credited(0, 1, 1.0, None),)}, "credit=None"),
        ({"credited": (Credited(0, 2, 1.0, 1.0),)}, "v=2"),
        ({"credited": (Credited(-1, 1, 1.0, 1.0),)}, "u=-1"),
        ({"credited": ((0, 1, 1.0, 1.0),)}, r"credited \(0, 1, 1.0, 1.0\)"),
        ({"credited": (Credited(0, 1, 1.0, 1.0), Credited(1, 1, 1.0, 0.5))}, "credited failed step 1 twice"),
        ({"credited": (Credited(2, 0, 1.0, 1.0), Credited(2, 1, 1.0, 0.5))}, "credited reference position 2 after 2"),
        ({"credited": (Credited(2, 0, 1.0, 1.0), Credited(0, 1, 1.0, 0.5))}, "credited reference position 0 after 2"),
    ],
)
def test_a_result_that_is_no_credit_is_named_with_the_matcher(changes, told, monkeypatch):
    with pytest.raises(ContractError, match=f"matcher 'mine' .*{told}"):
        walking(monkeypatch, **changes)


def test_a_matcher_that_never_asks_is_told_how_to(monkeypatch):
    monkeypatch.setitem(MATCHERS, "mine", lambda rule, m, order: MatchTrace((), ()))
    with pytest.raises(ContractError, match=r"matcher 'mine' is not a generator: .* MatchTrace. Ask for .*yield Cell"):
        trace(np.ones((3, 2), np.float32), range(2), matcher="mine")


def test_a_matcher_that_asks_for_ever_ends_after_all_cells(monkeypatch):
    def mine(rule, m, order):
        while True:
            yield Cell("failed", 0, 0)

    monkeypatch.setitem(MATCHERS, "mine", mine)
    message = (
        r"matcher 'mine' asked for 10 similarities, now .* 3 reference and 2 failed steps, which have 9 cells: keep"
    )
    with pytest.raises(ContractError, match=message):
        trace(np.ones((3, 2), np.float32), range(2), matcher="mine")
