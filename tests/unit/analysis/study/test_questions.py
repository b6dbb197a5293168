"""The sentences that the study's numbers make, whatever the sign of the differences."""

import re

import pytest

from analysis.sources.collect import collect
from analysis.stats.comparisons import named_comparisons
from analysis.study.page import opening
from analysis.study.questions import QUESTIONS, answers, headline, headlined, p_text, sentence
from tests.support.matrices import expanded
from tests.support.study_runs import rising, write_study

MAIN = {"main_table": ("scpo", "scpo_lexical", "gigpo", "grpo")}
PRIMARY = {"main_table": (("scpo", "gigpo"), ("scpo_lexical", "gigpo"), ("gigpo", "grpo"))}
SHOP = {"scpo": 0.9, "gigpo": 0.7, "grpo": 0.6}


def study(tmp_path, scpo, lexical=0.8, seeds=(0, 1, 2, 3)):
    curves = {
        "scpo": lambda seed: rising(scpo, 0.004 * (seed % 2)),
        "scpo_lexical": lambda seed: rising(lexical, 0.004 * (seed % 3)),
        "gigpo": lambda seed: rising(0.8, 0.004 * (seed // 2)),
        "grpo": lambda seed: rising(0.6),
    }
    write_study(tmp_path, MAIN, curves, seeds=seeds, primary=PRIMARY)
    return collect(tmp_path).at_scale("study")


def first(data):
    return named_comparisons(data)[0]


def test_a_resolved_difference_leads_in_bold_with_both_verdicts(tmp_path):
    text = sentence(first(study(tmp_path, scpo=0.9)))
    assert text.startswith("**SCPO has a larger area under validation than GiGPO** (rates 4e-3, 2e-3): +5.0 points [")
    assert re.search(r", p = 0\.00\d, 4/4 pairs\. ", text) or ", p < 0.001, 4/4 pairs. " in text
    assert "Faster: **yes**, −" in text
    assert "steps [" in text
    assert "Better at the end: **yes**, +10.0 points [" in text


def test_a_resolved_difference_of_the_other_sign_is_named_too(tmp_path):
    data = study(tmp_path, scpo=0.7)
    text = sentence(first(data))
    assert text.startswith("**SCPO has a smaller area under validation than GiGPO** (rates 4e-3, 2e-3): −5.0 points [−")
    assert "Faster: **no, slower**, +" in text
    assert "Better at the end: **no, worse**, −10.0 points" in text
    assert headline(named_comparisons(data)).startswith("SCPO − GiGPO on ALFWorld (rates 4e-3, 2e-3) is −5.0 points [")


def test_pairs_that_never_reach_half_are_not_compared_by_when_they_do(tmp_path):
    low = {name: (lambda seed: rising(0.3, 0.001 * seed)) for name in ("scpo", "gigpo")}
    write_study(tmp_path, {"main_table": ("scpo", "gigpo")}, low)
    (comparison,) = named_comparisons(collect(tmp_path).at_scale("study"))
    assert "Faster: not compared, no run reaches 50 %. Better" in sentence(comparison)


def test_an_open_comparison_names_the_smallest_difference_that_its_pairs_find(tmp_path):
    text = sentence(first(study(tmp_path, scpo=0.8, seeds=range(6))))
    assert text.startswith("SCPO − GiGPO (rates 4e-3, 2e-3): no difference in area under validation is shown, ")
    assert re.search(r"6/6 pairs; one such test, uncorrected, finds \d+\.\d points or more with 80 % power\.", text)
    assert "seeds would find" not in text


def test_where_interval_and_verdict_differ_the_sentence_names_the_correction(tmp_path):
    # GiGPO's differences from SCPO are 0.35, 0, 0.7, 0.35 points times a factor: t_3 is about 2.4 to 5
    curves = {
        "scpo": lambda seed: rising(0.8, 0.01 + 0.004 * seed),
        "gigpo": lambda seed: rising(0.8),
        "grpo": lambda seed: rising(0.8, 0.004 * (-1) ** seed),
        "chronological": lambda seed: rising(0.8, 0.004 * (-1) ** (seed // 2)),
    }
    named = {"main_table": (("scpo", "gigpo"), ("gigpo", "grpo")), "ablation": (("scpo", "chronological"),)}
    experiments = {"main_table": ("scpo", "gigpo", "grpo"), "ablation": ("scpo", "chronological")}
    write_study(tmp_path, experiments, curves, seeds=(0, 1, 2), primary=named)
    comparison = first(collect(tmp_path).at_scale("study"))
    assert comparison.effect.only_uncorrected
    assert p_text(comparison.effect).startswith("the interval alone excludes 0; corrected for 3 comparisons, p = 0.0")
    assert sentence(comparison).startswith("SCPO − GiGPO (rates 4e-3, 2e-3): no difference")
    assert "(not resolved after correction for 3 comparisons)" in headline([comparison])


def test_a_question_without_runs_is_not_answered(tmp_path):
    found = {answer.experiment: answer for answer in answers(study(tmp_path, scpo=0.9))}
    assert found["ablation"].finished == ()
    assert found["ablation"].command == "python sweep.py +experiment=ablation scale=study"
    assert len(found["main_table"].finished) == 3
    one = answers(study(tmp_path / "one", scpo=0.9, seeds=(0,)))
    assert one[0].finished == ()
    assert headline([]) == "No comparison was named before the runs (primary: in the file of an experiment)."
    unfinished = named_comparisons(collect(tmp_path / "one").at_scale("study"))
    assert headline(unfinished) == "No comparison that was named before the runs has two finished pairs yet."
    others = [comparison for comparison in found["main_table"].finished if not comparison.first.called("scpo")]
    assert headline(others).startswith(f"{len(others)} comparison")


def test_an_experiment_without_a_question_of_its_own_is_headed_by_its_title(tmp_path):
    curves = {"scpo": lambda seed: rising(0.9), "chronological": lambda seed: rising(0.8, 0.01 * seed)}
    named = {"brand_new": (("scpo", "chronological"),)}
    write_study(tmp_path, {"brand_new": ("scpo", "chronological")}, curves, primary=named)
    found = answers(collect(tmp_path).at_scale("study"))
    assert (found[-1].experiment, found[-1].question) == ("brand_new", "Brand_new")
    assert len(found[-1].finished) == 1


def test_the_headline_is_scpo_against_gigpo_and_its_largest_resolved_difference(tmp_path):
    curves = {
        "scpo": lambda seed: rising(0.7, 0.004 * (seed % 2)),
        "gigpo": lambda seed: rising(0.7, 0.004 * (seed // 2)),
        "crbc": lambda seed: rising(0.9, 0.004 * (seed % 3)),
        "gagpo": lambda seed: rising(0.1, 0.004 * (seed % 2)),  # far from GiGPO, but that is not of SCPO
    }
    named = {"beyond": (("scpo", "gigpo"), ("crbc", "scpo"), ("gagpo", "gigpo"))}
    write_study(tmp_path, {"beyond": tuple(curves)}, curves, seeds=(0, 1, 2, 3), primary=named)
    found = named_comparisons(collect(tmp_path).at_scale("study"))
    assert [one.name for one in headlined(found)] == ["SCPO − GiGPO", "CRBC − SCPO"]
    assert {one.name for one in found if one.effect.resolved} == {"CRBC − SCPO", "GAGPO − GiGPO"}
    assert "; CRBC − SCPO on ALFWorld is +10." in headline(found)


def test_each_benchmark_answers_its_own_question(tmp_path):
    shop = {name: lambda seed, end=end: rising(end, 0.004 * (seed % 2)) for name, end in SHOP.items()}
    write_study(tmp_path, {"webshop_study": tuple(SHOP)}, shop, env="webshop")
    both = study(tmp_path, scpo=0.7)  # below GiGPO there, above it in the shop
    found = {answer.experiment: answer.comparisons for answer in answers(both)}
    assert sentence(found["webshop_study"][0]).startswith("**SCPO has a larger area")
    assert sentence(found["main_table"][0]).startswith("**SCPO has a smaller area")
    assert {one.first.env for one in found["webshop_study"]} == {"webshop"}


def test_the_page_opens_with_at_most_ten_numbered_lines(tmp_path):
    data = study(tmp_path, scpo=0.9)
    lines = opening(data, named_comparisons(data)).splitlines()
    numbered = [line for line in lines if re.match(r"\d+\. ", line)]
    assert 8 <= len(numbered) <= 10
    assert lines[0].startswith("**SCPO − GiGPO on ALFWorld (rates 4e-3, 2e-3) is +5.0 points [")
    text = "\n".join(numbered)
    assert "Question" in numbered[0]
    assert "40 training steps of 16 games × 8 rollouts" in text
    assert "success is measured on 274 held-out games every 10 steps" in text
    assert "Holm's correction over all 3 named comparisons" in text
    assert "three families of tests: each is corrected by itself" in text
    assert text.count("Not to be concluded") == 2
    assert re.search(
        r"Standard deviation over seeds: GiGPO 0\.\d points of area and 0\.\d at the last step \(4 seeds\)", text
    )


def test_the_setting_has_the_validation_of_each_benchmark(tmp_path):
    """It had that of ALFWorld only, on a page that has the runs on WebShop, too."""
    shop = {name: lambda seed, end=end: rising(end, 0.004 * (seed % 2)) for name, end in SHOP.items()}
    every = ("trainer.validation.every=4",)
    write_study(tmp_path, {"webshop_study": tuple(SHOP)}, shop, env="webshop", overrides=every)
    data = study(tmp_path, scpo=0.9)
    text = opening(data, named_comparisons(data))
    assert "on 274 held-out games every 10 steps, on WebShop on 200 held-out tasks every 4 steps. Rows share" in text

    own = tmp_path / "own"
    write_study(own, {"beyond": ("crbc",)}, {"crbc": lambda seed: rising(0.9)}, overrides=every)
    text = opening(study(own, scpo=0.9), named_comparisons(data))
    assert " every 10 steps, in other rows on 274 held-out tasks every 4 steps. Rows share" in text


@pytest.mark.parametrize("experiment", QUESTIONS)
def test_every_question_has_an_experiment(experiment):
    assert expanded(experiment, "scale=study").experiment.rows
