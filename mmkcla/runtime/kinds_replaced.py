"""Compare the value of an option with the one that it replaces."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import UserError
from .entries import get

TRUTH = {'yes': True, 'y': True, 'on': True, 'true': True, 'no': False, 'n': False, 'off': False, 'false': False}


def refuse_text(config: Any, keys: Sequence[str], value: Any, option: str) -> None:
    """Refuse words such as ``no``, and other text, in place of a Boolean, and text or a dict in place of a number in a
    list, or in a dict without a type (``model.test_cfg``), whose reader is not known.

    Raises:
        UserError: the value is of the wrong kind; the message starts with ``option``.
    """
    old = get(config, keys)
    if isinstance(value, str) and isinstance(old, bool) and value.strip().lower() in TRUTH:
        raise UserError(f'{option} is text, which counts as true; write {TRUTH[value.strip().lower()]}')
    holder = get(config, keys[:-1]) if len(keys) > 1 else None
    unknown = isinstance(holder, dict) and 'type' not in holder and keys[0] == 'model'
    if not (unknown or isinstance(holder, (list, tuple))) or not isinstance(old, (int, float)):
        return
    if isinstance(value, (str, dict)):
        what = 'a dict' if isinstance(value, dict) else 'text'
        raise UserError(f'{option} is {what}, but the config has {old!r}; give a value of the same kind')
