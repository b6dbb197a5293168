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
TRANSFORMS = {"draw_path": (2,), "draw_markers": (2, 4), "draw_path_collection": (1, 5)}
"""Places of the transforms among the arguments of a renderer's methods."""


class DeterministicCanvas(FigureCanvasAgg):  # type: ignore[misc]  # see pyproject.toml
    """An Agg canvas that draws with rounded transforms."""

    def get_renderer(self) -> RendererAgg:
        """A renderer for the figure's present size, always a new one."""
        width, height = self.figure.bbox.size
        self.renderer = RendererAgg(width, height, self.figure.dpi)
        for name, places in TRANSFORMS.items():
            setattr(self.renderer, name, _rounding(getattr(self.renderer, name), places))
        return self.renderer


def _rounding(draw: Callable[..., None], places: tuple[int, ...]) -> Callable[..., None]:
    """The same with the transforms at these places of its arguments rounded."""

    def drawn(*given: Any, **named: Any) -> None:
        draw(*(_rounded(one) if place in places else one for place, one in enumerate(given)), **named)

    return drawn


def _rounded(transform: Any) -> Affine2D:
    return Affine2D(np.round(transform.get_matrix(), DIGITS))
