"""What is checked and changed before a test starts."""
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from .config import section

if TYPE_CHECKING:
    from mmengine.config import Config

PARTIAL_HINT = '; --allow-partial takes it nevertheless'


def one_checkpoint(checkpoints: list[str]) -> str:
    """The checkpoint; a pattern may have become several.

    Raises:
        UserError: there are several.
    """
    if len(checkpoints) > 1:
        count = {2: 'two', 3: 'three'}.get(len(checkpoints), str(len(checkpoints)))
        raise UserError(f'{count} checkpoints given: {", ".join(checkpoints)}; name one')
    return checkpoints[0]


def check_checkpoint(name: str) -> None:
    """See that a checkpoint is there, before anything heavy is imported.

    Raises:
        UserError: there is no such file, or it is a folder.
    """
    if '://' in name or Path(name).is_file():
        return
    if Path(name).is_dir():
        inside = sorted(path.name for path in Path(name).glob('*.pth'))
        hint = f'; it has {", ".join(inside[-3:])}' if inside else ', without a .pth in it'
        raise UserError(f'checkpoint {name} is a folder{hint}')
    raise UserError(f'no such checkpoint: {name}')


def evaluate_only(config: 'Config') -> None:
    """Drop what belongs to training: its loops and data, resuming, and the averaged copy of the weights.

    A checkpoint written under ``EMAHook`` has the averaged weights in their place already.
    """
    config.resume = False
    for key in ('train_dataloader', 'train_cfg', 'optim_wrapper', 'param_scheduler', 'auto_scale_lr',
                'val_dataloader', 'val_cfg', 'val_evaluator'):
        config.pop(key, None)
    config.custom_hooks = [hook for hook in config.get('custom_hooks') or [] if 'EMAHook' not in str(hook.get('type'))]


def draw_into(config: 'Config', host: str | None, folder: str) -> None:
    """Have the host's visualization hook draw each test image into ``folder``.

    Raises:
        UserError: the host of the config is not known.
    """
    hook_and_visualizer = {'mmdet': ('DetVisualizationHook', 'DetLocalVisualizer'),
                           'mmseg': ('SegVisualizationHook', 'SegLocalVisualizer'),
                           'mmpretrain': ('VisualizationHook', 'UniversalVisualizer')}
    if host not in hook_and_visualizer:
        raise UserError('--show-dir needs a config of mmdet, mmseg or mmpretrain (its default_scope)')
    folder = str(Path(folder).resolve())  # the hosts put a relative folder below the work dir
    hook_type, visualizer_type = hook_and_visualizer[host]
    hook = section(section(config, 'default_hooks'), 'visualization', dict(type=hook_type))
    visualizer = section(config, 'visualizer', dict(type=visualizer_type, name='visualizer'))
    if host == 'mmdet':
        hook.update(draw=True, interval=1, test_out_dir=folder)
    elif host == 'mmseg':
        hook.update(draw=True, interval=1)
        visualizer.update(save_dir=folder)
        section(visualizer, 'vis_backends', [dict(type='LocalVisBackend')])
    else:
        hook.update(enable=True, interval=1, out_dir=folder)


def pictures_folder(host: str | None, folder: str) -> Path:
    """Where below ``--show-dir`` the host puts its pictures."""
    return Path(folder) / 'vis_data' / 'vis_image' if host == 'mmseg' else Path(folder)


def report_into(config: 'Config', work_dir: Path) -> list[Path]:
    """Have each ``BinarySegMetric`` without an ``out_dir`` write its tables and pictures below ``work_dir``.

    Returns:
        The folders of all of them.
    """
    evaluators = config.test_evaluator
    folders: list[Path] = []
    for evaluator in evaluators if isinstance(evaluators, (list, tuple)) else [evaluators]:
        if not _is_binary_metric(evaluator):
            continue
        if evaluator.get('out_dir') is None:
            number = len(folders) + 1
            evaluator['out_dir'] = str(work_dir / ('evaluation' if number == 1 else f'evaluation_{number}'))
        folders.append(Path(evaluator['out_dir']))
    return folders


def _is_binary_metric(evaluator: Any) -> bool:
    kind = evaluator.get('type') if hasattr(evaluator, 'get') else None
    return getattr(kind, '__name__', str(kind)) in ('BinarySegMetric', 'mmkcla.BinarySegMetric')
