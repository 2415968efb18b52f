"""Short texts for messages: one line, lists cut off, counts, close names, notes."""
from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterable
from typing import Any

from .ranks import rank

_UNKNOWN_KEYWORD = re.compile(r"(?:unexpected keyword|multiple values for)[\w ]* ('\w+')")


def one_line(text: Any, most: int | None = None) -> str:
    """A text, or the message of an error, without line breaks; an empty message becomes the error's class name.

    Args:
        text: a string, or an exception.
        most: cut after that many characters.
    """
    line = ' '.join(str(text).split())
    if not line and isinstance(text, BaseException):
        line = type(text).__name__
    return line[:most]


def listed(names: Iterable[Any], most: int = 3) -> str:
    """``a, b, c and 4 more``."""
    names = list(map(str, names))
    rest = len(names) - most
    return ', '.join(names[:most]) + (f' and {rest} more' if rest > 0 else '')


def plural(count: int, noun: str) -> str:
    """``1 image``, ``2 images``, ``3 classes``."""
    ending = '' if count == 1 else 'es' if noun.endswith(('s', 'x')) else 's'
    return f'{count} {noun}{ending}'


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`` (did you mean 'x'?)`` with the closest known name, or nothing."""
    near = difflib.get_close_matches(str(name), list(known), n=1)
    return f' (did you mean {near[0]!r}?)' if near else ''


def unknown_keyword(error: TypeError) -> str | None:
    """The argument, with quotes, that a call was given and does not take (or takes already); None for other errors."""
    found = _UNKNOWN_KEYWORD.search(str(error))
    return found[1] if found else None


def note(line: str) -> None:
    """Print ``note: <line>`` on stderr, in the first process only."""
    if rank() == 0:
        print(f'note: {line}', file=sys.stderr)
