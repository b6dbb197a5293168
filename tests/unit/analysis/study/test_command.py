"""``python -m analysis study``: runs become an archive, the archive a page; again from the archive alone."""

import json
import re
import shutil
import subprocess
from urllib.parse import unquote

import pytest

from analysis.__main__ import main
from analysis.sources.collect import collect
from analysis.study.command import ARCHIVE, HEADLINE_MARKERS, PAGE, README, with_headline
from analysis.study.page import page
from analysis.study.questions import QUESTIONS
from scpo.records.archive_index import INDEX, METRICS, is_archive
from scpo.records.code_files import code_files
from scpo.records.files import write_json
from sweeps.compose.overrides import options
from tests.support.run_records import ROOT
from tests.support.sketches import sketch
from tests.support.study_runs import OVERRIDES, rising, write_study, write_study_run

EXPERIMENTS = {"main_table": ("scpo", "gigpo", "grpo")}
CURVES = {
    "scpo": lambda seed: rising(0.85, 0.004 * (seed % 2)),
    "gigpo": lambda seed: rising(0.8, 0.004 * (seed // 2)),
    "grpo": lambda seed: rising(0.6, 0.002 * seed),
}
CREDIT = {"scpo": {"credit/steps": 1.5, "credit/precision": 0.1, "credit/precision_uncredited": 0.2}}


def command(folder, *runs, add=("*",), words=("--create", "--allow-uncommitted")):
    """The page from the archive, or first what is in these run folders added to it."""
    sources = [word for path in runs for word in ("--runs", str(path))]
    added = [word for pattern in add for word in ("--add", pattern)]
    words = [*sources, *added, *words] if runs else []
    return main(["study", *words, "--archive", str(folder / "study"), "--page", str(folder / "study.md")])


def files_of(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def page_of(folder):
    return (folder / "study.md").read_text()


@pytest.fixture
def runs(tmp_path, monkeypatch):
    sketch(monkeypatch)
    write_study(tmp_path / "runs", EXPERIMENTS, CURVES, credit=CREDIT)
    return tmp_path / "runs"


def test_the_page_from_the_archive_alone_is_the_page_from_the_runs(runs, tmp_path, monkeypatch, capsys):
    assert command(tmp_path, runs) == 0
    assert "SCPO − GiGPO (rates 4e-3, 2e-3) +" in capsys.readouterr().out
    first = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and runs not in path.parents}
    shutil.rmtree(runs)
    monkeypatch.chdir(tmp_path)  # no folder runs here
    assert command(tmp_path) == 0
    assert {path: path.read_bytes() for path in first} == first
    assert {path.name for path in first} >= {"study.md", "metrics.parquet", "fig_study_curves.png"}


def test_the_page_says_where_its_numbers_come_from_and_what_is_missing(runs, tmp_path):
    write_study_run(runs, "grpo", 3, rising(0.6))
    experiments = {"main_table": ("scpo", "gigpo", "grpo")}
    write_study_run(runs, "gigpo", 3, rising(0.6), state="FAILED")
    write_study(runs, experiments, CURVES, seeds=(0, 1, 2, 3), credit=CREDIT)
    command(tmp_path, runs)
    text = (tmp_path / "study.md").read_text()
    assert "- 11 finished runs" in text
    assert "0123456 (11 runs)" in text
    assert "a processor (11 runs)" in text
    assert "GIGPO 3/4" in text
    assert "`python sweep.py +experiment=main_table scale=study 'seeds=[3]'`" in text
    assert "3/4 pairs" in text
    assert "Not run yet: `python sweep.py +experiment=ablation scale=study`" in text
    assert "| SCPO | 4/4 | 1.50 |" in text


def test_the_page_names_rows_whose_seeds_ran_under_several_versions_of_the_code(runs, tmp_path):
    ids = write_study(runs, EXPERIMENTS, CURVES, credit=CREDIT)
    for number, run in enumerate(ids["grpo"]):
        changed = {"scpo/advantages/grpo.py": "another"} if number else {}
        write_json(runs / run / "code.json", {"files": code_files() | changed})
    command(tmp_path, runs)
    assert "- Note: GRPO: its seeds ran under several versions of the code (" in (tmp_path / "study.md").read_text()


def test_the_page_of_an_archive_of_one_s_own_has_its_setting_links_and_commands(runs, tmp_path):
    shutil.rmtree(runs)
    write_study(runs, {"own": ("scpo", "gigpo")}, CURVES, seeds=(1, 2, 3, 7))
    archive, target = tmp_path / "mine" / "runs of mine", tmp_path / "pages" / "mine.md"
    target.parent.mkdir()
    words = ["--archive", str(archive), "--page", str(target)]
    assert main(["study", "--runs", str(runs), "--add", "*", "--create", "--allow-uncommitted", *words]) == 0
    text = target.read_text()
    setting = "ALFWorld: 40 training steps of 16 games × 8 rollouts; success is measured on 274 held-out games every "
    assert f"{setting}10 steps (SCPO, GiGPO; seeds 1–3, 7)." in text
    assert "No run of the main table" not in text

    links = [unquote(link) for link in re.findall(r"\]\((?!http)([^)#]+)\)", text)]
    assert "../mine/runs of mine/fig_study_effects.png" in links
    assert all((target.parent / link).exists() for link in links)
    assert f"python -m analysis study --archive '{archive}' --page {target} --add '*' --dry-run" in text
    assert "docs/study" not in text
    assert "first edition" not in text
    assert "make study" not in text


def test_a_page_of_one_comparison_of_runs_validated_after_every_step(runs, tmp_path):
    shutil.rmtree(runs)
    curves = {name: lambda seed, own=curve: dict.fromkeys(range(41), 0.5) | own(seed) for name, curve in CURVES.items()}
    write_study(
        runs, {"own": ("scpo", "gigpo")}, curves, seeds=(1, 2, 3), primary={"own": (("scpo", "gigpo"),)},
        overrides=("trainer.validation.every=1",),
    )  # fmt: skip
    assert command(tmp_path, runs) == 0
    text = page_of(tmp_path)
    assert "held-out games after every step (" in text
    assert "Holm's correction over the only named comparison of the study. Area," in text


def test_webshop_s_comparisons_stand_in_their_own_section(runs, tmp_path):
    command(tmp_path, runs)
    assert "## And on WebShop?\n\nNot run yet: `python sweep.py +experiment=webshop_study scale=study`." in page_of(
        tmp_path
    )
    write_study(runs, {"webshop_study": ("scpo", "gigpo", "grpo")}, CURVES, credit=CREDIT, env="webshop")
    command(tmp_path, runs)
    section = page_of(tmp_path).partition("## And on WebShop?")[2].partition("\n## ")[0]
    assert "- **SCPO has a larger area under validation than GiGPO**: +2." in section
    assert "| WebShop: SCPO | 3/3 | 1.50 |" in page_of(tmp_path)
    assert "**Webshop_study: study scale, WebShop, choice policy**" in page_of(tmp_path)
    answer = page_of(tmp_path).partition("**Does SCPO help?** On ALFWorld: ")[2].partition("\n")[0]
    assert "**Elsewhere**: WebShop, SCPO − GiGPO +2." in answer


def test_the_demo_and_runs_with_other_overrides_are_no_part_of_it(runs, tmp_path):
    write_study(runs, {"demo": ("scpo", "gigpo")}, CURVES, seeds=(7, 8))
    assert command(tmp_path, runs) == 0
    data = collect(tmp_path / "study")
    assert {run.head.seed for run in data.by_id.values()} == {0, 1, 2}
    assert [record.experiment for record in data.experiments] == ["main_table"]


def called_with(runs_dir, experiment, word):
    path = runs_dir / "experiments" / f"{experiment}-study.json"
    write_json(path, json.loads(path.read_text()) | {"overrides": ["scale=study", word]})


def test_runs_of_an_experiment_with_overrides_are_named_where_they_are_left_out(runs, tmp_path, capsys):
    called_with(runs, "main_table", "trainer.steps=20")
    assert command(tmp_path, runs, add=["main_table"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "'main_table' matches only 9 finished runs of main_table trainer.steps=20." in said
    assert "Write the override into the rows of an experiment of its own" in said
    assert command(tmp_path, runs, add=["main"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "experiments there: main_table trainer.steps=20." in said

    write_study(runs, {"own": ("scpo", "gigpo")}, CURVES, seeds=(7, 8))
    assert command(tmp_path, runs) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "4 runs to add" in said
    assert "left out 9 finished runs of main_table trainer.steps=20." in said
    # Only runs that match are named.
    assert command(tmp_path, runs, add=["own"]) == 0
    assert "left out" not in capsys.readouterr().out


def test_no_run_of_the_study_is_one_line(tmp_path, capsys):
    (tmp_path / "runs").mkdir()
    assert command(tmp_path, tmp_path / "runs") == 1
    assert "make study-quick" in capsys.readouterr().out
    assert command(tmp_path, tmp_path / "nowhere") == 1
    said = " ".join(capsys.readouterr().out.split())
    assert f"there is no folder {tmp_path / 'nowhere'}; correct --runs" in said
    assert "make study-quick" not in said


@pytest.mark.skipif(not shutil.which("make"), reason="needs make: install it")
def test_make_runs_each_experiment_of_the_study_with_its_seeds(monkeypatch):
    monkeypatch.setenv("ALFWORLD_DATA", "/games")
    printed = [
        subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for target in ("study", "study-quick")
    ]
    assert all("for name in main_table more_seeds ablation controls" in text for text in printed)
    assert "sweep.py +experiment=$name scale=study machine.archive=docs/study || exit 1" in printed[0]
    assert "sweep.py +experiment=$name scale=study 'seeds=[0,1,2]' || exit 1" in printed[1]
    experiments = re.search(r"for name in ([a-z_ ]+);", printed[0])[1].split()
    assert set(experiments) <= set(options("experiment"))
    assert set(QUESTIONS) <= set(experiments)


@pytest.mark.skipif(not is_archive(ROOT / ARCHIVE), reason="needs docs/study: python -m analysis study")
def test_the_committed_page_is_what_its_archive_gives():
    data = collect(ROOT / ARCHIVE).at_scale("study")
    figures = [path.stem for path in (ROOT / ARCHIVE).glob("fig_*.png")]
    same = (ROOT / PAGE).read_text() == page(data, figures)
    assert same, "what the page is made by has changed: give `python -m analysis study` and commit docs/study.md"


@pytest.mark.skipif(not is_archive(ROOT / ARCHIVE), reason="needs docs/study: python -m analysis study")
def test_the_readmes_headline_is_what_the_archive_gives_and_the_page_says():
    readme = (ROOT / README).read_text()
    data = collect(ROOT / ARCHIVE).at_scale("study")
    same = with_headline(readme, data) == readme
    assert same, "what the headline is made by has changed: give `python -m analysis study` and commit README.md"
    said = readme.partition(HEADLINE_MARKERS[0])[2].partition(HEADLINE_MARKERS[1])[0]
    first = re.search(r"^\*\*(.*)\*\*$", (ROOT / PAGE).read_text(), re.MULTILINE)[1]
    assert said.count(first) == 1


def test_the_headline_is_written_between_its_markers_and_says_what_it_rests_on(runs, tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text(f"above\n{HEADLINE_MARKERS[0]}\nold\n{HEADLINE_MARKERS[1]}\nbelow\n")
    words = ["study", "--runs", str(runs), "--archive", str(tmp_path / "study"), "--page", str(tmp_path / "study.md")]
    words += ["--create", "--allow-uncommitted", "--add", "*"]
    for _ in range(2):
        assert main([*words, "--readme", str(readme)]) == 0
    text = readme.read_text()
    assert "old" not in text
    assert text.startswith(
        f"above\n{HEADLINE_MARKERS[0]}\n**[The laptop study](docs/study.md): "
        "SCPO − GiGPO on ALFWorld (rates 4e-3, 2e-3) is +2."
    )
    scorer = "SCPO's scorer is equality of texts here (`scorer=exact`)."
    assert text.endswith(f"size of effects in language models. {scorer}\n{HEADLINE_MARKERS[1]}\nbelow\n")
    assert "9 runs of a small policy that chooses among listed commands, 3/3 pairs of seeds" in text


def test_a_document_without_markers_stays_as_it_is(runs, tmp_path):
    assert command(tmp_path, runs) == 0
    assert with_headline("no markers", collect(tmp_path / "study").at_scale("study")) == "no markers"


def test_a_missing_archive_is_refused_and_nothing_is_written(runs, tmp_path, capsys):
    before = files_of(tmp_path)
    assert command(tmp_path) == 1
    assert f"there is no archive in {tmp_path / 'study'}" in " ".join(capsys.readouterr().out.split())
    assert command(tmp_path, runs, words=()) == 1
    here = f"--archive {tmp_path / 'study'} --page {tmp_path / 'study.md'} --runs {runs}"
    assert f"python -m analysis study {here} --create --add '*'" in " ".join(capsys.readouterr().out.split())
    assert files_of(tmp_path) == before
    assert not (tmp_path / "study").exists()


def test_another_archive_needs_another_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["study", "--archive", "nope"]) == 1
    assert "--archive nope without --page" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_without_add_no_run_of_a_folder_enters_the_page(runs, tmp_path, monkeypatch, capsys):
    command(tmp_path, runs)
    write_study(tmp_path / "here" / "runs", EXPERIMENTS, CURVES, seeds=(7,))
    before = files_of(tmp_path / "study")
    monkeypatch.chdir(tmp_path / "here")
    assert command(tmp_path) == 0
    assert files_of(tmp_path / "study") == before
    assert main(["study", "--runs", "runs"]) == 1
    assert "--runs without --add" in capsys.readouterr().out


def test_runs_with_another_result_than_the_archives_are_named_and_the_archive_keeps_its_own(runs, tmp_path, capsys):
    command(tmp_path, runs)
    again = {"scpo": lambda seed: rising(0.75), "gigpo": CURVES["gigpo"], "grpo": CURVES["grpo"]}
    ids = write_study(tmp_path / "again", EXPERIMENTS, again, credit=CREDIT)
    before = files_of(tmp_path / "study")
    capsys.readouterr()
    assert command(tmp_path, tmp_path / "again") == 0
    text = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert "0 runs to add, 0 to repair, 9 in the archive already" in text
    assert "again: 3 runs with other numbers than in the archive, which keeps its own: " in text
    assert all(run in text for run in ids["scpo"])
    assert files_of(tmp_path / "study") == before
    command(tmp_path, runs)
    assert "other numbers" not in capsys.readouterr().out


def test_a_dry_run_lists_what_would_be_added_and_writes_nothing(runs, tmp_path, capsys):
    before = files_of(tmp_path)
    assert command(tmp_path, runs, words=("--create", "--allow-uncommitted", "--dry-run")) == 0
    said = capsys.readouterr().out
    assert "add main_table, scpo, alfworld: seeds 0, 1, 2" in said
    assert "9 runs to add, 0 to repair, 0 in the archive already; code: 0123456" in said
    assert files_of(tmp_path) == before
    assert not (tmp_path / "study").exists()


def test_only_what_matches_is_added_and_nothing_is_ever_removed(runs, tmp_path, capsys):
    assert command(tmp_path, runs, add=("*-gigpo-*",)) == 0
    assert {run.head.method.name for run in collect(tmp_path / "study").by_id.values()} == {"gigpo"}
    write_study(tmp_path / "more", {"ablation": ("chronological",)}, {"chronological": CURVES["scpo"]}, primary={})
    assert command(tmp_path, tmp_path / "more", add=("ablation",)) == 0
    rows = {"-".join(run.id.split("-")[2:-2]) for run in collect(tmp_path / "study").by_id.values()}
    assert rows == {"gigpo", "scpo-chronological"}
    assert command(tmp_path, runs, add=("abl*", "crbc")) == 1
    assert "matches 'crbc'; experiments there: main_table" in " ".join(capsys.readouterr().out.split())


def test_runs_of_uncommitted_code_are_refused_unless_told_otherwise(runs, tmp_path, capsys):
    path = next(runs.glob("*-scpo-s1-*")) / "provenance.json"
    write_json(path, {"attempts": {"1": {"cpu": "a processor", "dirty": True}}})
    assert command(tmp_path, runs, words=("--create",)) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert f"1 run of code that is in no commit: {path.parent.name}" in said
    assert not (tmp_path / "study").exists()
    assert command(tmp_path, runs) == 0


def test_a_row_that_gets_another_label_is_named(runs, tmp_path, capsys):
    assert command(tmp_path, runs) == 0
    path = runs / "experiments" / "main_table-study.json"
    record = json.loads(path.read_text())
    (row,) = (row for row in record["rows"] if row["name"] == "scpo")
    row["label"], before = "SCPO, mine", row["label"]
    write_json(path, record)
    assert "its label" not in capsys.readouterr().out
    assert command(tmp_path, runs) == 0
    told = f"note: main_table, scpo: its label is now 'SCPO, mine', as in the added record; it was {before!r}"
    assert told in " ".join(capsys.readouterr().out.split())
    assert command(tmp_path, runs) == 0
    assert "its label" not in capsys.readouterr().out


def named_in(folder, experiment="main_table"):
    (record,) = (one for one in collect(folder).experiments if one.experiment == experiment)
    pairs = record.primary.comparisons if record.primary else ()
    return list(pairs), list(record.named_late)


def refuse(runs, named, late):
    """The record of the main table, as a sweep writes it that finds these comparisons named after their results."""
    path = runs / "experiments" / "main_table-study.json"
    record = json.loads(path.read_text())
    record["primary"] = {"measure": "validation_area", "comparisons": named} if named else None
    write_json(path, record | {"named_late": late})


@pytest.mark.parametrize("named", [[], [("gigpo", "grpo")]])
@pytest.mark.parametrize("more", [0, 1])
def test_a_comparison_that_the_archive_has_as_late_stays_late(runs, tmp_path, named, more, capsys):
    """In a folder of its own, without the archive, a sweep finds no results before the comparison."""
    late = [("scpo", "gigpo")]
    refuse(runs, named, late)
    assert command(tmp_path, runs) == 0
    write_study(tmp_path / "again", EXPERIMENTS, CURVES, credit=CREDIT, seeds=range(3 + more))
    assert named_in(tmp_path / "again") == ([("scpo", "gigpo"), ("gigpo", "grpo")], [])
    capsys.readouterr()
    assert command(tmp_path, tmp_path / "again") == 0
    text = " ".join(capsys.readouterr().out.split())
    if named or not more:
        assert named_in(tmp_path / "study") == (named, late)
        assert "now named" not in text
    else:
        assert named_in(tmp_path / "study") == ([], [*late, ("gigpo", "grpo")])


@pytest.fixture
def laptop_and_cluster(tmp_path, monkeypatch):
    """Two folders of one experiment: seeds 0 to 2 were finished when its file got the comparison, seed 4 was not."""
    sketch(monkeypatch)
    laptop, cluster = tmp_path / "laptop", tmp_path / "cluster"
    write_study(laptop, EXPERIMENTS, CURVES, credit=CREDIT)
    refuse(laptop, [("gigpo", "grpo")], [("gigpo", "scpo")])  # the other order is the same comparison
    write_study(cluster, EXPERIMENTS, CURVES, credit=CREDIT, seeds=(4,))
    return laptop, cluster


REFUSED = "main_table: no longer tested: scpo − gigpo (the added record named it after runs of both rows had finished)"


@pytest.mark.parametrize("first", [0, 1])
def test_a_comparison_that_one_of_two_folders_refused_is_refused_in_both_orders(
    laptop_and_cluster, tmp_path, first, capsys
):
    assert command(tmp_path, laptop_and_cluster[first]) == 0
    capsys.readouterr()
    assert command(tmp_path, laptop_and_cluster[1 - first]) == 0
    assert named_in(tmp_path / "study") == ([("gigpo", "grpo")], [("gigpo", "scpo")])
    assert "SCPO has a larger" not in page_of(tmp_path)
    text = " ".join(capsys.readouterr().out.split())
    assert text.count(REFUSED) == first
    assert "no longer named" not in text
    assert "now named" not in text


def test_a_record_that_names_only_late_comparisons_refuses_them(laptop_and_cluster, tmp_path, capsys):
    laptop, cluster = laptop_and_cluster
    late = [("scpo", "gigpo"), ("gigpo", "grpo")]
    refuse(laptop, [], late)
    assert command(tmp_path, cluster) == 0
    assert command(tmp_path, laptop) == 0
    assert named_in(tmp_path / "study") == ([], late)
    both = "main_table: no longer tested: scpo − gigpo, gigpo − grpo (the added record named"
    assert both in " ".join(capsys.readouterr().out.split())


def test_a_refusal_without_a_run_that_the_archive_lacks_changes_nothing(laptop_and_cluster, tmp_path, capsys):
    laptop = laptop_and_cluster[0]
    in_time = ([("scpo", "gigpo"), ("gigpo", "grpo")], [])
    write_study(tmp_path / "all", {"main_table": ("scpo", "gigpo", "grpo")}, CURVES, credit=CREDIT)
    # The second addition has only runs of a row that the refused comparison does not have.
    for patterns in (["*-scpo-*", "*-gigpo-*"], ["*-grpo-*"]):
        assert command(tmp_path, tmp_path / "all", add=["*-scpo-*", "*-gigpo-*"]) == 0
        before = named_in(tmp_path / "study")
        assert command(tmp_path, laptop, add=patterns) == 0
        assert named_in(tmp_path / "study") == before == in_time
    assert len(collect(tmp_path / "study").by_id) == 9
    assert "no longer" not in capsys.readouterr().out


def test_a_refusal_whose_rows_the_archive_has_not_got_yet_comes_with_their_first_run(laptop_and_cluster, tmp_path):
    laptop, cluster = laptop_and_cluster
    assert command(tmp_path, cluster, add=["*-grpo-*"]) == 0
    assert command(tmp_path, laptop, add=["*-grpo-*"]) == 0
    assert named_in(tmp_path / "study") == ([("scpo", "gigpo"), ("gigpo", "grpo")], [])
    assert command(tmp_path, laptop, add=["*-scpo-s1-*"]) == 0
    assert named_in(tmp_path / "study") == ([("gigpo", "grpo")], [("gigpo", "scpo")])


def test_a_comparison_named_in_time_stays_so_where_the_archive_had_one_of_its_rows(runs, tmp_path):
    refuse(runs, [], [])
    assert command(tmp_path, runs, add=["*-scpo-*"]) == 0
    write_study(tmp_path / "again", EXPERIMENTS, CURVES, credit=CREDIT, seeds=range(4))
    assert command(tmp_path, tmp_path / "again") == 0
    assert named_in(tmp_path / "study") == ([("scpo", "gigpo"), ("gigpo", "grpo")], [])


def test_a_record_that_takes_a_comparison_out_leaves_it_in_an_archive_with_its_results(runs, tmp_path):
    assert command(tmp_path, runs, add=["*-gigpo-*", "*-scpo-*"]) == 0
    write_study(tmp_path / "again", EXPERIMENTS, CURVES, credit=CREDIT, seeds=range(4))
    refuse(tmp_path / "again", [("gigpo", "grpo")], [])
    assert command(tmp_path, tmp_path / "again", add=["*-grpo-*"]) == 0
    assert sorted(named_in(tmp_path / "study")[0]) == [("gigpo", "grpo"), ("scpo", "gigpo")]


UNNAMED = "of a comparison that their record does not name, and another record does: main_table, scpo − gigpo (seed"


@pytest.mark.parametrize("first", [0, 1])
def test_runs_of_a_comparison_that_their_record_does_not_name_are_not_pooled(runs, tmp_path, first, capsys):
    """Their seeds may be why the other record named it; in the archive they would be pairs of its test."""
    without = tmp_path / "without"
    write_study(without, EXPERIMENTS, CURVES, credit=CREDIT, seeds=(3, 4))
    refuse(without, [("gigpo", "grpo")], [])
    folders = [runs, without]
    for both in (folders, folders[::-1]):
        words = ("--runs", str(both[1]), "--create", "--allow-uncommitted")
        assert command(tmp_path, both[0], words=words) == 1
        assert UNNAMED in " ".join(capsys.readouterr().out.split())
    assert not (tmp_path / "study").exists()

    assert command(tmp_path, folders[first]) == 0
    capsys.readouterr()
    assert command(tmp_path, folders[1 - first]) == (0 if first else 1)
    text = " ".join(capsys.readouterr().out.split())
    if first:
        # The archive had their runs before it was named: it is late.
        assert named_in(tmp_path / "study") == ([("gigpo", "grpo")], [("scpo", "gigpo")])
        assert "main_table: named after results, and so not tested: scpo − gigpo" in text
    else:
        assert UNNAMED in text


def test_nor_are_they_if_they_come_row_by_row(runs, tmp_path, capsys):
    without = tmp_path / "without"
    write_study(without, EXPERIMENTS, CURVES, credit=CREDIT, seeds=(3, 4))
    refuse(without, [("gigpo", "grpo")], [])
    assert command(tmp_path, runs) == 0
    assert command(tmp_path, without, add=["*-scpo-*"]) == 0
    capsys.readouterr()
    assert command(tmp_path, without, add=["*-gigpo-*"]) == 1
    assert f"{UNNAMED}s 3, 4)" in " ".join(capsys.readouterr().out.split())


def test_a_comparison_that_was_taken_out_before_its_results_is_no_test_of_the_archive(runs, tmp_path):
    assert command(tmp_path, runs, add=["*-grpo-*"]) == 0
    refuse(runs, [("gigpo", "grpo")], [])
    assert command(tmp_path, runs) == 0
    assert named_in(tmp_path / "study") == ([("gigpo", "grpo")], [])


def test_a_source_that_names_nothing_takes_no_comparison_from_another(runs, tmp_path):
    silent = tmp_path / "silent"
    write_study(silent, EXPERIMENTS, CURVES, credit=CREDIT, seeds=(7,))
    refuse(silent, [], [])
    both = [("scpo", "gigpo"), ("gigpo", "grpo")]
    for first, second in ((runs, silent), (silent, runs)):
        archive = tmp_path / "study"
        shutil.rmtree(archive, ignore_errors=True)
        words = ("--runs", str(second), "--create", "--allow-uncommitted")
        assert command(tmp_path, first, add=["*-s0-*", "*-s1-*", "*-grpo-s7-*"], words=words) == 0
        assert sorted(named_in(archive)[0]) == sorted(both)


def test_sources_with_different_measures_are_refused(runs, tmp_path, capsys):
    other = tmp_path / "other"
    write_study(other, EXPERIMENTS, CURVES, credit=CREDIT, seeds=(7, 8))
    path = other / "experiments" / "main_table-study.json"
    record = json.loads(path.read_text())
    write_json(path, record | {"primary": record["primary"] | {"measure": "last_success"}})
    words = ("--runs", str(other), "--create", "--allow-uncommitted")
    assert command(tmp_path, runs, words=words) == 1
    told = "main_table: one record names its comparisons by validation_area, another by last_success"
    assert told in " ".join(capsys.readouterr().out.split())
    # Pairs that were seen under the archive's measure may be why they were named by another one.
    assert command(tmp_path, runs) == 0
    capsys.readouterr()
    assert command(tmp_path, other) == 1
    assert "(seeds 7, 8)" in " ".join(capsys.readouterr().out.split())


def test_runs_of_other_settings_on_other_seeds_do_not_come_into_a_row(runs, tmp_path, monkeypatch, capsys):
    assert command(tmp_path, runs) == 0
    changed = {**OVERRIDES, "scpo": ("method=scpo", "trainer.optimizer.learning_rate=3.0e-3")}
    monkeypatch.setattr("tests.support.study_runs.OVERRIDES", changed)
    write_study(tmp_path / "other", EXPERIMENTS, CURVES, credit=CREDIT, seeds=(5, 6))
    before = files_of(tmp_path / "study")
    assert command(tmp_path, tmp_path / "other") == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "a row has one configuration, and with the added runs would have several: main_table, scpo, alfworld" in text
    assert "learning_rate=0.003 (2 runs)" in text
    assert files_of(tmp_path / "study") == before


@pytest.mark.parametrize("archived", [None, [], [("scpo", "gigpo")]], ids=["none", "without it", "with it"])
def test_a_comparison_whose_measure_was_changed_after_its_results_is_still_tested(runs, tmp_path, archived, capsys):
    """It is late by the new measure, and withdrawn by the earlier one: still a test of the family."""
    pairs = [("scpo", "gigpo"), ("gigpo", "grpo")]
    if archived is not None:
        refuse(runs, archived, [])
        assert command(tmp_path, runs, add=["*-grpo-*"]) == 0
    refuse(runs, pairs, pairs)
    path = runs / "experiments" / "main_table-study.json"
    write_json(path, json.loads(path.read_text()) | {"withdrawn": pairs})
    assert named_in(runs) == (pairs, pairs)
    for _ in range(2):
        assert command(tmp_path, runs) == 0
        named, late = named_in(tmp_path / "study")
        assert (sorted(named), sorted(late)) == (sorted(pairs), sorted(pairs))
    assert "no longer" not in capsys.readouterr().out


def test_superseded_comparisons_come_into_the_archive_and_stay_there(runs, tmp_path):
    place = {"measure": "validation_area", "env": "alfworld", "model": "choice"}
    former = place | {"rows": ["scpo", "gigpo"], "settings": ["before", "gigpo"]}
    path = runs / "experiments" / "main_table-study.json"
    write_json(path, json.loads(path.read_text()) | {"superseded": [former]})
    assert command(tmp_path, runs) == 0
    write_study(tmp_path / "again", EXPERIMENTS, CURVES, credit=CREDIT, seeds=range(4))
    for folder in (tmp_path / "again", runs):
        assert command(tmp_path, folder) == 0
        (record,) = (one for one in collect(tmp_path / "study").experiments if one.experiment == "main_table")
        assert [comparison.settings for comparison in record.superseded] == [("before", "gigpo")]


def test_nor_do_runs_that_the_archive_has_under_another_experiment(runs, tmp_path, capsys):
    other = tmp_path / "other"
    write_study(other, {"other": ("chronological",)}, {"chronological": CURVES["scpo"]}, primary={}, seeds=(5, 6))
    assert command(tmp_path, runs) == 0
    assert command(tmp_path, other) == 0
    (row,) = json.loads((other / "experiments" / "other-study.json").read_text())["rows"]
    path = runs / "experiments" / "main_table-study.json"
    record = json.loads(path.read_text())
    for known in record["rows"]:
        known["runs"] += row["runs"] if known["name"] == "scpo" else []
    write_json(path, record)
    capsys.readouterr()
    assert command(tmp_path, runs) == 1
    assert "with the added runs would have several: main_table, scpo, alfworld" in " ".join(
        capsys.readouterr().out.split()
    )


def test_a_new_experiment_whose_runs_the_archive_had_is_named_with_its_comparisons(runs, tmp_path, capsys):
    assert command(tmp_path, runs) == 0
    capsys.readouterr()
    mine = {"mine": (("scpo", "grpo"),)}
    write_study(tmp_path / "again", {"mine": ("scpo", "grpo")}, CURVES, credit=CREDIT, primary=mine)
    assert command(tmp_path, tmp_path / "again") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "note mine: now named: scpo − grpo; its runs were in the archive before: scpo − grpo" in text


def test_a_planned_run_that_never_finished_gives_way_to_one_of_other_settings(runs, tmp_path, monkeypatch):
    """A rate that is chosen later changes the runs of a row that had none yet."""
    for folder in runs.glob("*-scpo-s*"):
        write_json(folder / "status.json", {"state": "PENDING", "step": 0, "steps": 40, "commit": None})
    assert command(tmp_path, runs) == 0
    changed = {**OVERRIDES, "scpo": ("method=scpo", "trainer.optimizer.learning_rate=3.0e-3")}
    monkeypatch.setattr("tests.support.study_runs.OVERRIDES", changed)
    write_study(tmp_path / "other", EXPERIMENTS, CURVES)
    assert command(tmp_path, tmp_path / "other") == 0
    found = collect(tmp_path / "study")
    rates = {run.config["trainer"]["optimizer"]["learning_rate"] for run in found.by_id.values() if "-scpo-" in run.id}
    assert rates == {3.0e-3}
    planned = {run.id for record in found.experiments for row in record.rows for run in row.runs}
    assert planned == set(found.by_id)


def test_runs_that_the_experiment_no_longer_plans_are_not_added(runs, tmp_path, monkeypatch):
    """They may finish after the archive planned them, and before the row got other settings."""
    unfinished = {}
    for folder in runs.glob("*-scpo-s*"):
        unfinished[folder] = (folder / "status.json").read_bytes()
        write_json(folder / "status.json", {"state": "PENDING", "step": 0, "steps": 40, "commit": None})
    assert command(tmp_path, runs) == 0

    for folder, status in unfinished.items():
        (folder / "status.json").write_bytes(status)
    changed = {**OVERRIDES, "scpo": ("method=scpo", "trainer.optimizer.learning_rate=3.0e-3")}
    monkeypatch.setattr("tests.support.study_runs.OVERRIDES", changed)
    write_study(runs, EXPERIMENTS, CURVES)
    assert command(tmp_path, runs) == 0
    found = collect(tmp_path / "study").by_id.values()
    rates = {run.config["trainer"]["optimizer"]["learning_rate"] for run in found if "-scpo-" in run.id}
    assert rates == {3.0e-3}


def test_another_run_of_the_same_row_and_seed_is_refused(runs, tmp_path, capsys, monkeypatch):
    command(tmp_path, runs)
    before = files_of(tmp_path / "study")
    changed = {**OVERRIDES, "scpo": ("method=scpo", "trainer.groups=4")}
    monkeypatch.setattr("tests.support.study_runs.OVERRIDES", changed)
    write_study(tmp_path / "other", EXPERIMENTS, CURVES)
    assert command(tmp_path, tmp_path / "other") == 1
    assert "another run of the same row and seed, and never loses one" in " ".join(capsys.readouterr().out.split())
    assert files_of(tmp_path / "study") == before


def test_a_lost_record_of_an_experiment_changes_no_archive(runs, tmp_path, capsys):
    command(tmp_path, runs)
    before = files_of(tmp_path / "study"), page_of(tmp_path)
    (runs / "experiments" / "main_table-study.json").write_bytes(b"{")
    assert command(tmp_path, runs) == 0
    assert "not an experiment record" in capsys.readouterr().out
    assert (files_of(tmp_path / "study"), page_of(tmp_path)) == before


def test_runs_of_a_folder_without_records_are_added_where_the_archive_plans_them(runs, tmp_path, capsys):
    command(tmp_path, runs, add=("*-gigpo-*",))
    shutil.rmtree(runs / "experiments")
    assert command(tmp_path, runs, add=("*-scpo-*",)) == 0
    assert "add main_table, scpo, alfworld: seeds 0, 1, 2" in capsys.readouterr().out
    assert len(collect(tmp_path / "study").by_id) == 6


def test_the_archive_of_the_other_study_is_refused_and_no_page_is_emptied(runs, tmp_path, capsys):
    command(tmp_path, runs)
    (tmp_path / "meaning.md").write_text("results")
    words = ["--archive", str(tmp_path / "study"), "--page", str(tmp_path / "meaning.md")]
    assert main(["meaning", *words]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "no experiment of this page, only main_table" in said
    assert "`python -m analysis study` writes the page of these" in said
    assert (tmp_path / "meaning.md").read_text() == "results"


def test_an_archive_that_lost_its_index_is_not_written_anew(runs, tmp_path, capsys):
    command(tmp_path, runs)
    (tmp_path / "study" / INDEX).unlink()
    before = files_of(tmp_path / "study")
    assert command(tmp_path, runs, add=("*-gigpo-*",)) == 1
    assert f"{INDEX} is missing). Restore its files" in " ".join(capsys.readouterr().out.split())
    assert files_of(tmp_path / "study") == before


def damage(path):
    """Flip a bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def test_a_damaged_local_copy_takes_no_run_out_of_the_archive(runs, tmp_path, capsys):
    command(tmp_path, runs)
    before = files_of(tmp_path / "study")
    path = next(runs.glob("*-scpo-s1-*")) / "metrics.jsonl"
    path.write_text(path.read_text().replace('"step": 7,', '"step": 8,'))
    for path in runs.glob("*-gigpo-s0-*/metrics.jsonl"):
        path.write_text("")
    assert command(tmp_path, runs) == 0
    assert files_of(tmp_path / "study") == before
    assert capsys.readouterr().out.count("left out") == 2


def test_a_damaged_archive_writes_no_page_and_is_repaired_by_adding_its_runs(runs, tmp_path, capsys):
    command(tmp_path, runs)
    before = files_of(tmp_path)
    damage(tmp_path / "study" / METRICS)
    hurt = files_of(tmp_path)
    assert command(tmp_path) == 1
    assert "is damaged, nothing was written" in " ".join(capsys.readouterr().out.split())
    assert command(tmp_path, runs, add=("*-scpo-*",)) == 1  # the others would be lost
    assert "nothing was added, the archive is damaged" in " ".join(capsys.readouterr().out.split())
    assert files_of(tmp_path) == hurt
    assert command(tmp_path, runs) == 0
    assert "9 to repair" in capsys.readouterr().out
    assert files_of(tmp_path) == before


def test_the_page_names_the_sweep_of_learning_rates_and_claims_no_rate_of_other_rows(tmp_path):
    write_study(tmp_path, EXPERIMENTS, CURVES)
    assert "of a sweep" not in page(collect(tmp_path).at_scale("study"), ())
    rows = []
    for rate, end in (("1.0e-3", 0.7), ("2.0e-3", 0.9)):
        words = (f"trainer.optimizer.learning_rate={rate}",)
        tuning = [write_study_run(tmp_path, "gigpo", seed, rising(end), overrides=words) for seed in (100, 101)]
        rows.append({"name": f"gigpo_lr_{rate[0]}e_3", "label": f"GiGPO, {rate}", "runs": tuning})
    record = {"experiment": "learning_rates", "title": "Rates", "scale": "study", "rows": rows}
    write_json(tmp_path / "experiments" / "learning_rates-study.json", record)
    text = page(collect(tmp_path).at_scale("study"), ())
    sweep = (
        "The learning rate of 1 method or variant is the best of a sweep on ALFWorld, on seeds 100, 101, which no other"
    )
    assert f"{sweep} row has; rows may train at another one, and the last table has each row's." in text
    limits = (
        " The sweep has rates of 1e-3 to 2e-3, on 2 seeds each. 2e-3, at the edge of the sweep, is best for 1 of the "
        "1 (GiGPO), and rates beyond it were not run."
    )
    assert f"the last table has each row's.{limits}" in text
    assert "The sweep also has" not in text
    assert "The marked rate is that of the method's row in the main table" in text
    assert "Curves, and the differences beside them, are of the finished seeds of one experiment;" in text
