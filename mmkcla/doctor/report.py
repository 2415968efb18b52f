"""Findings as text and as JSON."""
from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from ..utils.text import plural
from ..version import __version__
from .finding import LEVELS, NOTE, PROBLEM, Finding

_LEVEL_WIDTH = max(map(len, LEVELS))
_NAME_WIDTH = 17


def lines_of(finding: Finding, width: int | None = None) -> str:
    """A finding as aligned text: level, check, value; the remedy on a line of its own.

    Args:
        width: wrap after so many characters; None: the terminal's width, or 120 if the output is no terminal.
    """
    columns = width or (shutil.get_terminal_size().columns if sys.stdout.isatty() else 120)
    margin = ' ' * (_LEVEL_WIDTH + _NAME_WIDTH + 6)
    first = f'  {finding.level:<{_LEVEL_WIDTH}}  {finding.check:<{_NAME_WIDTH}}  '
    text = _wrapped(first + finding.value, columns, margin)
    return text + ('\n' + _wrapped(f'{margin}-> {finding.remedy}', columns, margin + '   ') if finding.remedy else '')


def _wrapped(text: str, columns: int, margin: str) -> str:
    return textwrap.fill(text, max(columns, len(margin) + 20), subsequent_indent=margin, break_long_words=False,
                         break_on_hyphens=False, drop_whitespace=True, replace_whitespace=False)


def counts(findings: Iterable[Finding]) -> dict[str, int]:
    """Number of findings of each level."""
    levels = [finding.level for finding in findings]
    return {level: levels.count(level) for level in LEVELS}


def summary(findings: Iterable[Finding]) -> str:
    """The last line of the report."""
    number = counts(findings)
    if not number[PROBLEM] and not number[NOTE]:
        return 'no problems'
    found = plural(number[PROBLEM], 'problem') if number[PROBLEM] else 'no problems'
    return f'{found}, {plural(number[NOTE], "note")}'


def as_json(found: Iterable[tuple[str, Finding]]) -> dict[str, Any]:
    """All findings as plain values: ``mmkcla`` (version), ``counts`` and ``findings``."""
    found = list(found)
    return {'mmkcla': __version__, 'counts': counts(finding for _, finding in found),
            'findings': [{'section': section, **asdict(finding)} for section, finding in found]}
