"""The number of images behind one step of the optimizer."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mmengine.config import Config


def accumulation(wrapper: Any) -> int:
    """Return the iterations per step of the optimizer of a wrapper, built or as a dict."""
    if hasattr(wrapper, 'get') and not hasattr(wrapper, '_accumulative_counts'):
        return wrapper.get('accumulative_counts', 1) or 1
    return getattr(wrapper, '_accumulative_counts', 1)


def images_per_step(config: Config) -> int | None:
    """Return batch size × processes × accumulated iterations; None without a batch size."""
    from mmengine.dist import get_world_size
    batch = config.train_dataloader.get('batch_size')
    return batch and batch * get_world_size() * accumulation(config.get('optim_wrapper') or {})
