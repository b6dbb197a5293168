from scpo.credit.assign import assign
from scpo.diagnostics.arrays import read_arrays
from scpo.diagnostics.step_texts import TEXT_BATCHES, save_step_texts
from scpo.records import RunFolder
from tests.support.step_batches import EqualityScorer, make_batch, method, shaper_config

SCPO = method(shaper=shaper_config())
EPISODES = ((0, 0, "a b", 1), (0, 1, "a c", 0))


def save(folder, step, batch):
    _, told = assign(batch, EqualityScorer(), SCPO)
    save_step_texts(RunFolder(folder), step, batch, told)


def sampled(folder):
    return sorted(path.name for path in RunFolder(folder).diagnostics.glob("*.npz"))


def test_the_first_batches_with_an_active_group_are_sampled(tmp_path):
    save(tmp_path, 1, make_batch((0, 0, "a b", 1)))
    for step in range(2, TEXT_BATCHES + 4):
        save(tmp_path, step, make_batch(*EPISODES))
    assert sampled(tmp_path) == [f"step_texts_step_{step:05d}.npz" for step in range(2, TEXT_BATCHES + 2)]


def test_text_outcome_and_credit_of_every_step_are_kept(tmp_path):
    save(tmp_path, 1, make_batch(*EPISODES))
    (path,) = RunFolder(tmp_path).diagnostics.glob("*.npz")
    kept = {name: column[2] for name, column in read_arrays(path, "file of step texts").items()}
    assert kept == {"group": 0, "trajectory": 1, "step": 0, "text": "a || now a", "success": False, "credit": 1.0}


def test_a_batch_of_which_the_filter_left_nothing_is_no_sample(tmp_path):
    save(tmp_path, 1, make_batch(*EPISODES, valid_N=[False] * 4))
    assert sampled(tmp_path) == []
