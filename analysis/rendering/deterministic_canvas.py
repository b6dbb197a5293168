"""Rendering to pixels with the same bytes every time.

Matplotlib multiplies its transforms with BLAS, whose last bit depends on where in memory the matrices happen to lie.
A vertex on the edge of a subpixel then falls on this side or that one, and a PNG differs in the shade of some pixels.
Matrices are therefore rounded before anything is drawn. Vector formats round to 6 digits themselves.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.transforms import Affine2D

DIGITS = 6  # of a pixel: far below what can be seen, far above the last bit


class DeterministicCanvas(FigureCanvasAgg):  # type: ignore[misc]  # see pyproject.toml
    """An Agg canvas that draws with rounded transforms."""

    def get_renderer(self) -> RendererAgg:
        """A renderer for the figure's present size, always a new one."""
        width, height = self.figure.bbox.size
        self.renderer = _RoundingRenderer(width, height, self.figure.dpi)
        self.renderer.draw_markers = _rounded_markers(self.renderer.draw_markers)
        self.renderer.draw_path_collection = _rounded_collection(self.renderer.draw_path_collection)
        return self.renderer


class _RoundingRenderer(RendererAgg):  # type: ignore[misc]
    def draw_path(self, gc: Any, path: Any, transform: Any, rgbFace: Any = None) -> None:
        super().draw_path(gc, path, _rounded(transform), rgbFace)


def _rounded_markers(draw: Callable[..., None]) -> Callable[..., None]:
    def markers(gc: Any, marker: Any, own: Any, path: Any, shift: Any, *rest: Any) -> None:
        draw(gc, marker, _rounded(own), path, _rounded(shift), *rest)

    return markers


def _rounded_collection(draw: Callable[..., None]) -> Callable[..., None]:
    def collection(gc: Any, transform: Any, *rest: Any) -> None:
        *items, shift = rest[:4]  # paths, their transforms, offsets; and the transform of the offsets
        draw(gc, _rounded(transform), *items, _rounded(shift), *rest[4:])

    return collection


def _rounded(transform: Any) -> Affine2D:
    return Affine2D(np.round(transform.get_matrix(), DIGITS))
