"""CSV files, written atomically, and Markdown tables."""
from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .files import whole_file


def write_csv(path: str | Path, rows: Iterable[Mapping[str, Any]], columns: Sequence[str],
              digits: int | None = 6) -> None:
    """Write rows as CSV. None and missing values become empty cells.

    Args:
        path: the file.
        rows: mappings from column to value.
        columns: names of the columns, in order.
        digits: significant digits of floats; None: all digits.
    """
    with whole_file(path, 'w') as file:
        table = csv.writer(file, lineterminator='\n')
        table.writerow(columns)
        for row in rows:
            table.writerow([_cell(row.get(column), digits) for column in columns])


def _cell(value: Any, digits: int | None) -> Any:
    if value is None:
        return ''
    return f'{value:.{digits}g}' if isinstance(value, float) and digits is not None else value


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """Return the lines of a Markdown table."""
    return ['| ' + ' | '.join(header) + ' |', '|' + ' --- |' * len(header),
            *('| ' + ' | '.join(map(str, row)) + ' |' for row in rows)]
