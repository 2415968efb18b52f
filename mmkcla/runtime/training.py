"""Check and complete a config before training."""
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..utils.text import note
from .checks.batches import accumulation, images_per_step
from .config import section

if TYPE_CHECKING:
    from mmengine.config import Config


# mmengine's own loops, and those of loops.py, which have the same arguments
EXACT_LOOPS = {'EpochBasedTrainLoop': 'mmkcla.ExactEpochLoop', 'IterBasedTrainLoop': 'mmkcla.ExactIterLoop'}


def check_preprocessor(config: 'Config') -> None:
    """Check that mmseg's preprocessor has exactly one of size and size_divisor; mmseg itself fails only at the first
    batch.

    Raises:
        UserError: it has both, or neither.
    """
    place = 'model.data_preprocessor' if config.model.get('data_preprocessor') else 'data_preprocessor'
    part = config.model.get('data_preprocessor') or config.get('data_preprocessor') or {}
    if not _is_named(part, 'SegDataPreProcessor'):
        return
    size, divisor = part.get('size'), part.get('size_divisor')
    if (size is None) == (divisor is None):
        raise UserError(f'{place} has {"neither size nor" if size is None else "both size and"} size_divisor; give one '
                        f'of them: --cfg-options {place}.size=(256,256) {place}.size_divisor=None pads a batch to '
                        f'height and width, {place}.size=None {place}.size_divisor=32 to a multiple')


def use_amp(config: 'Config') -> None:
    """Replace the optimizer wrapper by one with mixed precision.

    Raises:
        UserError: there is no accelerator, or the config uses a different wrapper.
    """
    from mmengine.device import get_device
    if get_device() == 'cpu':
        raise UserError('--amp needs a GPU; this machine has none that torch can use')
    wrapper = config.optim_wrapper
    kind = wrapper.get('type', 'OptimWrapper')
    if kind == 'OptimWrapper':
        wrapper.type = 'AmpOptimWrapper'
        wrapper.setdefault('loss_scale', 'dynamic')
    elif kind != 'AmpOptimWrapper':
        raise UserError(f'--amp replaces OptimWrapper, but optim_wrapper.type is {kind!r} in the config')


def set_learning_rate(config: 'Config', scale: bool) -> None:
    """Enable learning-rate scaling, or note that the batch size of this run differs from that of the config.

    Raises:
        UserError: scaling is requested, but the config does not define the base batch size.
    """
    rule = config.get('auto_scale_lr') or {}
    base = rule.get('base_batch_size')
    if scale and base is None:
        raise UserError('--auto-scale-lr: the config has no base batch size for its learning rate; add auto_scale_lr = '
                        'dict(base_batch_size=16), the number of images per iteration over all GPUs')
    if scale:
        config.auto_scale_lr.enable = True
    images, counts = images_per_step(config), accumulation(config.get('optim_wrapper') or {})
    if base and images and not rule.get('enable') and not scale and images != base:
        accumulated = f' (accumulative_counts={counts})' if counts > 1 else ''
        note(f'the learning rate of the config is for {base} images per iteration, this run has {images}{accumulated}; '
             '--auto-scale-lr adapts it')


def add_outputs(config: 'Config') -> None:
    """Add the outputs of every training: atomic checkpoints, curves, TensorBoard logs, progress lines. Use the loops
    that resume exactly instead of mmengine's own, and check for NaN and infinite values."""
    hooks = section(config, 'default_hooks')
    if hooks.get('checkpoint', True):  # None disables a default hook
        checkpoint = section(hooks, 'checkpoint', dict(type='CheckpointHook', interval=1))
        if _is_named(checkpoint, 'CheckpointHook'):
            checkpoint['type'] = 'mmkcla.AtomicCheckpointHook'
    iterations = config.train_cfg.get('max_iters')
    if iterations and hooks.get('logger', True):  # short trainings would end before the first log line
        logger = section(hooks, 'logger', dict(type='LoggerHook'))
        logger['interval'] = min(logger.get('interval', 10), max(1, iterations // 5))

    processor = section(config, 'log_processor')
    if 'type' not in processor or _is_named(processor, 'LogProcessor'):
        processor['type'] = 'mmkcla.LogProcessor'

    _use_exact_loop(config.train_cfg)
    custom = list(config.get('custom_hooks') or [])
    if 'non_finite' not in hooks and not any(_is_named(hook, 'NonFiniteHook') for hook in [*hooks.values(), *custom]):
        hooks['non_finite'] = dict(type='mmkcla.NonFiniteHook')
    if not any(_is_named(hook, 'CurvesHook') for hook in custom):
        custom.append(dict(type='mmkcla.CurvesHook'))
    config.custom_hooks = custom

    visualizer = section(config, 'visualizer', dict(type='Visualizer'))
    backends = list(visualizer.get('vis_backends') or [dict(type='LocalVisBackend')])
    if not any(_is_named(backend, 'TensorboardVisBackend') for backend in backends):
        backends.append(dict(type='TensorboardVisBackend'))
    visualizer['vis_backends'] = backends


def _use_exact_loop(loop: Any) -> None:
    if 'type' not in loop:
        loop['type'] = 'EpochBasedTrainLoop' if loop.pop('by_epoch', True) else 'IterBasedTrainLoop'
    kind = loop['type'] if isinstance(loop['type'], str) else loop['type'].__name__
    loop['type'] = EXACT_LOOPS.get(kind.removeprefix('mmengine.'), loop['type'])


def _is_named(part: Any, name: str) -> bool:
    kind = part.get('type') if hasattr(part, 'get') else type(part)
    return (kind if isinstance(kind, str) else getattr(kind, '__name__', '')).split('.')[-1] == name
