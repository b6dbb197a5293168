"""Drawings in a third of their time, for tests of what lies around them: no layout, whole fonts, coarse pixels."""

from analysis.build import build_from
from analysis.rendering import style
from analysis.sources.collect import collect


def sketch(monkeypatch):
    """The real figures, drawn plainly till ``monkeypatch`` is undone."""
    monkeypatch.setitem(style.STYLE, "figure.constrained_layout.use", False)
    monkeypatch.setitem(style.STYLE, "pdf.fonttype", 3)  # whole glyphs as paths; 42 has fontTools cut a font
    monkeypatch.setattr(style, "PNG_DPI", 60)


def build_all(folder, out):
    """Collect a folder of runs and write every output into ``out``."""
    return build_from(collect(folder), out)
