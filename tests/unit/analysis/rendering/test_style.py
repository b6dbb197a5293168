import subprocess
import sys

import matplotlib as mpl
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.rendering.style import (
    COLUMN_WIDTH,
    PAGE_WIDTH,
    STYLE,
    FigureSizeError,
    Look,
    drawn_as,
    figure_files,
    house_style,
    legend_below,
    legible,
    new_figure,
    palette,
    read_size,
    read_style,
)
from scpo.errors import ConfigError
from tests.support.run_records import ROOT


def test_the_last_bit_of_a_transform_changes_no_pixel():
    def drawn(noise):
        figure = Figure(figsize=(2, 2))
        axis = figure.subplots()
        axis.plot([0, 0.3, 1], [0, 0.7, 1], "--o")
        axis.scatter([0.2, 0.4], [0.3, 0.1])
        axis.set_position([0.1 + noise, 0.1, 0.8, 0.8])
        return figure_files(figure)["png"]

    assert drawn(0) == drawn(1e-15)
    assert drawn(0) != drawn(1e-2)


def test_size_font_and_formats_are_those_that_were_chosen():
    look = Look(width=5, height=3, font_size=11, formats=("svg",))
    with drawn_as(look), house_style():
        figure = new_figure(COLUMN_WIDTH, 2)
        axis = figure.subplots()
        axis.set_title("a")
        files = figure_files(figure)
    assert tuple(figure.get_size_inches()) == (5, 3)
    assert axis.title.get_fontsize() == 11
    assert set(files) == {"svg"}
    assert b"<dc:date>" not in files["svg"]


def test_coloured_text_is_dark_enough_on_white():
    assert legible("#000000") == (0, 0, 0)
    pale = legible("#F0CA9E")
    assert pale[0] < 0.75
    assert pale[0] / pale[2] == pytest.approx(0xF0 / 0x9E)
    assert legible("#767676") == pytest.approx((0x76 / 255,) * 3)  # the lightest grey with a contrast of 4.5
    assert legible("#777777")[0] < 0x77 / 255


def test_a_larger_font_makes_a_figure_higher_and_not_wider():
    with drawn_as(Look(font_size=16)), house_style():
        assert tuple(new_figure(COLUMN_WIDTH, 2).get_size_inches()) == (COLUMN_WIDTH, 4)


def test_a_style_file_changes_settings_and_the_palette(tmp_path):
    style = tmp_path / "journal.mplstyle"
    style.write_text("font.size: 9\naxes.grid: False\naxes.prop_cycle: cycler('color', ['112233', 'abcdef'])\n")
    with drawn_as(Look(style=read_style(str(style)))), house_style():
        assert mpl.rcParams["font.size"] == 9
        assert not mpl.rcParams["axes.grid"]
        assert mpl.rcParams["lines.linewidth"] == STYLE["lines.linewidth"]  # not named in the file
        assert [to_hex(color) for color in palette()] == ["#112233", "#abcdef"]
    assert palette() == ()


def test_a_style_is_read_in_a_process_that_has_not_loaded_pyplot():
    code = "from analysis.rendering.style import read_style; print(len(read_style('ggplot')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 5


@pytest.mark.parametrize(("size", "wanted"), [("column", (3.25, None)), ("page", (6.75, None)), ("5x2.5", (5, 2.5))])
def test_sizes_have_names_or_numbers(size, wanted):
    assert read_size(size) == wanted


@pytest.mark.parametrize("size", ["wide", "5", "0x3", "5x", "nanx2", "100x3"])
def test_a_size_that_is_none_is_refused(size):
    with pytest.raises(ConfigError, match="WIDTHxHEIGHT in inches"):
        read_size(size)


def test_a_style_that_is_none_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="there is no such file"):
        read_style("nowhere.mplstyle")
    broken = tmp_path / "broken.mplstyle"
    broken.write_text("font.size: huge\n")
    with pytest.raises(ConfigError, match=r"broken.mplstyle cannot be read"):
        read_style(str(broken))


def test_a_figure_whose_labels_leave_no_room_for_its_panels_is_refused():
    with house_style():
        figure = new_figure(1.0, 1.0)
        for axis in figure.subplots(1, 3):
            axis.set_ylabel("a label that is as wide as the figure\n" * 4)
    with pytest.raises(ConfigError, match="no room for its panels at 1 x 1 inches"):
        figure_files(figure)


def labelled(title, *, annotation="", limit=1):
    with house_style():
        figure = new_figure(COLUMN_WIDTH, 2)
        axis = figure.subplots()
        axis.plot([0, limit], [0, 1])
        axis.set_title(title)
        axis.text(3 * limit, 0.5, annotation, clip_on=True)
        axis.set_xlim(0, 0.9 * limit)  # the tick at `limit` is kept, and not drawn
    return figure


def test_a_text_that_the_edge_would_cut_is_refused_by_name():
    with pytest.raises(FigureSizeError, match=r"at 3.25 x 2 inches its edge cuts off the text 'success success .*'"):
        figure_files(labelled(12 * "success "))


@pytest.mark.parametrize("limit", [1, 100])
def test_texts_that_are_hidden_on_purpose_are_not_cut(limit):
    assert figure_files(labelled("success", annotation="beyond the panel", limit=limit))


@pytest.mark.parametrize("count", range(2, 13))
def test_a_legend_of_names_in_capitals_fits_into_the_page(count):
    labels = ["PPO", "RLOO", "GRPO", "DAPO†", "EMPG", "GIGPO", "HCAPO", "HGPO", "G2PO", "SCPO", "CRBC", "GAGPO"][:count]
    with house_style():
        figure = new_figure(PAGE_WIDTH, 2.5)
        figure.subplots()
        legend_below(figure, [Line2D([], [], label=label) for label in labels], labels, handlelength=3.2)
    assert "png" in figure_files(figure)


def test_the_gallery_names_the_figures_of_a_columns_width():
    narrow = []
    for path in sorted((ROOT / "analysis" / "figures").glob("fig_*.py")):
        source = path.read_text()
        if "canvas_width(COLUMN_WIDTH)" in source or "step_planes" in source:
            narrow.append(f"`{path.stem}`")
    text = (ROOT / "docs" / "gallery.md").read_text()
    assert f"Drawn at 3.25 inches: {', '.join(narrow)}, and `fig_credit_heatmap` of one checkpoint; the others" in text
