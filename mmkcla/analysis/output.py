"""Tables and figures of the analyses, each written whole."""
from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..engine.files import whole_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_csv(path: Path, rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Write rows as CSV; floats keep six digits, None and what a row lacks stay empty."""
    with whole_file(path, 'w') as file:
        table = csv.writer(file, lineterminator='\n')
        table.writerow(columns)
        for row in rows:
            table.writerow([_cell(row.get(column)) for column in columns])


def _cell(value: Any) -> Any:
    if value is None:
        return ''
    return f'{value:.6g}' if isinstance(value, float) else value


def new_figure(width: float, height: float) -> Figure:
    """A figure in inches with a canvas of its own: no display, and pyplot's state stays untouched."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    figure = Figure(figsize=(width, height), layout='constrained')
    FigureCanvasAgg(figure)
    return figure


def write_figure(path: Path, figure: Figure) -> None:
    """Write a figure as PNG."""
    with whole_file(path) as file:
        figure.savefig(file, format='png', dpi=100)


def sparse_ticks(count: int, most: int = 12) -> list[int]:
    """Positions of at most ``most`` ticks among ``count`` cells: the first, and every n-th."""
    return list(range(0, count, -(-count // most)))


def plural(count: int, noun: str) -> str:
    """``1 image``, ``2 images``."""
    return f'{count} {noun}' + ('' if count == 1 else 's')
