"""Figures without a display, written atomically."""
from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .files import whole_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(width: float, height: float, **options: Any) -> Figure:
    """A figure in inches with a canvas of its own: no display, and pyplot's state stays untouched.

    Args:
        width, height: in inches.
        options: of matplotlib's ``Figure``; ``layout='constrained'`` by default.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    figure = Figure(figsize=(width, height), **{'layout': 'constrained', **options})
    FigureCanvasAgg(figure)
    return figure


def write_figure(path: str | Path, figure: Figure, dpi: int = 100) -> None:
    """Write a figure as PNG."""
    with whole_file(path) as file:
        figure.savefig(file, format='png', dpi=dpi)


def sparse_ticks(count: int, most: int = 12) -> list[int]:
    """Positions of at most ``most`` ticks among ``count`` cells: the first, and every n-th."""
    return list(range(0, count, -(-count // most)))
