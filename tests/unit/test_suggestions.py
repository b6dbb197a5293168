from pathlib import Path

import pytest

import analysis.__main__
import scpo.new
import sweeps.__main__
from scpo.suggestions import SuggestingParser, did_you_mean


@pytest.mark.parametrize(
    ("main", "words", "answer"),
    [
        (sweeps.__main__.main, ["stauts"], "; did you mean status?"),
        (analysis.__main__.main, ["figure"], "; did you mean figures?"),
        (analysis.__main__.main, ["fig_learning"], "; did you mean figures fig_learning?"),
        (analysis.__main__.main, ["tabels"], "; did you mean figures?"),
        (analysis.__main__.main, ["figures", "--seeds", "comon"], "; did you mean common?"),
        (scpo.new.main, ["estmator", "x"], "; did you mean estimator?"),
    ],
)
def test_a_misspelt_command_gets_a_suggestion(main, words, answer, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 2
    assert capsys.readouterr().err.endswith(f"{answer}\n")


def test_a_name_that_is_known_several_times_is_suggested_once():
    assert did_you_mean("SCPO", ["scpo", "gigpo", "scpo"]) == "; did you mean scpo?"


def test_other_errors_and_words_that_resemble_nothing_get_none(capsys):
    parser = SuggestingParser()
    parser.add_argument("kind", choices=["status", "top"])
    for words in (["zzzz"], []):
        with pytest.raises(SystemExit):
            parser.parse_args(words)
    assert "did you mean" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["report", "--rundir", "x"], "unrecognized arguments: --rundir x; did you mean --runs-dir?"),
        (["report", "--rundir=x"], "unrecognized arguments: --rundir=x; did you mean --runs-dir?"),
        (["--verbsoe", "other"], "unrecognized arguments: --verbsoe; did you mean --verbose?"),
        (["other", "--rundir", "x"], "unrecognized arguments: --rundir x\n"),
        (["other", "runs"], "unrecognized arguments: runs\n"),
    ],
)
def test_a_misspelt_option_is_answered_with_the_nearest_of_its_command(words, said, capsys):
    parser = SuggestingParser()
    parser.add_argument("--verbose", action="store_true")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("report").add_argument("--runs-dir")
    commands.add_parser("other")
    with pytest.raises(SystemExit):
        parser.parse_args(words)
    assert said in capsys.readouterr().err
    assert parser.parse_args(["report", "--runs-dir", "x"]).runs_dir == "x"


@pytest.mark.parametrize("name", ["", " "])
def test_a_folder_without_a_name_is_not_the_current_folder(name, capsys):
    parser = SuggestingParser()
    command = parser.add_subparsers(dest="command", required=True).add_parser("rm")
    command.add_argument("--runs-dir", type=Path, default=Path("runs"))
    with pytest.raises(SystemExit):
        parser.parse_args(["rm", "--runs-dir", name])
    assert "argument --runs-dir: an empty name (a variable that is not set?)" in capsys.readouterr().err
    assert parser.parse_args(["rm", "--runs-dir", "."]).runs_dir == Path()
