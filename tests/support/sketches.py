"""Drawings in a third of their time, for tests of what lies around them: no layout, whole fonts, coarse pixels."""

from analysis.rendering import style


def sketch(monkeypatch):
    """The real figures, drawn plainly till ``monkeypatch`` is undone."""
    monkeypatch.setitem(style.STYLE, "figure.constrained_layout.use", False)
    monkeypatch.setitem(style.STYLE, "pdf.fonttype", 3)  # whole glyphs as paths; 42 has fontTools cut a font
    monkeypatch.setattr(style, "PNG_DPI", 60)
