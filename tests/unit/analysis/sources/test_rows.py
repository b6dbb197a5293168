from analysis.sources.rows import Section, missing_runs


def section(*experiments, scale="mini"):
    return Section(scale, "alfworld", "tiny", None, experiments, ())


def test_named_experiments_come_first():
    assert missing_runs("runs", [section("ablation")], "cost").command == "python sweep.py +experiment=cost"


def test_recorded_experiments_are_to_be_finished():
    parts = [section("ablation", "hosts"), section("ablation")]
    assert missing_runs("runs", parts).command.splitlines() == [
        "python sweep.py +experiment=ablation",
        "python sweep.py +experiment=hosts",
    ]


def test_what_a_wandb_project_lacks_an_experiment_of_ours_makes():
    error = missing_runs("sampled step texts", [section("W&B me/demo", scale="paper")])
    assert error.command == "python sweep.py +experiment=ablation scale=paper"
    assert "no sampled step texts" in str(error)


def test_nothing_recorded_at_all_names_an_experiment():
    assert missing_runs("runs", []).command == "python sweep.py +experiment=ablation"
