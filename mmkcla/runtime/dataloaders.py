"""Adapt dataloader settings to the machine."""
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..utils.signals import shield_worker

if TYPE_CHECKING:
    from mmengine.config import Config

_LOADERS = ('LoadImageFromFile', 'mmcv.LoadImageFromFile', 'mmdet.LoadImageFromFile', 'mmkcla.LoadImageFromFile')


def tidy_dataloaders(config: 'Config', host: str | None) -> None:
    """Fix dataloader settings that would fail or warn on this machine, and set the collation mmpretrain expects."""
    from mmengine.device import get_device
    for split in ('train', 'val', 'test'):
        loader = config.get(f'{split}_dataloader')
        if not loader:
            continue
        if loader.get('num_workers', 0) == 0:  # torch refuses these settings without workers
            loader['persistent_workers'] = False
            loader.pop('prefetch_factor', None)
        if get_device() == 'cpu':
            loader['pin_memory'] = False
        if host == 'mmpretrain':
            loader.setdefault('collate_fn', dict(type='default_collate'))
        _name_unreadable_images(loader)


def init_worker(init: Callable[[int], None] | None, number: int) -> None:
    """Initialise a data-loader worker: with ``init``, and so that signals do not end it before its main process."""
    if init is not None:
        init(number)
    shield_worker()


def _name_unreadable_images(part: Any) -> None:
    """Replace mmcv's image loader by mmkcla's, which differs only in its error messages.

    The scope is set apart from the type, since the inferencers of mmseg and mmpretrain look for the plain type.
    """
    if isinstance(part, dict):
        if part.get('type') in _LOADERS:
            part.update(type='LoadImageFromFile', _scope_='mmkcla')
        part = list(part.values())
    if isinstance(part, (list, tuple)):
        for entry in part:
            _name_unreadable_images(entry)
