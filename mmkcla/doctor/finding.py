"""The result of one check of ``mmkcla doctor``."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

OK, NOTE, PROBLEM = LEVELS = ('ok', 'note', 'problem')


@dataclass(frozen=True)
class Finding:
    """What a check found.

    Attributes:
        check: what was checked, e.g. ``torch``.
        level: one of :data:`LEVELS`.
        value: what was found, on one line.
        remedy: what to do about it, on one line; empty if there is nothing to do. A problem always has one.
        details: further plain values for ``--json``.
    """

    check: str
    level: str
    value: str
    remedy: str = ''
    details: dict[str, Any] = field(default_factory=dict)


def ok(check: str, value: str, **details: Any) -> Finding:
    """A check that passed."""
    return Finding(check, OK, value, details=details)


def note(check: str, value: str, remedy: str = '', **details: Any) -> Finding:
    """Something to know: optional, unusual or slow, but working."""
    return Finding(check, NOTE, value, remedy, details)


def problem(check: str, value: str, remedy: str, **details: Any) -> Finding:
    """A fault, with its remedy."""
    return Finding(check, PROBLEM, value, remedy, details)
