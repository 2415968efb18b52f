"""Matplotlib figures without a display, written atomically."""
from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .files import whole_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(width: float, height: float, **options: Any) -> Figure:
    """Create a figure with its own canvas. It needs no display and does not change pyplot's state.

    Args:
        width, height: in inches.
        options: passed to matplotlib's ``Figure``; ``layout`` defaults to ``'constrained'``.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    figure = Figure(figsize=(width, height), **{'layout': 'constrained', **options})
    FigureCanvasAgg(figure)
    return figure


def write_figure(path: str | Path, figure: Figure, dpi: int = 100) -> None:
    """Write a figure as PNG, atomically."""
    with whole_file(path) as file:
        figure.savefig(file, format='png', dpi=dpi)


def sparse_ticks(count: int, most: int = 12) -> list[int]:
    """Positions of at most ``most`` ticks for ``count`` cells: the first and every n-th one."""
    return list(range(0, count, -(-count // most)))
