"""Durations in arguments and messages."""
from __future__ import annotations

import re

_UNITS = {'h': 3600, 'm': 60, 's': 1}
_DURATION = re.compile(r'(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?')


def parse_duration(text: str) -> float:
    """Return the seconds of ``2h``, ``90m``, ``1h30m``, ``1.5h`` or ``45s``.

    Raises:
        ValueError: the text is not a duration above 0.
    """
    match = _DURATION.fullmatch(text.strip().lower())
    parts = match.groups() if match else ()
    seconds = sum(float(part) * unit for part, unit in zip(parts, _UNITS.values(), strict=False) if part)
    if not seconds:
        raise ValueError(f'must be a duration such as 2h, 90m, 1h30m or 45s, got {text!r}')
    return seconds


def duration(seconds: float) -> str:
    """Return a duration with two units at most: ``0.42 s``, ``45 s``, ``1 min 30 s``, ``2 h 5 min``, ``3 d 4 h``."""
    if seconds < 10:
        return f'{seconds:.2g} s'
    for size, unit, smaller, name in ((86400, 'd', 3600, 'h'), (3600, 'h', 60, 'min'), (60, 'min', 1, 's')):
        whole, rest = divmod(round(seconds / smaller), size // smaller)
        if whole:
            return f'{whole} {unit}' + (f' {rest} {name}' if rest else '')
    return f'{seconds:.0f} s'
