"""The sentences that the study's numbers make, whichever way they fall."""

import pytest

from analysis.answers.questions import QUESTIONS, answers, headline, headlined, sentence
from analysis.sources.collect import collect
from analysis.stats.paired import p_value
from tests.support.matrices import expanded
from tests.support.study_runs import rising, write_study

MAIN = {"main_table": ("scpo", "scpo_lexical", "gigpo", "grpo")}
PRIMARY = {"main_table": (("scpo", "gigpo"), ("scpo_lexical", "gigpo"), ("gigpo", "grpo"))}
SHOP = {"scpo": 0.9, "gigpo": 0.7, "grpo": 0.6}
FIRST, HOST, ABLATION = QUESTIONS[:3]


def study(tmp_path, scpo, lexical=0.8, seeds=(0, 1, 2, 3)):
    curves = {
        "scpo": lambda seed: rising(scpo, 0.004 * (seed % 2)),
        "scpo_lexical": lambda seed: rising(lexical, 0.004 * (seed % 3)),
        "gigpo": lambda seed: rising(0.8, 0.004 * (seed // 2)),
        "grpo": lambda seed: rising(0.6),
    }
    write_study(tmp_path, MAIN, curves, seeds=seeds, primary=PRIMARY)
    return collect(tmp_path).at_scale("study")


def test_a_method_that_is_ahead_is_said_to_be(tmp_path):
    found = answers(study(tmp_path, scpo=0.9), FIRST)
    assert sentence(found[0]).startswith("**SCPO is ahead of GiGPO**: +5.0 [")
    assert sentence(found[0]).endswith("points of area under validation, 4/4 seeds.")
    assert headline(found).startswith("SCPO beats GiGPO by 5.0 [")


def test_a_method_that_is_behind_is_the_headline_too(tmp_path):
    found = answers(study(tmp_path, scpo=0.7), FIRST)
    assert sentence(found[0]).startswith("**SCPO is behind GiGPO**: −5.0 [−")
    assert headline(found).startswith("GiGPO beats SCPO by 5.0 [")


def test_what_is_open_says_how_large_it_can_be_and_what_it_would_take(tmp_path):
    found = answers(study(tmp_path, scpo=0.8, seeds=range(6)), FIRST)
    said = sentence(found[0])
    assert said.startswith("SCPO and GiGPO are not told apart: ")
    assert "by this interval it is at most" in said
    assert "are not told apart" in headline(found)


def test_named_comparisons_keep_the_correction_of_their_family(tmp_path):
    data = study(tmp_path, scpo=0.9)
    (host,) = answers(data, HOST)
    assert host.p > p_value(host.difference)  # of three that were named


def test_a_question_without_runs_has_no_answer(tmp_path):
    assert answers(study(tmp_path, scpo=0.9), ABLATION) == []
    assert answers(study(tmp_path / "one", scpo=0.9, seeds=(0,)), FIRST) == []
    assert headline([]) == "No pair of SCPO and GiGPO has finished yet."


def test_a_rival_that_is_told_apart_is_in_the_headline_and_an_open_one_is_not(tmp_path):
    curves = {
        "scpo": lambda seed: rising(0.7, 0.004 * (seed % 2)),
        "gigpo": lambda seed: rising(0.7, 0.004 * (seed // 2)),
        "crbc": lambda seed: rising(0.9, 0.004 * (seed % 3)),
        "gagpo": lambda seed: rising(0.7, 0.02 * (seed % 2)),
    }
    named = {"beyond": (("scpo", "gigpo"), ("crbc", "scpo"), ("gagpo", "scpo"))}
    write_study(tmp_path, {"beyond": tuple(curves)}, curves, seeds=(0, 1, 2, 3), primary=named)
    said = headline(headlined(collect(tmp_path).at_scale("study")))
    assert "; SCPO and GiGPO are not told apart" in said
    assert said.startswith("CRBC beats SCPO by 10.")
    assert "GAGPO" not in said


def test_each_benchmark_s_runs_answer_its_own_question(tmp_path):
    shop = {name: lambda seed, end=end: rising(end, 0.004 * (seed % 2)) for name, end in SHOP.items()}
    write_study(tmp_path, {"webshop_study": tuple(SHOP)}, shop, env="webshop")
    shop_alone = collect(tmp_path).at_scale("study")
    assert [answers(shop_alone, question) for question in QUESTIONS[:2]] == [[], []]
    both = study(tmp_path, scpo=0.7)  # behind GiGPO there, ahead of it in the shop
    for data in (shop_alone, both):
        gain, host = answers(data, next(one for one in QUESTIONS if one.env == "webshop"))
        assert sentence(gain).startswith("**SCPO is ahead of GiGPO**: +10.")
        assert (gain.part.env, host.part.env) == ("webshop", "webshop")
    assert sentence(answers(both, FIRST)[0]).startswith("**SCPO is behind GiGPO**")


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.experiment)
def test_a_question_asks_for_rows_that_its_experiment_has(question):
    rows = {row.name for row in expanded(question.experiment, "scale=study").experiment.rows}
    assert {name for pair in question.pairs for name in pair} <= rows
