"""Check and complete a config before a test."""
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError
from .config import section
from .moved_variables import TRAINING_KEYS

if TYPE_CHECKING:
    from mmengine.config import Config

PARTIAL_HINT = '; use --allow-partial to load it anyway'


def one_checkpoint(checkpoints: list[str]) -> str | None:
    """Return the only checkpoint, None if there is none; a shell pattern may have matched several.

    Raises:
        UserError: there are several.
    """
    if len(checkpoints) > 1:
        count = {2: 'two', 3: 'three'}.get(len(checkpoints), str(len(checkpoints)))
        raise UserError(f'{count} checkpoints given: {", ".join(checkpoints)}; give exactly one')
    return checkpoints[0] if checkpoints else None


def check_checkpoint(name: str | None) -> None:
    """Check that a checkpoint exists, before heavy packages are imported; None is one that a work dir has.

    Raises:
        UserError: the file does not exist, or is a folder.
    """
    if name is None or '://' in name or Path(name).is_file():
        return
    if Path(name).is_dir():
        inside = sorted(path.name for path in Path(name).glob('*.pth'))
        hint = f'; it contains {", ".join(inside[-3:])}' if inside else ' without .pth files'
        raise UserError(f'checkpoint {name} is a folder{hint}')
    raise UserError(f'no such checkpoint: {name}')


def check_readable(name: str) -> None:
    """Read a checkpoint before the data are; of an address, only the scheme and the name are checked.

    Raises:
        UserError: it is damaged or no checkpoint, or has NaN or infinite weights.
    """
    from ..weights.addresses import check_address  # imports torch
    check_address(name)


def evaluate_only(config: 'Config') -> None:
    """Remove everything for training from the config: loops and data, resuming, ``save_best``, ``EMAHook`` and
    ``EarlyStoppingHook``.

    A checkpoint written with ``EMAHook`` already has the averaged weights as its main weights.
    """
    config.resume = False
    for key in TRAINING_KEYS:
        config.pop(key, None)
    config.custom_hooks = [hook for hook in config.get('custom_hooks') or []
                           if not re.search('EMAHook|EarlyStoppingHook', str(hook.get('type')))]
    checkpoint = (config.get('default_hooks') or {}).get('checkpoint')
    for key in ('save_best', 'rule') if checkpoint else ():
        checkpoint.pop(key, None)


def draw_into(config: 'Config', host: str | None) -> None:
    """Configure the host's visualization hook to draw each test image;
    :func:`mmkcla.runtime.visualization.write_pictures` chooses the files.

    Raises:
        UserError: the config has no known host.
    """
    hook_and_visualizer = {'mmdet': ('DetVisualizationHook', 'DetLocalVisualizer'),
                           'mmseg': ('SegVisualizationHook', 'SegLocalVisualizer'),
                           'mmpretrain': ('VisualizationHook', 'UniversalVisualizer')}
    if host not in hook_and_visualizer:
        raise UserError('--show-dir needs a config with default_scope mmdet, mmseg or mmpretrain')
    hook_type, visualizer_type = hook_and_visualizer[host]
    hook = section(section(config, 'default_hooks'), 'visualization', dict(type=hook_type))
    section(config, 'visualizer', dict(type=visualizer_type, name='visualizer'))
    hook.update({'enable' if host == 'mmpretrain' else 'draw': True}, interval=1)
    if host == 'mmdet':
        hook.update(test_out_dir=None)
    elif host == 'mmpretrain':
        hook.update(out_dir=None)
