"""Time of data loading, apart from the model."""
from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mmengine.registry import init_default_scope
from mmengine.runner import Runner

from ..errors import UserError
from ..utils.text import one_line

if TYPE_CHECKING:
    from mmengine.config import Config


def loading_seconds(config: Config, batches: int) -> float:
    """Median seconds per batch of ``train_dataloader``, after the first batch, without a model.

    Raises:
        UserError: the config has no training data, or they cannot be read.
    """
    if not config.get('train_dataloader'):
        raise UserError(f'config {config.filename} has no train_dataloader; --data cannot be used')
    init_default_scope(config.get('default_scope') or 'mmengine')
    try:
        loader = Runner.build_dataloader(config.train_dataloader, seed=0)
        seconds, began = [], time.perf_counter()
        for number, _ in enumerate(loader):
            now = time.perf_counter()
            seconds.append(now - began)
            began = now
            if number >= batches:
                break
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f'the training data of {config.filename} cannot be loaded: {one_line(error, 160)}; run mmkcla '
                        'data verify') from error
    return sorted(seconds[1:] or seconds)[len(seconds[1:] or seconds) // 2]
