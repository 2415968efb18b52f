"""Tables as CSV and Markdown, each file written atomically."""
from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .files import whole_file


def write_csv(path: str | Path, rows: Iterable[Mapping[str, Any]], columns: Sequence[str],
              digits: int | None = 6) -> None:
    """Write rows as CSV; None and what a row lacks stay empty.

    Args:
        path: the file.
        rows: a mapping from column to value each.
        columns: in this order.
        digits: significant digits of floats; None writes them in full.
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
    """The lines of a Markdown table."""
    return ['| ' + ' | '.join(header) + ' |', '|' + ' --- |' * len(header),
            *('| ' + ' | '.join(map(str, row)) + ' |' for row in rows)]
