"""Check what the builders of mmengine and the hosts take for granted in a config: class names, and complete splits."""
from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...errors import UserError
from ...utils.text import one_line
from ..moved_variables import keys_read

if TYPE_CHECKING:
    from mmengine.config import Config

_PARTS = ('dataloader', 'cfg', 'evaluator')


def check_types(config: Config) -> None:
    """Check that each ``type`` in the parts that a run reads is a name or a class.

    Raises:
        UserError: the first of another kind, with its place.
    """
    for key in keys_read() & set(config):
        for place, value in _types(config[key], key):
            if not (value.strip() if isinstance(value, str) else inspect.isclass(value) or callable(value)):
                raise UserError(f'{place}={one_line(repr(value), 80)} is not the name of a class; write text')


def check_splits(config: Config) -> None:
    """Check that the data, the settings and the metrics of a split are all there, or none of them, as mmengine demands.

    Raises:
        UserError: some are missing; also for an unknown ``log_level``.
    """
    for split in ('val', 'test'):
        names = [f'{split}_{part}' for part in _PARTS]
        missing = [name for name in names if config.get(name) is None]
        if missing and len(missing) < len(names):
            present = [name for name in names if name not in missing]
            raise UserError(f'{", ".join(missing)} missing (or None) but {", ".join(present)} set; set all of '
                            f'{", ".join(names)}, or none')
    for split in ('train', 'val', 'test'):
        loader = config.get(f'{split}_dataloader')
        if isinstance(loader, dict) and loader.get('batch_size', 1) is None and loader.get('batch_sampler') is None:
            raise UserError(f'{split}_dataloader.batch_size=None must be an integer of at least 1')
    level = config.get('log_level')
    if isinstance(level, str) and level not in logging._nameToLevel:
        raise UserError(f'log_level={level!r} is unknown; choose one of {", ".join(logging._nameToLevel)}')
    if isinstance(level, int) and level not in logging._levelToName:
        raise UserError(f'log_level={level!r} is unknown; write a name, e.g. INFO')


def _types(part: Any, place: str) -> Iterator[tuple[str, Any]]:
    items = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, (list, tuple)) else ()
    for key, value in items:
        if key == 'type' and value is not None:
            yield f'{place}.type', value
        else:
            yield from _types(value, f'{place}.{key}')
