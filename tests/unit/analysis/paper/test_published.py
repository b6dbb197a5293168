"""The published CSVs against the paper's LaTeX, value by value."""

import csv
import hashlib
import re
from pathlib import Path

import pytest

from tests.support.data_folders import shared

ROOT = Path(__file__).parents[4]
PAPER = shared("paper", "scpo.tex")
needs_paper = pytest.mark.skipif(
    PAPER is None, reason="needs the paper's LaTeX: put scpo.tex into ../shared/paper, beside the checkout"
)
# Of the files that these tests compared with the paper: where its LaTeX is not, they may not change unseen.
COMPARED = {
    "ablation": "94bb9e620691638868d29a98b9a37c59a29694b1db8d913ba816bc7d7ccc9971",
    "cost": "b025320ef8ac88e5c14b29c39e3cecfa7ab48c16e96d3468ba1daf8e0fac450a",
    "credit": "2415f8898c952873bcd649e7ad081228e26a9a6a6dd05b41f90538a6cbcee5bc",
    "main": "bc2def56a61bce05e0d9d4d4ad15f2452396ab913f54c3a1ba2373c2c1d030c0",
}
NUMBER = re.compile(r"^(?:\\textbf\{)?([\d.]+)\}?(?:\$_\{\\pm ([\d.]+)\}\$)?$")
VARIANTS = {
    r"\textbf{SCPO} \emph{(default)}": "scpo",
    r"\quad chronological order": "chronological",
    r"\quad $-$ monotonicity": "no_monotonicity",
    r"\quad shortest reference": "shortest_reference",
}
ALFWORLD = ("Pick", "Look", "Clean", "Heat", "Cool", "Pick2", "All")
STAGES = ("scoring", "self_similarity", "text", "matching", "accumulation", "metrics")
# Prose: file, place, the line's distinguishing values, and where its number stands in the paper.
COST = {
    (
        "SCPO",
        "1.5B",
        "ALFWorld",
        "all stages",
        "sum of medians",
        "app:cost-detail",
    ): r"sum to \$\{\\approx\}([\d.]+)\$\\,s",
    ("SCPO", "1.5B", "ALFWorld", "added per training step", "mean", "app:cost-detail"): r"the \$([\d.]+)\$\\,s figure",
    (
        "SCPO",
        "1.5B",
        "ALFWorld",
        "added per training step",
        "mean",
        "sec:exp-cost",
    ): r"SCPO adds \$([\d.]+)\$s per training",
    ("SCPO", "1.5B", "ALFWorld", "added per training step", "share", "sec:exp-cost"): r"\(\$([\d.]+)\\%\$ overhead\)",
    (
        "SCPO",
        "1.5B",
        "ALFWorld",
        "added per training step",
        "rounded share",
        "app:hardware",
    ): r"adds only \$\{\\approx\}(\d+)\\%",
    ("GiGPO", "1.5B", "ALFWorld", "peak GPU memory", "peak", "sec:exp-cost"): r"memory from \$([\d.]+)\$GB",
    ("SCPO", "1.5B", "ALFWorld", "peak GPU memory", "peak", "sec:exp-cost"): r"GB to \$([\d.]+)\$GB",
    ("SCPO", "1.5B", "ALFWorld", "run", "approximate", "app:hardware"): r"takes approximately \$(\d+)\$\\,h \(ALF",
    (
        "SCPO",
        "1.5B",
        "WebShop",
        "run",
        "approximate",
        "app:hardware",
    ): r"\(ALFWorld\) and \$(\d+)\$\\,h \(WebShop\) with Qwen2.5-1",
    ("SCPO", "7B", "ALFWorld", "run", "approximate", "app:hardware"): r"and approximately \$(\d+)\$\\,h \(ALF",
    (
        "SCPO",
        "7B",
        "WebShop",
        "run",
        "approximate",
        "app:hardware",
    ): r"\(ALFWorld\) and \$(\d+)\$\\,h \(WebShop\) with Qwen2.5-7",
    ("SCPO", "all", "all", "all runs", "order of magnitude", "app:hardware"): r"order of \$([\d{},]+)\$ GPU-hours",
    ("SCPO", "all", "all", "GPUs of a run", "count", "app:hardware"): r"single node with \$(\d)\\times\$NVIDIA",
}
STEPS, AUXILIARY = "credited steps per failed trajectory", "mean auxiliary reward"
WINDOW, DISTANCE = "mean over steps 20-150", "distance to the nearest success step"
CREDIT = {
    ("scpo", STEPS, WINDOW): r"\(\$([\d.]+)\$ vs.\\ \$[\d.]+\$ steps per failed",
    ("chronological", STEPS, WINDOW): r"vs.\\ \$([\d.]+)\$ steps per failed",
    ("scpo", AUXILIARY, WINDOW): r"and \$([\d.]+)\$ vs.\\ \$[\d.]+\$ mean auxiliary reward over steps \$20\$--\$150\$",
    ("chronological", AUXILIARY, WINDOW): r"vs.\\ \$([\d.]+)\$ mean auxiliary reward over",
    ("scpo", AUXILIARY, "approximate"): r"mean auxiliary reward \$\{\\approx\}([\d.]+)\$",
    ("scpo minus chronological", "All", "difference"): r"mirroring its \$\+([\d.]+)\$ advantage",
    ("all", "moving average", "window"): r"\$(\d)\$-step moving average",
    ("all", "step strings", "count"): r"embed \$([\d{},]+)\$ step strings",
    ("all", "early-training batches", "count"): r"sampled from (five) early-training",
    ("credited", DISTANCE, "median"): r"successful-sibling step is \$([\d.]+)\$",
    ("credited", "exact matches", "share"): r"\(\$(\d+)\\%\$ are exact",
    ("uncredited", DISTANCE, "median"): r"matches\) versus \$([\d.]+)\$ for non-credited",
    ("credited", f"{DISTANCE}, non-exact", "median"): r"the medians are \$([\d.]+)\$",
    ("uncredited", f"{DISTANCE}, non-exact", "median"): r"the medians are \$[\d.]+\$ versus \$([\d.]+)\$",
    ("uncredited over credited", f"{DISTANCE}, non-exact", "ratio of medians"): r"\(\$([\d.]+)\\times\$ larger\)",
}


def read(name):
    with (ROOT / "paper_figures" / "published" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def table_rows(label, width):
    """The rows of the table with this label that have ``width`` cells, and the section headings between them."""
    end = PAPER.read_text(encoding="utf-8").split(rf"\label{{{label}}}")[0]
    body = end[max(end.rfind(r"\begin{table}"), end.rfind(r"\begin{table*}")) :]
    rows = [re.sub(r"\\\\.*$", "", line.strip()).split("&") for line in body.splitlines()]
    return [[cell.strip() for cell in row] for row in rows if len(row) == width or r"\multicolumn{11}" in row[0]]


def prose_number(pattern):
    found = set(re.findall(pattern, PAPER.read_text(encoding="utf-8")))
    assert len(found) == 1, (pattern, found)
    return found.pop().replace("{,}", "").replace(",", "").replace("five", "5")


@needs_paper
def test_the_main_table_value_by_value():
    printed, size = {}, None
    for row in table_rows("tab:main", 11):
        if len(row) == 1:
            size = "closed" if "Closed" in row[0] else re.search(r"Qwen2\.5-(.+?)-Instruct", row[0])[1]
        elif size:
            method = re.match(r"(?:\\textbf\{)?([\w.-]+)", row[1])[1]
            for column, cell in zip((*ALFWORLD, "Score", "Succ"), row[2:], strict=True):
                if cell != "--":
                    mean, std = NUMBER.match(cell).groups()
                    printed[size, row[0], method, column] = mean, std or "", "yes" if "{*}" in row[1] else "no"
    lines = read("main")
    stored = {
        (line["size"], line["type"], line["method"], line["column"]): (line["mean"], line["std"], line["quoted"])
        for line in lines
    }
    assert stored == printed
    assert len(lines) == len(stored) == 204
    assert all(line["env"] == ("WebShop" if line["column"] in ("Score", "Succ") else "ALFWorld") for line in lines)


@needs_paper
def test_the_ablation_table_value_by_value():
    printed = {}
    for variant, *cells in table_rows("tab:abl-kmp", 8)[1:]:
        for column, cell in zip(ALFWORLD, cells, strict=True):
            mean, std = NUMBER.match(cell).groups()
            printed[VARIANTS[variant], column] = mean, std
    stored = {
        (line["variant"], line["column"]): (line["mean"], line["std"]) for line in read("ablation") if line["std"]
    }
    assert stored == printed
    assert len(printed) == 28


@needs_paper
@pytest.mark.parametrize(
    ("variant", "pattern"),
    [
        ("chronological", r"outperforms chronological matching by \$\+([\d.]+)\$ points"),
        ("no_monotonicity", r"to \$90.1\$ \(\$-([\d.]+)\$ relative"),
        ("shortest_reference", r"to \$91.7\$ \(\$-([\d.]+)\$ relative"),
    ],
)
def test_differences_to_the_default(variant, pattern):
    (line,) = (
        line for line in read("ablation") if line["variant"] == variant and line["column"] == "All minus default"
    )
    assert line["mean"] == f"-{prose_number(pattern)}"


@needs_paper
def test_the_timing_table_value_by_value():
    printed = {}
    for stage, (_, median, share) in zip(STAGES, table_rows("tab:cost-skmp", 3)[1:], strict=True):
        printed[stage, "median"], printed[stage, "share"] = median, share.removesuffix(r"\%")
    lines = [line for line in read("cost") if line["place"] == "tab:cost-skmp"]
    assert {(line["column"], line["statistic"]): line["mean"] for line in lines} == printed


@needs_paper
def test_the_prose_on_cost_value_by_value():
    keys = ("method", "size", "env", "column", "statistic", "place")
    stored = {
        tuple(line[key] for key in keys): line["mean"] for line in read("cost") if line["place"] != "tab:cost-skmp"
    }
    assert stored == {key: prose_number(pattern) for key, pattern in COST.items()}


@needs_paper
def test_the_prose_on_credit_value_by_value():
    stored = {(line["variant"], line["column"], line["statistic"]): line["mean"] for line in read("credit")}
    assert stored == {key: prose_number(pattern) for key, pattern in CREDIT.items()}


@needs_paper
def test_every_place_exists_in_the_paper():
    text = PAPER.read_text(encoding="utf-8")
    places = {line["place"] for name in COMPARED for line in read(name)}
    assert all(rf"\label{{{place}}}" in text for place in places)


@pytest.mark.parametrize("name", COMPARED)
def test_the_numbers_are_those_that_were_compared_with_the_paper(name):
    content = (ROOT / "paper_figures" / "published" / f"{name}.csv").read_bytes()
    assert hashlib.sha256(content).hexdigest() == COMPARED[name]


@pytest.mark.parametrize("name", COMPARED)
def test_every_number_says_what_it_is(name):
    for line in read(name):
        assert {"size", "column", "mean", "std", "quoted", "place"} <= set(line)
        assert line.get("method") or line.get("variant")
        assert line["quoted"] in ("yes", "no")
        float(line["mean"])
