"""Parts of a training whose state is not in a checkpoint."""
from collections.abc import Iterator
from typing import Any

import numpy as np

_DEPTH = 6  # of transforms in transforms and data sets in data sets
_MODULES = ('DynamicRoIHead', )  # from statistics of earlier iterations


def reasons(runner: Any) -> list[str]:
    """Return what makes resumed runs differ, whatever the checkpoint holds: one phrase each."""
    loop = runner.train_loop
    found = []
    if loop.exact is None:
        found.append('the order of the data set is not stored, since it is a stream or not a class')
    if getattr(loop, 'fast_forward_on_resume', False):
        found.append('train_cfg.fast_forward_on_resume starts the data from the beginning')
    for part in _parts(loop.dataloader.dataset, _DEPTH):
        name = type(part).__name__
        if hasattr(part, 'results_cache'):
            found.append(f'{name} uses images of earlier samples')
        elif any(isinstance(value, (np.random.Generator, np.random.RandomState)) for value in _values(part)):
            found.append(f'{name} has its own random numbers')
    found += [f'{type(module).__name__} adapts thresholds that are not stored' for module in runner.model.modules()
              if type(module).__name__ in _MODULES]
    return list(dict.fromkeys(found))


def _parts(part: Any, depth: int) -> Iterator[Any]:
    """Yield a data set, its wrapped data sets and all of their transforms."""
    yield part
    if not depth:
        return
    for name in ('dataset', 'datasets', 'pipeline', 'transforms', 'aug'):
        inner = getattr(part, name, None)
        for one in inner if isinstance(inner, (list, tuple)) else [inner]:
            if one is not None and not isinstance(one, (str, dict)):
                yield from _parts(one, depth - 1)


def _values(part: Any) -> list[Any]:
    return list(vars(part).values()) if hasattr(part, '__dict__') else []
