"""Say where a checkpoint was chosen on the images that it is tested on, so that its figures are too good."""
from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from ...errors import UserError
from ..hosts import prepare_hosts
from .records import data_of

if TYPE_CHECKING:
    from mmengine.config import Config


def optimism(config: Config) -> str:
    """Return a warning if the best checkpoint is chosen on images of the test set; empty if it is not.

    The images are compared by path and content. Data sets whose images are not files that can be listed (CIFAR, remote
    files) are compared by their settings.

    Args:
        config: whose training keeps a best checkpoint.
    """
    if not config.get('val_dataloader') or not config.get('val_cfg'):
        return ''  # no validation: the last checkpoint is tested
    if data_of(config, 'val') == data_of(config, 'test'):
        return _warning('the images')
    try:
        config = copy.deepcopy(config)
        prepare_hosts(config)
        from ...datasets.evaluated_images import shared_images  # imports OpenCV
        shared = shared_images(config, 'val', 'test')
    except (UserError, ImportError):  # the training reports it
        return ''
    if not shared or not shared[0]:
        return ''
    return _warning('the images' if shared[0] == shared[1] else f'{shared[0]} of the {shared[1]} images')


def _warning(images: str) -> str:
    return (f'The checkpoint was chosen on {images} it is tested on; the figures are optimistic. Give test_dataloader '
            'other images, or use --checkpoint last')
