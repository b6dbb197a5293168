from analysis.report.contents import configurations
from analysis.sources.collect import collect
from tests.support.run_records import write_ablation, write_run


def test_only_what_differs_between_runs_is_there(tmp_path):
    ids = write_ablation(tmp_path, seeds=(0, 1), steps=4, every=2)
    found = configurations(collect(tmp_path))
    assert found["keys"] == ["method.shaper.monotonic", "seed"]
    for row, monotonic in (("scpo", "true"), ("no_monotonicity", "false")):
        for seed, run in enumerate(ids[row]):
            chosen = [options[k] for options, k in zip(found["values"], found["runs"][run], strict=True)]
            assert chosen == [monotonic, str(seed)]


def test_a_key_that_only_one_run_has_is_none_in_the_other_and_places_are_left_out(tmp_path):
    with_shaper = write_run(tmp_path, steps=4)["id"]
    without = write_run(tmp_path, "grpo", steps=4, overrides=("method=grpo", "machine.cache_dir=/elsewhere"))["id"]
    found = configurations(collect(tmp_path))
    theta = found["keys"].index("method.shaper.theta")
    assert found["values"][theta][found["runs"][with_shaper][theta]] == "0.6"
    assert found["values"][theta][found["runs"][without][theta]] is None
    assert not [key for key in found["keys"] if key.startswith("machine.")]


def test_one_run_differs_from_none(tmp_path):
    run = write_run(tmp_path, steps=4)["id"]
    assert configurations(collect(tmp_path)) == {"keys": [], "values": [], "runs": {run: []}}
