"""Conclusions on the paper's claims: by hand, from runs, and that each has its command and its row."""

import math
import shutil

import numpy as np
import pytest

from analysis.paper.claims import AGREES, DISAGREES, ELSEWHERE, NOT_RUN, UNDECIDED, Claim, conclusion
from analysis.paper.findings import measured
from analysis.paper.paper_claims import claims
from analysis.rendering.table import NONE
from analysis.selection import Selection
from analysis.sources.archive_writing import write_archive
from analysis.sources.collect import collect
from analysis.study.command import CLAIMS_MARKERS, with_claims
from analysis.tables import tab_claims
from scpo.intervals import Summary, summarise
from tests.support.matrices import expanded
from tests.support.run_records import ROOT, log_only, write_experiment, write_run
from tests.support.study_runs import rising, write_study

BY_NAME = {claim.name: claim for claim in claims()}
GAIN = Claim("gain", "", "", "+7.0", "main_table", lambda data, part: {}, 7.0)
LEVEL = Claim("level", "", "", "93.7", "main_table", lambda data, part: {}, 93.7, null=None)


def around(mean, half):
    """A summary of three seeds whose interval is mean ± half, in points."""
    return Summary(mean / 100, half / 100 * math.sqrt(3) / 4.302653, 3)  # t_2 at 97.5 %


@pytest.mark.parametrize(
    ("mean", "half", "said"),
    [
        (7, 2, AGREES),  # the number, not 0
        (2, 1, AGREES),  # neither, on the claimed side
        (12, 2, AGREES),
        (1, 2, DISAGREES),  # 0, not the number
        (-4, 1, DISAGREES),  # the other side of 0
        (4, 5, UNDECIDED),  # both
    ],
)
def test_a_gain_at_the_papers_scale_is_held_against_its_number_and_none(mean, half, said):
    assert conclusion(GAIN, around(mean, half), "paper") == said


@pytest.mark.parametrize(("mean", "half", "said"), [(1, 2, UNDECIDED), (1, 0.5, AGREES), (-1, 0.5, DISAGREES)])
def test_a_gain_at_another_scale_is_held_against_none_alone(mean, half, said):
    assert conclusion(GAIN, around(mean, half), "study") == said


def test_a_level_is_the_papers_scales_alone():
    assert conclusion(LEVEL, around(92, 3), "paper") == AGREES
    assert conclusion(LEVEL, around(80, 3), "paper") == DISAGREES
    assert conclusion(LEVEL, around(92, 3), "study") == ELSEWHERE


def test_one_seed_is_no_conclusion():
    assert conclusion(GAIN, summarise([0.07]), "paper") == UNDECIDED  # it did run
    assert conclusion(GAIN, summarise([]), "mini") == NOT_RUN


def test_two_seeds_that_differ_by_the_same_decide_nothing():
    assert conclusion(GAIN, summarise([-0.04, -0.04]), "study") == UNDECIDED
    assert conclusion(GAIN, summarise([0.07, 0.08]), "study") == UNDECIDED
    assert conclusion(GAIN, summarise([-0.04, -0.04, -0.04]), "paper") == UNDECIDED


def test_a_claim_of_less_is_on_the_other_side():
    plateau = BY_NAME["plateau"]
    assert conclusion(plateau, around(-10, 2), "study") == AGREES
    assert conclusion(plateau, around(10, 2), "study") == DISAGREES


def test_what_the_paper_claims_is_what_its_tables_print():
    claimed = {name: claim.claimed for name, claim in BY_NAME.items()}
    assert (claimed["over_gigpo_alfworld_1.5B"], claimed["over_gigpo_webshop_1.5B"]) == (7.0, 9.8)
    assert (claimed["over_gigpo_look"], claimed["over_gigpo_cool"], claimed["over_gigpo_pick2"]) == (21.1, 13.0, 14.5)
    assert (claimed["over_chronological"], claimed["over_no_monotonicity"]) == (3.3, 3.6)
    assert (claimed["reordered_steps"], claimed["reordered_aux_mean"]) == (2.3, 0.005)
    assert (claimed["narrower"], claimed["memory"]) == (2.5, 1.7)


@pytest.mark.parametrize("claim", claims(), ids=lambda claim: claim.name)
def test_every_claim_is_tested_by_an_experiment_that_composes(claim):
    words = claim.command(claim.cheapest_scale).split()[2:]
    assert expanded(words[0].removeprefix("+experiment="), *words[1:]).runs


def study(tmp_path, scpo):
    curves = {
        "scpo": lambda seed: rising(scpo, 0.004 * (seed % 2)),
        "gigpo": lambda seed: rising(0.8, 0.004 * (seed // 2)),
        "chronological": lambda seed: rising(0.8),
    }
    credit = {"scpo": {"credit/steps": 1.4, "credit/exact": 0.9}, "chronological": {"credit/steps": 1.9}}
    experiments = {"main_table": ("scpo", "gigpo"), "ablation": ("scpo", "chronological")}
    write_study(tmp_path, experiments, curves, seeds=(0, 1, 2, 3), credit=credit)
    return collect(tmp_path)


def said(data):
    made = tab_claims.build(data.at_scale("study"))
    return {row[0]: row for block in made.blocks for row in block.rows}


def test_conclusions_of_a_scale_come_from_its_runs(tmp_path):
    ahead = said(study(tmp_path / "a", 0.9))
    behind = said(study(tmp_path / "b", 0.7))
    gain = BY_NAME["over_gigpo_alfworld_1.5B"].text
    assert ahead[gain][3:5] == ("4", AGREES)
    assert behind[gain][3:5] == ("4", DISAGREES)
    assert ahead[BY_NAME["reordered_steps"].text][6].mean == "−0.50"  # 1.4 against 1.9
    assert ahead[BY_NAME["rises"].text][4] == AGREES
    assert ahead[BY_NAME["over_gigpo_webshop_1.5B"].text][4] == NOT_RUN
    assert ahead[BY_NAME["level_alfworld_7B"].text][4] == ELSEWHERE


def test_a_claim_whose_rows_were_not_chosen_is_not_called_not_run(tmp_path):
    data = Selection(rows=("gigpo",)).of(study(tmp_path, 0.9))
    lines = said(data)
    assert lines[BY_NAME["over_gigpo_alfworld_1.5B"].text][4] == "not selected"
    assert lines[BY_NAME["over_gigpo_webshop_1.5B"].text][4] == NOT_RUN
    assert "Not selected: the choice of experiments" in tab_claims.build(data.at_scale("study")).caption


def test_a_plateau_of_few_validations_is_not_called_not_run(tmp_path):
    curves = {"scpo": lambda seed: {0: 0.0, 20: 0.5, 40: 0.6}}
    rare = ("trainer.validation.every=20",)
    write_study(tmp_path, {"main_table": ("scpo",)}, curves, primary={}, overrides=rare)
    data = collect(tmp_path)
    assert said(data)[BY_NAME["plateau"].text][4] == "too few validations"
    assert "a curve of at least 5" in tab_claims.build(data.at_scale("study")).caption


@pytest.mark.parametrize("rows", [("theta_0_4", "theta_0_8"), ("theta_0_4",)])
def test_a_sweep_without_the_default_has_the_difference_of_its_own_rows_or_none(tmp_path, rows):
    experiment = {}
    for row in rows:
        words = ("method=scpo", f"method.shaper.theta={row[-3:].replace('_', '.')}")
        experiment[row] = [write_run(tmp_path, "scpo", seed, overrides=words) for seed in (0, 1)]
    write_experiment(tmp_path, experiment, name="one")
    made = tab_claims.build(collect(tmp_path).at_scale("mini"))
    (found,) = (row for block in made.blocks for row in block.rows if row[0] == BY_NAME["robust_theta"].text)
    assert (found[3], found[6] == NONE) == (("2", False) if len(rows) > 1 else ("", True))


def test_the_caption_names_the_panel_and_equal_seeds_have_no_interval(tmp_path):
    data = study(tmp_path, 0.9)
    caption = tab_claims.build(data.at_scale("study")).caption
    assert "ALFWorld’s held out, seen rooms (valid_seen)" in caption
    assert said(data)[BY_NAME["reordered_steps"].text][6].text == "−0.50"


def test_a_scorer_that_credits_equal_texts_alone_proves_nothing_about_equal_texts(tmp_path):
    data = study(tmp_path, 0.9)
    assert next(iter(data.by_id.values())).config["scorer"]["kind"] == "exact"
    assert said(data)[BY_NAME["exact"].text][4] == NOT_RUN


def save_step_texts(folder, texts):
    """Step texts of one batch, from (group, text, success, credit)."""
    group, text, success, credit = (np.array(column) for column in zip(*texts, strict=True))
    columns = {"group": group, "trajectory": group, "step": group, "text": text, "success": success, "credit": credit}
    np.savez(folder / "diagnostics" / "step_texts_step_00003.npz", **columns)


def test_exact_matches_are_with_any_step_of_a_successful_sibling(tmp_path):
    curves = dict.fromkeys(("scpo", "scpo_minilm"), lambda seed: rising(0.9))
    ids = write_study(tmp_path, {"main_table": tuple(curves)}, curves)
    for share, run in enumerate(ids["scpo_minilm"]):
        texts = [
            (0, "a", True, 0.0),
            (0, "a", False, 1.0),  # exact
            (0, "c", False, 1.0),  # a success of another group has this text
            (0, "a", False, 0.0),  # not credited
            (1, "c", True, 0.0),
            (1, "c" if share else "d", False, 1.0),  # exact in the second and third seed
        ]
        save_step_texts(tmp_path / run, texts)
    claim = BY_NAME["exact"]
    assert measured(claim, collect(tmp_path).at_scale("study")).summary.mean == pytest.approx((1 + 2 + 2) / 9)


def test_the_archives_claims_say_which_need_samples(tmp_path):
    """tab_claims had "not run" at rows of the archive that have finished."""
    curves = dict.fromkeys(("scpo", "scpo_minilm"), lambda seed: rising(0.9, 0.001 * seed))
    write_study(tmp_path / "runs", {"main_table": tuple(curves)}, curves)
    folders = collect(tmp_path / "runs")
    write_archive(folders.by_id.values(), folders.metrics, folders.experiments, tmp_path / "archive")
    archive = collect(tmp_path / "archive")
    for name in ("exact", "denser"):
        text = with_claims("\n".join(CLAIMS_MARKERS), archive)
        line = next(line for line in text.splitlines() if BY_NAME[name].text in line)
        assert line.endswith("| not run | not in the archive |")
        assert said(archive)[BY_NAME[name].text][4] == "not in the archive"
        # Run folders could hold samples, and these do not.
        assert said(folders)[BY_NAME[name].text][4] == "not recorded"
    caption = tab_claims.build(archive.at_scale("study")).caption
    assert "Not in the archive: its rows have run" in caption
    assert "Not run: no seed is finished in all rows that the claim is about, at one setting." in caption


def test_claims_that_need_samples_are_not_selected_where_their_rows_are_not(tmp_path):
    curves = dict.fromkeys(("scpo", "scpo_minilm", "gigpo"), lambda seed: rising(0.9, 0.001 * seed))
    write_study(tmp_path / "runs", {"main_table": tuple(curves)}, curves)
    write_study(tmp_path / "runs", {"webshop_study": ("gigpo",)}, curves, env="webshop")
    folders = collect(tmp_path / "runs")
    write_archive(folders.by_id.values(), folders.metrics, folders.experiments, tmp_path / "archive")
    archive = collect(tmp_path / "archive")
    chosen = said(Selection(envs=("webshop",)).of(archive))
    for name in ("exact", "denser"):
        assert said(archive)[BY_NAME[name].text][4] == "not in the archive"
        assert chosen[BY_NAME[name].text][4] == "not selected"


def test_a_claim_whose_metric_was_not_logged_is_not_called_not_run(tmp_path):
    curves = {name: (lambda seed: rising(0.9)) for name in ("scpo", "chronological")}
    write_study(tmp_path, {"ablation": tuple(curves)}, curves)
    lines = said(collect(tmp_path))
    assert lines[BY_NAME["reordered_steps"].text][4] == "not recorded"
    assert lines[BY_NAME["inflation"].text][4] == NOT_RUN


def of_two_experiments(tmp_path, *experiments):
    """SCPO is at 80 or 81 % as GiGPO in main_table, and 10 points behind in more_seeds."""
    seeds = {"main_table": (0, 1, 2), "more_seeds": (5, 6, 7, 8)}
    curves = {
        "scpo": lambda seed: rising(0.7 if seed > 4 else 0.8 + 0.01 * (seed % 2)),
        "gigpo": lambda seed: rising(0.8 + 0.01 * (seed == 2) + 0.004 * (seed == 7)),
    }
    for name in experiments:
        write_study(tmp_path, {name: tuple(curves)}, curves, seeds=seeds[name])
    return collect(tmp_path)


def test_runs_of_another_experiment_do_not_replace_those_of_the_claims_own(tmp_path):
    """--experiment more_seeds turned "undecided" into "disagrees", under the same caption."""
    text = BY_NAME["over_gigpo_alfworld_1.5B"].text
    every = of_two_experiments(tmp_path, "main_table", "more_seeds")
    own = (text, "main table, section 4.2", "+7.0", "3", UNDECIDED, "main_table, seeds 0 to 2")
    for selection in (Selection(), Selection(experiments=("main_table",)), Selection(rows=("gigpo", "scpo"))):
        assert said(selection.of(every))[text][:6] == own
    chosen = Selection(experiments=("more_seeds",)).of(every)
    assert said(chosen)[text][3:6] == ("", "not selected", "")
    caption = tab_claims.build(chosen.at_scale("study")).caption
    assert "runs of other experiments do not replace these" in caption
    assert "*" not in caption


def test_an_experiment_that_is_not_the_claims_own_is_named_where_the_own_has_no_runs(tmp_path):
    claim = BY_NAME["over_gigpo_alfworld_1.5B"]
    data = of_two_experiments(tmp_path, "more_seeds")
    assert said(data)[claim.text][3:6] == ("4", DISAGREES, "more_seeds*, seeds 5 to 8")
    assert "* Another experiment with its rows" in tab_claims.build(data.at_scale("study")).caption
    line = next(line for line in with_claims("\n".join(CLAIMS_MARKERS), data).splitlines() if claim.text in line)
    assert line.endswith("], 4 seeds of more_seeds |")


def test_another_experiment_under_another_setting_is_named_with_it(tmp_path):
    """The claim on theta was judged by single runs of another scorer, which nothing said."""
    claim = BY_NAME["over_gigpo_alfworld_1.5B"]
    curves = {row: lambda seed: rising(0.8) for row in ("scpo", "gigpo", "grpo")} | {"scpo": lambda seed: rising(0.9)}
    write_study(tmp_path, {"controls": ("gigpo", "grpo")}, curves, primary={})
    write_study(tmp_path, {"more_seeds": ("scpo", "gigpo")}, curves, overrides=("scorer=lexical",), primary={})
    runs = said(collect(tmp_path))[claim.text][5]
    assert runs.startswith("more_seeds*, seeds 0 to 2, ")
    assert "scorer=lexical" in runs


def test_a_claim_about_one_row_is_on_the_common_seeds_of_its_section(tmp_path):
    data = of_two_experiments(tmp_path, "main_table")
    gigpo = next(row for row in data.sections[0].rows if row.name == "gigpo")
    shutil.rmtree(tmp_path / gigpo.finished[0])
    data = collect(tmp_path)
    text = BY_NAME["rises"].text
    assert said(data)[text][5] == "main_table, seeds 0 to 2"
    assert said(Selection(common_seeds=True).of(data))[text][5] == "main_table, seeds 1, 2"


def test_claims_that_are_not_about_the_last_step_name_their_span():
    """The caption reads: after the last training step unless the claim names another span."""
    spans = {
        "rises": "last validation − first",
        "plateau": "in the last quarter",
        "inflation": "mean over the logged training steps",
        "reordered_steps": "mean over the logged training steps (at the paper's scale from step 20 on)",
        "reordered_aux_mean": "mean over the logged training steps (at the paper's scale from step 20 on)",
        "grows": "mean over the second half of the logged steps − the first",
        "exact": "of the sampled early batches",
        "denser": "last probe − first",
        "added": "mean over all steps",
        "scoring_share": "of the medians over all steps",
        "memory": "Peak GPU memory over training",
    }
    assert all(span in BY_NAME[name].text for name, span in spans.items())


def test_best_and_worst_value_are_judged_by_their_means(tmp_path):
    # Each seed has another best value; the means are 0.9, 0.88 and 0.85.
    ends = {"scpo": (0.90, 0.85, 0.95), "theta_0_4": (0.93, 0.83, 0.88), "theta_0_8": (0.80, 0.90, 0.85)}
    curves = {name: lambda seed, of=of: rising(of[seed]) for name, of in ends.items()}
    write_study(tmp_path, {"sweep_theta": tuple(curves)}, curves)
    found = measured(BY_NAME["robust_theta"], collect(tmp_path).at_scale("study")).summary
    assert found.n == 3
    assert found.mean == pytest.approx(0.05)


def test_a_row_that_changes_more_than_the_knob_is_no_value_of_it(tmp_path):
    # Named as values of the knob, but with another scorer, rate or soft base.
    rate, both = "trainer.optimizer.learning_rate=1e-3", "method.shaper.soft_base=0.2"
    others = {"exact": "scorer=lexical", "lr": rate, "both": both}
    made = {name: (f"method.shaper.theta={value}",) for name, value in (("scpo", 0.6), ("theta_0_8", 0.8))}
    made |= {f"theta_{name}": ("method.shaper.theta=0.3", other) for name, other in others.items()}
    ends = {"scpo": 0.9, "theta_0_8": 0.85}
    rows = {}
    for name, words in made.items():
        rows[name] = [write_run(tmp_path, "scpo", seed, overrides=("method=scpo", *words)) for seed in range(3)]
        for run in rows[name]:
            log_only(tmp_path, run, "val/train_games/success_rate", {0: 0.1, 40: ends.get(name, 0.2)})
    write_experiment(tmp_path, rows, name="sweep_theta")
    found = measured(BY_NAME["robust_theta"], collect(tmp_path).at_scale("mini")).summary
    assert (found.n, found.mean) == (3, pytest.approx(0.05))


def test_claims_about_the_papers_models_are_tested_on_those(tmp_path):
    runs = {}
    for row, end in (("scpo", 0.95), ("gigpo", 0.88)):
        made = [
            write_run(tmp_path, row, seed, scale="paper", steps=10, overrides=("model=qwen2_5_1_5b", f"method={row}"))
            for seed in range(3)
        ]
        for run in made:
            log_only(
                tmp_path,
                run,
                "val/valid_seen/success_rate",
                {0: 0.1, 10: end + (0.002 if row == "scpo" else 0.001) * run["seed"]},
            )
            run["model"] = "1.5B"
        runs[row] = made
    write_experiment(tmp_path, runs, name="main_table", scale="paper")
    data = collect(tmp_path).at_scale("paper")
    assert (
        conclusion(BY_NAME["level_alfworld_1.5B"], measured(BY_NAME["level_alfworld_1.5B"], data).summary, "paper")
        == DISAGREES
    )
    gain = BY_NAME["over_gigpo_alfworld_1.5B"]
    assert measured(gain, data).summary.n == 3
    assert conclusion(gain, measured(gain, data).summary, "paper") == AGREES
    assert measured(BY_NAME["over_gigpo_alfworld_7B"], data).summary.n == 0


def test_the_documents_table_is_written_between_its_markers(tmp_path):
    data = study(tmp_path, 0.9)
    text = f"before\n{CLAIMS_MARKERS[0]}\nold\n{CLAIMS_MARKERS[1]}\nafter\n"
    made = with_claims(text, data)
    assert made.startswith("before\n")
    assert made.endswith("\nafter\n")
    assert "old" not in made
    assert made.count("\n| ") == len(claims()) + 1
    assert with_claims(made, data) == made
    assert with_claims("no markers", data) == "no markers"


def test_every_claim_has_its_row_in_the_ledger_document():
    text = (ROOT / "REPRODUCTION.md").read_text()
    block = text.partition(CLAIMS_MARKERS[0])[2].partition(CLAIMS_MARKERS[1])[0]
    assert all(f"| {claim.text} | {claim.place} | {claim.printed} | `" in block for claim in claims())
