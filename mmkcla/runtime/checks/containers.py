"""Check that entries which mmengine and the hosts iterate or unpack are lists, dicts or text, as they expect."""
from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...errors import UserError
from ...utils.text import one_line
from ..moved_variables import keys_read

if TYPE_CHECKING:
    from mmengine.config import Config

_LIST, _DICT = (list, tuple), (dict, )
_RULES = tuple((re.compile(places), kinds, words) for places, kinds, words in (
    (r'\w+_dataloader\.dataset', _DICT, 'a dict with a type'),
    (r'\w+_dataloader\..*metainfo', _DICT, 'a dict, e.g. dict(classes=(...,))'),
    (r'(.*\.)?\w*pipeline', _LIST, 'a list of transforms'),
    (r'env_cfg\.(mp_cfg|dist_cfg)', _DICT, 'a dict'),
    (r'visualizer\.vis_backends', _LIST, 'a list of dicts with a type'),
    (r'param_scheduler(\.\w+)*\.milestones', _LIST, 'a list of integers'),
    (r'model\..*init_cfg', (*_LIST, *_DICT), 'a dict with a type, or a list of them'),
    (r'model\..*align_corners', (bool, str), 'True or False'),  # words of truth are judged elsewhere
    (r'(default_hooks\.\w+|custom_hooks\.\d+)\.save_best(\.\d+)?', (str, *_LIST), 'the name of a metric'),
))


def check_containers(config: Config) -> None:
    """Check the parts of a config that a run reads. None stands for a default, except in a list.

    Raises:
        UserError: the first entry of another kind, or an integer that no machine can count to.
    """
    for key in sorted(keys_read() & set(config)):
        for place, value in _entries(config[key], key):
            for pattern, kinds, words in _RULES:
                if pattern.fullmatch(place) and not isinstance(value, kinds) and not _is_default(place, value):
                    raise UserError(f'{place}={one_line(repr(value), 80)} must be {words}')
            if isinstance(value, int) and abs(value) > sys.maxsize:
                raise UserError(f'{place}={value} must be an integer of at most {sys.maxsize}')


def _is_default(place: str, value: Any) -> bool:
    return value is None and not place.endswith('_dataloader.dataset') and not place.rpartition('.')[2].isdigit()


def _entries(part: Any, place: str) -> Iterator[tuple[str, Any]]:
    yield place, part
    items = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, (list, tuple)) else ()
    for key, value in items:
        yield from _entries(value, f'{place}.{key}')
