"""Checkpoints of plain values: what is converted on saving, and what is read back as plain from older files."""
from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import PurePath
from typing import Any

import numpy as np
import torch

_ATOMS = (str, bytes, bool, int, float, complex, type(None))


def plain(value: Any) -> Any:
    """``value`` with subclasses of containers made plain, as a checkpoint that loads with ``weights_only=True`` needs.

    Tensors, numpy values and ordered dicts of tensors stay as they are. Mappings (mmengine's ``ConfigDict``) become
    dicts, lists and tuples of any class plain ones, paths strings, enum members their values, classes and functions
    their dotted names; other objects become their ``repr``.
    """
    if isinstance(value, Enum):
        return plain(value.value)
    if type(value).__module__ == 'mmengine.logging.history_buffer':  # read back as it is, see reading.py
        return value
    if type(value) in _ATOMS or isinstance(value, (torch.Tensor, torch.dtype, torch.device, torch.Size, np.generic)):
        return value
    if isinstance(value, np.ndarray):
        return value.tolist() if value.dtype == object else np.asarray(value)
    if isinstance(value, OrderedDict) and all(isinstance(item, torch.Tensor) for item in value.values()):
        return value  # weights, whose metadata would be lost
    if isinstance(value, Mapping):
        kind = OrderedDict if type(value) is OrderedDict else dict
        return kind((plain(key), plain(item)) for key, item in value.items())
    if isinstance(value, (list, tuple, set, frozenset)):
        kind = next(base for base in (list, tuple, set, frozenset) if isinstance(value, base))
        return kind(map(plain, value))
    if isinstance(value, PurePath):
        return str(value)
    for atom in (str, bytes, int, float):  # of a subclass
        if isinstance(value, atom):
            return atom(value)
    if isinstance(value, type) or callable(value) and hasattr(value, '__qualname__'):
        return f'{value.__module__}.{value.__qualname__}'
    return repr(value)


def plain_globals() -> dict[str, Callable[..., Any]]:
    """What pickled containers and paths of a config become when they are read, by the dotted name in the file.

    mmengine writes the ``ConfigDict`` of a nested ``metainfo`` or of an optimizer's parameter group into its
    checkpoints. Each is replaced by a constructor of plain values, so that no code of another package runs.
    """
    def path(*parts: str) -> str:
        return str(PurePath(*parts))

    def default_dict(factory: Any = None, content: Any = ()) -> dict:
        return dict(content)

    found: dict[str, Callable[..., Any]] = {
        'mmengine.config.config.ConfigDict': dict,
        'addict.addict.Dict': dict,
        'collections.defaultdict': default_dict,
        'builtins.set': set, 'builtins.frozenset': frozenset,
        'builtins.dict': dict, 'builtins.list': list, 'builtins.tuple': tuple, 'builtins.int': int,
    }
    for module in ('pathlib', 'pathlib._local'):  # the second since Python 3.13
        for name in ('PosixPath', 'WindowsPath', 'PurePosixPath', 'PureWindowsPath', 'Path', 'PurePath'):
            found[f'{module}.{name}'] = path
    return found
