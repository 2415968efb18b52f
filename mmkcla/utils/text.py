"""Text helpers for messages: single lines, shortened lists, plurals, suggestions, notes."""
from __future__ import annotations

import difflib
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from .ranks import rank

_UNKNOWN_KEYWORD = re.compile(r"(?:unexpected keyword|multiple values for)[\w ]* ('\w+')")


def one_line(text: Any, most: int | None = None) -> str:
    """Return a text, or the message of an error, on one line. An empty message becomes the class name of the error.

    Args:
        text: a string, or an exception.
        most: maximum number of characters; None: no limit.
    """
    line = ' '.join(str(text).split())
    if not line and isinstance(text, BaseException):
        line = type(text).__name__
    return line[:most]


def listed(names: Iterable[Any], most: int = 3) -> str:
    """Join names, at most ``most`` of them: ``a, b, c and 4 more``."""
    names = list(map(str, names))
    rest = len(names) - most
    return ', '.join(names[:most]) + (f' and {rest} more' if rest > 0 else '')


def printable(text: Any) -> str:
    """Escape what a terminal could interpret or not print: control characters, bidirectional marks, surrogates."""
    return ''.join(mark if mark.isprintable() else mark.encode('unicode_escape').decode() for mark in str(text))


def is_printable(text: str) -> bool:
    """Whether a name can stand in a line of a log or table: not blank, without control characters and line breaks."""
    return bool(text.strip()) and text.isprintable()


def plain_name(name: str) -> str:
    """A class name without differences that people overlook: case, spaces and the form of accents."""
    return ' '.join(unicodedata.normalize('NFC', name).casefold().split())


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 image``, ``2 images``, ``3 classes``."""
    ending = '' if count == 1 else 'es' if noun.endswith(('s', 'x')) else 's'
    return f'{count} {noun}{ending}'


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` with the closest known name, or an empty string."""
    near = difflib.get_close_matches(str(name), list(known), n=1)
    return f' (did you mean {near[0]!r}?)' if near else ''


def unknown_keyword(error: TypeError) -> str | None:
    """Return the unexpected or duplicate keyword argument, quoted, of a failed call; None for other errors."""
    found = _UNKNOWN_KEYWORD.search(str(error))
    return found[1] if found else None


def note(line: str) -> None:
    """Print ``note: <line>`` on stderr, on rank 0 only."""
    if rank() == 0:
        print(f'note: {printable(line)}', file=sys.stderr)


def distinct(names: Sequence[Any]) -> list[str]:
    """Class names as text; equal ones with their label."""
    texts = list(map(str, names))
    count = Counter(texts)
    return [text if count[text] == 1 else f'{text} ({label})' for label, text in enumerate(texts)]
