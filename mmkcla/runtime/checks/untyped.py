"""The dicts of a model that have no registered type, such as ``test_cfg``.

What reads them is not known, but nothing reads a name that does not occur in the sources of the hosts.
"""
from __future__ import annotations

import importlib.util
import inspect
import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from ...errors import UserError
from .kinds_taken import merged
from .parts import Part, classes_of, names_of

_CLOSE = 0.75  # ratio of difflib
_SOURCES = {'mmdet': 'models', 'mmseg': 'models', 'mmpretrain': 'models', 'mmkcla': '.', 'mmcv': 'ops', 'mmengine':
            'model'}
_DEFAULT_TYPE = re.compile(r"data_preprocessor\.setdefault\('type', '(\w+)'\)")


def check_untyped(model: Any, scope: str | None, custom: bool) -> None:
    """Check the names in all dicts of a model whose type is missing or not registered.

    Args:
        model: the ``model`` of a config.
        scope: its ``default_scope``.
        custom: whether the config has custom imports, which may read any name.

    Raises:
        UserError: the first name that no source of the host contains although a similar one is there.
    """
    if custom:
        return
    for place, entries in _dicts(model, 'model', scope):
        for name in entries:
            if not isinstance(name, str) or not re.fullmatch(r'[a-z]\w{3,}', name) or name in _words():
                continue
            near = get_close_matches(name, [word for word in _words() if word[0] == name[0]], n=1, cutoff=_CLOSE)
            if near:
                raise UserError(f'{place}.{name}: nothing in {scope or "mmengine"} reads {name!r} (did you mean '
                                f'{near[0]!r}?)')


def preprocessor_part(config: Any, scope: str | None) -> Part | None:
    """Return the data preprocessor without a type as a part, if the class of the model has a default for it."""
    model = config.get('model')
    if not isinstance(model, dict):
        return None
    place = 'model.data_preprocessor' if model.get('data_preprocessor') is not None else 'data_preprocessor'
    entries = model.get('data_preprocessor') or config.get('data_preprocessor')
    if not isinstance(entries, dict) or 'type' in entries:
        return None
    owners = [owner for each in classes_of(model.get('type'), scope) for owner in getattr(each, '__mro__', ())[:-1]]
    for owner in owners:
        found = _DEFAULT_TYPE.search(inspect.getsource(owner))
        if found:
            names, complete = names_of(found[1], scope)
            kinds = merged(classes_of(found[1], scope))
            return Part(place, entries, names | {'type'}, found[1], complete=complete, kinds=kinds) if names else None
    return None


def _dicts(part: Any, place: str, scope: str | None, of_cfg: bool = False) -> Iterator[tuple[str, dict]]:
    """Yield the dicts in ``train_cfg``, ``test_cfg`` and the like; others may be for another library."""
    if isinstance(part, (list, tuple)):
        for number, inner in enumerate(part):
            yield from _dicts(inner, f'{place}.{number}', scope, of_cfg)
    if not isinstance(part, dict):
        return
    kind = part.get('type')
    if of_cfg and (kind is None or isinstance(kind, str) and not classes_of(kind, scope)):
        yield place, part
    for key, inner in part.items():
        if key not in ('init_cfg', 'data_preprocessor'):
            yield from _dicts(inner, f'{place}.{key}', scope, of_cfg or str(key).endswith('_cfg'))


@cache
def _words() -> frozenset[str]:
    """Return all words in the sources of the models of the hosts that are installed."""
    words: set[str] = set()
    for package, folder in _SOURCES.items():
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            continue
        for path in (Path(spec.origin).parent / folder).rglob('*.py'):
            if '.mim' not in path.parts:
                words.update(re.findall(r'[A-Za-z]\w{3,}', path.read_text(encoding='utf-8', errors='ignore')))
    return frozenset(words)
