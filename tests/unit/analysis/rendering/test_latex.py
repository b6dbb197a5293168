import re
import shutil
import subprocess
from dataclasses import replace

import pytest

from analysis.build import builders
from analysis.rendering.latex import escape
from analysis.rendering.style import Drawing
from analysis.rendering.table import Block, Number, Table
from analysis.sources.collect import collect
from analysis.sources.collected import MissingRunsError
from tests.support.run_records import write_experiment, write_groups, write_run

PAGES = {"two columns": ("twocolumn", "16cm"), "one column": ("", "5.5in")}  # ACL's page and NeurIPS's
FAULTS = re.compile(r"^(?:! .*|Overfull .*|Missing character.*|LaTeX Warning: (?!Label|There were).*)$", re.MULTILINE)
PRINTABLE = " ".join(map(chr, range(33, 127)))
FOREIGN = "αβγδεηθλμπρστφωΔΠΣΩ −±→×·‖≥≤∅ “”‘’–—…•®©° éàôñüçÅ ™ｆ％ 中文【】 ąłøß☃\t\n€"
METHODS = ("gigpo", "scpo", "react")
MODELS = {"mini": ("tiny",), "paper": ("qwen2_5_1_5b", "qwen2_5_7b")}
VARIANTS = {
    "theta_08": "method.shaper.theta=0.8",
    "lambda_02": "method.shaper.soft_base=0.2",
    "no_monotonicity": "method.shaper.monotonic=false",
}

needs_pdflatex = pytest.mark.skipif(
    not shutil.which("pdflatex"), reason="needs pdflatex: texlive-latex-base, texlive-latex-recommended"
)


def faults(folder, page, texts):
    """What pdflatex has to say against these files in a document with the packages that the gallery names."""
    options, width = PAGES[page]
    head = [rf"\documentclass[{options}]{{article}}", r"\usepackage{booktabs,graphicx}", rf"\textwidth={width}"]
    lines = [*head, r"\textheight=9in", r"\begin{document}", *texts, r"\end{document}"]
    (folder / "paper.tex").write_text("\n".join(lines))
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    for _ in range(2):  # the second one knows the labels
        subprocess.run(command, cwd=folder, capture_output=True, check=False, timeout=120)
    return FAULTS.findall((folder / "paper.log").read_text(errors="replace"))


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Every table that needs no encoder, and the numbers beside the figures, of both scales."""
    runs_dir = tmp_path_factory.mktemp("runs")
    for scale, models in MODELS.items():
        rows = {
            name: [run(runs_dir, scale, name, f"method={name}", f"model={one}") for one in models] for name in METHODS
        }
        default, first = rows["scpo"][0], f"model={models[0]}"
        rows["scpo"].append(run(runs_dir, scale, "scpo", first, env="webshop"))
        rows["hgpo"] = [run(runs_dir, scale, "hgpo", "method=hgpo", first, steps=9)]  # a setting of its own
        write_experiment(runs_dir, rows, name=f"main_table-{scale}", scale=scale)
        write_groups(runs_dir / default["id"], 5)
        for name, override in VARIANTS.items():
            varied = {"scpo": [default], name: [run(runs_dir, scale, name, override, first)]}
            write_experiment(runs_dir, varied, name=f"{name}-{scale}", scale=scale)
    data = collect(runs_dir)
    return {f"{name}_{scale}": table for scale in data.scales for name, table in tables(data.at_scale(scale))}


def run(runs_dir, scale, name, *overrides, env="alfworld", **settings):
    return write_run(runs_dir, name, scale=scale, overrides=("trainer=local", f"env={env}", *overrides), **settings)


def tables(data):
    for name, build in builders().items():
        try:
            made = build(data)
        except MissingRunsError:
            continue
        if isinstance(made, (Table, Drawing)):
            yield name, made.numbers if isinstance(made, Drawing) else made


def grown(rows, *, repeated=0, widths=()):
    block = Block("block", tuple(rows))
    words = tuple(f"column {i}" for i in range(len(rows[0])))
    return Table(words, (), (block, Block("second", (rows[0],))), "caption", "tab:x", widths=widths, repeated=repeated)


@needs_pdflatex
@pytest.mark.parametrize("page", PAGES)
def test_every_table_goes_into_a_paper_as_it_is(built, tmp_path, page):
    expected = {"tab_main", "tab_beyond", "tab_ablation", "tab_cost", "tab_hparams", "tab_shaper"}
    expected |= {"fig_sensitivity", "fig_profiles", "fig_pipeline", "fig_credit_trend", "fig_learning"}
    assert {f"{name}_{scale}" for name in expected for scale in ("mini", "paper")} <= set(built)
    assert faults(tmp_path, page, [table.tex() for table in built.values()]) == []


@needs_pdflatex
def test_any_text_of_an_environment_is_printed(tmp_path):
    texts = [PRINTABLE, FOREIGN, "[0] first", "* second", "a/very/long/path_of_a_model_without_a_single_space_" * 9]
    rows = [(text, text, Number("-0.5", "0.1")) for text in texts]
    wrapped = Table(("[a]", "b"), ("c",), (Block("[t] | \\", tuple(rows)),), FOREIGN, "tab:x", widths=(0.4, 0.4))
    short = Table(("*a",), ("c",), (Block("t" * 40, (("[b]", Number("1")),)),), PRINTABLE, "tab:y")
    assert faults(tmp_path, "two columns", [wrapped.tex(), short.tex()]) == []


@needs_pdflatex
@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("rows", [5, 200])
def test_a_caption_and_notes_of_any_usual_length_fit_on_the_page(tmp_path, page, rows):
    setting = "trainer.optimizer.learning_rate=0.004 (the others: 0.002). "
    table = grown([(str(i), setting) for i in range(rows)], widths=(0.1, 0.2))
    text = "The rows of the table ran with seeds of their own, as their experiments name them. "
    table = replace(table, words=("row", setting * 3), caption=text * 30, notes=(text * 15,))
    assert faults(tmp_path, page, [table.tex()]) == []


def test_notes_are_at_the_end_of_the_table_and_not_in_its_caption():
    text = replace(grown([(str(i),) for i in range(120)]), notes=("Note: one.", "Note: two.")).tex()
    caption = re.search(r"^\\caption{.*}$", text, re.MULTILINE)[0]
    assert "Note" not in caption
    assert text.count("Note: one. Note: two.") == 1
    assert text.index("Note: one.") > text.rindex("continued.")


def test_control_characters_leave_no_trace_in_the_text():
    assert escape("a\x00b\x1b[31mc\x7f\ud800d") == escape("ab[31mcd")


def test_only_ascii_is_written_and_accents_are_kept():
    text = grown([(FOREIGN,)]).tex()
    assert text.isascii()
    assert r"\'e\`a\^o\~n\"u\c{c}" in text
    assert r"{\texttrademark}f\% ??" in text


def test_a_long_table_is_spread_over_pages_under_one_caption():
    text = grown([(str(i),) for i in range(120)]).tex()
    pages = text.count(r"\begin{table*}")
    assert (pages, text.count(r"\toprule"), text.count("column 0")) == (3, 3, 3)
    assert (text.count(r"\caption"), text.count(r"\label"), text.count(r"Table~\ref{tab:x}, continued.")) == (1, 1, 2)
    assert text.count("block (continued)") == 2
    assert re.findall(r"^\d+", text, re.MULTILINE) == [*map(str, range(120)), "0"]


def test_settings_of_many_runs_are_spread_over_tables_that_repeat_their_names():
    columns = ["name", "paper", *(f"value {i}" for i in range(7))]
    text = grown([tuple(columns)], repeated=2).tex()
    lines = [line for line in text.splitlines() if "name" in line]
    assert [line.count("value") for line in lines] == [3, 3, 3, 3, 1, 1]  # two blocks on each page
    assert r"\begin{tabular}{@{}" + r"p{0.186\textwidth}" * 5 + "@{}}" in text


def test_negative_numbers_have_a_minus_and_no_hyphen():
    made = Table(("a",), ("b",), (Block("t", (("x", Number("-0.5", "0.1")),)),), "c", "tab:x")
    assert r"x & \ensuremath{-}0.5$_{\pm 0.1}$" in made.tex()
    assert "x,-0.5,0.1" in made.csv()
