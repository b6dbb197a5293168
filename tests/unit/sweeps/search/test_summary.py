"""What a search leaves: summary, winner, plots; on trials with results worked by hand."""

import json
import math
import re
import shlex
import shutil

import matplotlib
import optuna
import pytest
from optuna.trial import TrialState

from scpo.errors import ConfigError, RecordError
from scpo.records import JsonLines, run_folders
from scpo.records.files import SEAL, file_sum, write_json
from scpo.records.identity import run_id
from sweeps import __main__ as cli
from sweeps.compose.configuration import compose_run
from sweeps.compose.matrix import expand
from sweeps.compose.overrides import parse_all
from sweeps.search import plots, search_folder
from sweeps.search.space import distributions
from sweeps.search.study import BY_SEED, REASON, RETRY_OF, Study, default_result, ranked
from sweeps.search.trial_runs import value_notes
from tests.support.fake_runs import QUICK
from tests.support.searches import InstantLauncher, drive, plan_in


def trial(plan, number, theta, soft_base, by_seed=None, *, state=TrialState.COMPLETE, **attributes):
    made = optuna.create_trial(
        state=state,
        params={"theta": theta, "soft_base": soft_base},
        distributions=distributions(plan.search.space),
        value=math.fsum(by_seed.values()) / len(by_seed) if by_seed else None,
        user_attrs={BY_SEED: {str(seed): value for seed, value in (by_seed or {}).items()}, **attributes},
    )
    made.number = number
    return made


@pytest.fixture
def plan(tmp_path):
    return plan_in(tmp_path)


@pytest.fixture
def trials(plan):
    return [
        trial(plan, 0, 0.6, 0.4, {0: 0.50, 1: 0.60}),
        trial(plan, 1, 0.75, 0.4, {0: 0.70, 1: 0.72}),
        trial(plan, 2, 0.9, 0.2, state=TrialState.FAIL, **{REASON: "run-1 LOST: its process died"}),
        trial(plan, 3, 0.9, 0.2, {0: 0.30, 1: 0.34}, **{RETRY_OF: 2}),
        trial(plan, 4, 0.45, 0.0, {0: 0.10, 1: 0.20}),
    ]


def text_of(plan, trials):
    return search_folder.write_summary(plan, trials, []).read_text()


def test_results_are_ranked_by_the_mean_over_seeds(plan, trials):
    results = ranked(trials)
    assert [one.number for one in results] == [1, 0, 3, 4]
    assert results[0].by_seed == {0: 0.70, 1: 0.72}
    assert default_result(plan, results).number == 0


def test_the_summary_names_the_trials_that_are_tied_with_the_best(plan, trials):
    assert "Tied" not in text_of(plan, trials)
    same = [trial(plan, 5 + at, theta, 0.0, {0: 0.72, 1: 0.70}) for at, theta in enumerate((0.45, 0.6, 0.9))]
    said = text_of(plan, [*trials, *same])
    assert "**Best: trial 1, mean 0.710" in said
    assert "Tied: the trials 1, 5, 6, 7 have this mean, and nothing tells them apart; trial 1 is the first" in said


def test_the_summary_has_means_with_student_t_intervals(plan, trials):
    text = text_of(plan, trials)
    assert "**Best: trial 1, mean 0.710 (0.583 to 0.837).** theta = 0.75, soft_base = 0.4" in text  # 0.71 ± 12.706·0.01
    assert "| 1 | 1 | 0.710 | 0.583 to 0.837 | 0.700 | 0.720 | 0.75 | 0.4 |" in text
    gain = "+0.160 above it, paired by seed; 0 is within that difference's interval (-0.348 to +0.668)"
    assert f"The best is {gain}." in text  # 0.20 and 0.12: 0.16 ± 12.706·0.04


def test_equal_differences_of_the_seeds_have_no_interval(plan, trials):
    """Two seeds that differ by as many games were an interval without width, which 0 was outside of."""
    default = next(one for one in trials if one.number == 0)
    better = {seed: value + 0.25 for seed, value in default_result(plan, ranked([default])).by_seed.items()}
    text = text_of(plan, [*trials, trial(plan, 5, 0.75, 0.4, better)])
    assert "+0.250 above it on each seed, and equal differences have no interval." in text
    assert "outside of" not in text


def test_the_summary_refuses_to_report_the_winner_on_the_seeds_it_was_chosen_on(plan, trials):
    text = " ".join(text_of(plan, trials).split())
    assert "never reported on the seeds it was chosen on (0, 1). Run it on fresh ones (10, 11, 12)" in text
    assert search_folder.winner_command(plan) in text


def test_failed_trials_are_told_with_their_reason(plan, trials):
    assert "- trial 2, tried again: run-1 LOST: its process died" in text_of(plan, trials)


def test_a_search_without_a_complete_trial_has_no_winner(plan):
    files = search_folder.write_results(plan, [trial(plan, 0, 0.6, 0.4, state=TrialState.FAIL, **{REASON: "no"})])
    assert [path.name for path in files] == ["summary.md"]
    assert "there is no best setting yet" in files[0].read_text()


def test_a_winner_that_is_the_default_says_so_and_is_one_row(plan, trials):
    assert "No setting was better than the one the search started from." in text_of(plan, trials[:1])
    default = ranked(trials[:1])[0]
    path = search_folder.write_winner(plan, default, default)
    assert len(expand(str(path)).experiment.rows) == 1
    assert (
        "# Chosen on those seeds, it is reported on others. The search started from this setting.\n" in path.read_text()
    )
    assert "Run it on fresh ones (10, 11, 12) and report that:" in text_of(plan, trials[:1])


def test_a_winner_is_reported_together_with_the_start_where_that_is_another_setting(plan, trials):
    results = ranked(trials)
    both = search_folder.write_winner(plan, results[0], default_result(plan, results)).read_text()
    assert "reported on others, together with the setting that the search started from.\n" in both
    assert "(10, 11, 12), together with the setting that the search started from, and report" in text_of(plan, trials)
    single = search_folder.write_winner(plan, results[0], None).read_text()
    assert "reported on others.\n" in single


def test_the_start_is_the_best_of_the_completed_trials_where_others_were_pruned(plan, trials):
    pruned = [trial(plan, 1 + at, 0.75, at / 5, state=TrialState.PRUNED) for at in range(2)]
    none_better = "No setting of a completed trial was better than the one the search started from"
    assert f"{none_better}; 1 trial was pruned.\n" in text_of(plan, [trials[0], pruned[0]])
    assert f"{none_better}; 2 trials were pruned.\n" in text_of(plan, [trials[0], *pruned])


def test_one_seed_has_a_mean_and_no_interval(tmp_path):
    plan = plan_in(tmp_path, "seeds=[0]")
    text = text_of(plan, [trial(plan, 0, 0.6, 0.4, {0: 0.5}), trial(plan, 1, 0.75, 0.4, {0: 0.6})])
    assert "mean 0.600 (one seed: no interval)" in text
    assert "The best is +0.100 above it." in text


def test_the_winner_is_an_experiment_on_fresh_seeds_against_the_starting_setting(tmp_path, trials):
    own = ("env.horizon=7", "model.hidden_size=64", "trainer.steps=9")
    plan = plan_in(tmp_path, *own)
    results = ranked(trials)
    path = search_folder.write_winner(plan, results[0], results[1])
    words = shlex.split(search_folder.winner_command(plan))[2:]
    matrix = expand(words[0].partition("=")[2], words[1:])
    assert str(path) in words[0]
    assert [cell.config.seed for cell in matrix.cells] == [10, 11, 12] * 2
    assert [cell.config.method.shaper.theta for cell in matrix.cells] == [0.6] * 3 + [0.75] * 3
    tuned = ["method.shaper.theta=0.75", f"machine.runs_dir={tmp_path}", *QUICK, *own]
    assert list(matrix.runs)[3:] == [run_id(compose_run([*tuned, f"seed={seed}"])) for seed in (10, 11, 12)]


def test_a_shell_reads_the_winners_command_as_it_was_given(tmp_path):
    override = "machine.data.alfworld='/my games'"
    command = search_folder.winner_command(plan_in(tmp_path, override))
    assert override in shlex.split(command)


def test_an_experiment_file_without_its_section_is_named(tmp_path):
    (tmp_path / "own.yaml").write_text("rows: []\n")
    with pytest.raises(ConfigError, match=r"own\.yaml: has no section `experiment`"):
        expand(str(tmp_path / "own.yaml"))
    (tmp_path / "bytes.yaml").write_bytes(b"experiment: \xff\n")
    (tmp_path / "open.yaml").write_text("experiment: {name: '${'}\n")
    for name in ("none", "bytes", "open"):
        with pytest.raises(ConfigError, match=rf"{name}\.yaml: cannot be read"):
            expand(str(tmp_path / f"{name}.yaml"))


def test_pictures_are_drawn_where_there_are_enough_trials(plan, trials):
    assert [path.stem for path in plots.write_plots(plan, trials)] == ["history", "importance", "slices", "contour"]
    assert [path.stem for path in plots.write_plots(plan, trials[:2])] == ["history", "slices"]
    assert plots.write_plots(plan, trials[2:3]) == []


def test_pictures_leave_matplotlibs_style_as_it_was(plan, trials):
    before = dict(matplotlib.rcParams)
    plots.write_plots(plan, trials)
    assert dict(matplotlib.rcParams) == {**before, "backend": matplotlib.rcParams["backend"]}


def test_the_plan_is_read_back_from_its_folder(plan):
    plan.folder.mkdir(parents=True)
    search_folder.write_plan(plan)
    again = search_folder.read_plan(plan.folder)
    assert (again, again.study_id) == (plan, plan.study_id)
    write_json(plan.folder / "search.json", {})
    with pytest.raises(RecordError, match="describes no search"):
        search_folder.read_plan(plan.folder)


def test_a_summary_is_written_on_demand(tmp_path, capsys):
    plan = plan_in(tmp_path, "search.trials=2", "trainer.steps=1", "seeds=[0]")
    Study(plan).close()
    search_folder.write_plan(plan)
    drive(plan)
    assert cli.main(["search", "scpo*", "--runs-dir", str(tmp_path)]) == 0
    assert re.search(r"2 COMPLETE\n.*summary\.md", capsys.readouterr().out)
    assert cli.main(["search", "other*", "--runs-dir", str(tmp_path)]) == 2
    assert plan.study_id in capsys.readouterr().err


@pytest.mark.parametrize("how", ["edited", "damaged", "with a right checksum", "deleted"])
def test_a_finished_trial_whose_log_was_changed_later_is_named(tmp_path, capsys, how):
    words = ("search.trials=1", "trainer.steps=1", "seeds=[0]")
    plan = plan_in(tmp_path, *words)
    search_folder.write_plan(plan)

    class Recording(InstantLauncher):
        def _run(self, folder, config):
            super()._run(folder, config)
            folder.note_sums({folder.metrics.name: file_sum(folder.metrics)})

    trials, _ = drive(plan, Recording())
    assert value_notes(plan, trials) == []
    (folder,) = run_folders.list_runs(tmp_path)
    if how == "deleted":
        shutil.rmtree(folder.path)
        assert value_notes(plan, trials) == []
        return
    text = folder.metrics.read_text()
    value = str(trials[0].value)
    folder.metrics.write_text(text.replace(value, "0.99") if how != "damaged" else text.replace("step", "ste"))
    if how == "with a right checksum":
        lines = [json.loads(line) for line in text.splitlines()]
        folder.metrics.unlink()
        log = JsonLines(folder.metrics)
        for line in lines:
            record = {key: 0.99 if str(each) == value else each for key, each in line.items()}
            record.pop(SEAL, None)
            log.append(record)
        log.close()
        folder.note_sums({folder.metrics.name: file_sum(folder.metrics)})
    for call in (["search"], ["search", "scpo*"]):
        assert cli.main([*call, "--runs-dir", str(tmp_path)]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert f"the recorded value of trial 0 can no longer be checked against {folder.run_id}: " in said
        assert (f"is 0.99, and {value} was recorded" in said) == (how == "with a right checksum")
        assert "1 COMPLETE" in said


def test_a_search_whose_runs_folder_was_moved_is_read_and_written_there(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    plan = plan_in("runs", "search.trials=2", "trainer.steps=1", "seeds=[0]")
    Study(plan).close()
    search_folder.write_plan(plan)
    drive(plan)
    moved = (tmp_path / "runs").rename(tmp_path / "moved, by hand")
    assert cli.main(["search", "--runs-dir", moved.name]) == 0
    assert "2 COMPLETE" in capsys.readouterr().out
    summary = (moved / "searches" / plan.study_id / "summary.md").read_text()
    assert "Trials: 2 COMPLETE." in summary
    (call,) = [line for line in summary.splitlines() if line.startswith("python sweep.py")]
    words = parse_all(shlex.split(call)[2:])
    assert [word.value for word in words if word.key == "machine.runs_dir"] == [moved.name]
    cli.main(["verify", "--runs-dir", moved.name])
    assert f"2 runs of the trials of search {plan.study_id}" in capsys.readouterr().out
    assert not (tmp_path / "runs").exists()
