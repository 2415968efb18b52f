"""What is repaired in memory in a COCO file: whole numbers with a decimal point, as pandas writes them, and no iscrowd.

faster-coco-eval fails on a decimal ``image_id`` or ``width``, pycocotools without ``iscrowd``, and both only after the
inference.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...report import REPAIRED, Fault

WHOLE_KEYS = {'images': ('id', 'width', 'height'), 'annotations': ('id', 'image_id', 'category_id', 'iscrowd'),
              'categories': ('id',)}
NO_CROWD = 'annotations without iscrowd'


def decimals(part: str, key: str) -> str:
    """The kind of fault of whole numbers with a decimal point."""
    return f"entries of '{part}' whose {key} has a decimal point"


def repair(content: dict[str, Any]) -> dict[str, list[str]]:
    """Repair the content of a COCO file in place.

    Returns:
        The values that were changed, by kind.
    """
    changed: dict[str, list[str]] = {}
    for part, keys in WHOLE_KEYS.items():
        for entry in content.get(part) or ():
            for key in keys:
                if is_whole_decimal(value := entry.get(key)):
                    entry[key] = int(value)
                    changed.setdefault(decimals(part, key), []).append(str(value))
    for entry in content.get('annotations') or ():
        if 'iscrowd' not in entry:
            entry['iscrowd'] = 0
            changed.setdefault(NO_CROWD, []).append(f'id {entry.get("id")}')
    return changed


def is_whole_decimal(value: Any) -> bool:
    """Whether a JSON value is a whole number with a decimal point."""
    return type(value) is float and value.is_integer()


def decimal_faults(part: str, entries: Sequence[Any]) -> list[Fault]:
    """The decimals of one list of a file, as faults.

    Args:
        part: ``'images'``, ``'annotations'`` or ``'categories'``.
        entries: of the list, with the keys as attributes.
    """
    found = []
    for key in WHOLE_KEYS[part]:
        wrong = [value for entry in entries if is_whole_decimal(value := getattr(entry, key))]
        if wrong:
            found.append(Fault(decimals(part, key), REPAIRED, len(wrong), [f'{wrong[0]:.1f}'],
                               'they are read as whole numbers'))
    return found
