"""Adapt dataloader settings to the machine."""
from typing import TYPE_CHECKING, Any

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
