"""Compare hooks and validation with the length of the run."""
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...errors import UserError
from ...utils.text import plural

if TYPE_CHECKING:
    from mmengine.config import Config

    from .run_length import RunLength


def hook_notes(config: Config, run: RunLength) -> Iterator[str]:
    """Yield one line for each hook that does nothing in this run, or less than its numbers suggest.

    Raises:
        UserError: a hook would end the run with an error.
    """
    loop = config.get('train_cfg') or {}
    unit, length = ('epoch', run.epochs) if run.by_epoch else ('iteration', run.iterations)
    validates = bool(config.get('val_cfg') is not None and config.get('val_dataloader'))
    begin = loop.get('val_begin') or 1
    if validates and length is not None and begin > length:
        validates = False
        yield f'train_cfg.val_begin={begin} is after the run of {plural(length, unit)}: there is no validation'
    interval = loop.get('val_interval') or 1
    if validates and length is not None and interval > length:
        yield (f'train_cfg.val_interval={interval} is more than the {plural(length, unit)} of the run: the only '
               'validation is at the end')
    hooks = config.get('default_hooks') or {}
    yield from _checkpoint(hooks.get('checkpoint') or {}, run, unit, length, validates)
    for number, hook in enumerate(config.get('custom_hooks') or ()):
        if not hasattr(hook, 'get'):
            continue
        place = f'custom_hooks.{number} ({_name(hook)})'
        yield from _epochs(hook, place, run)
        if _name(hook) == 'EarlyStoppingHook' and length is not None:
            yield from _early_stopping(hook, place, loop, length, validates)


def _name(hook: Any) -> str:
    kind = hook.get('type')
    return kind.rpartition('.')[2] if isinstance(kind, str) else getattr(kind, '__name__', str(kind))


def _checkpoint(hook: Any, run: RunLength, unit: str, length: int | None, validates: bool) -> Iterator[str]:
    by_epoch, interval = hook.get('by_epoch', True), hook.get('interval', -1)
    place = 'default_hooks.checkpoint'
    if hook and by_epoch and not run.by_epoch:
        yield (f'{place} counts epochs, but the training loop counts iterations: the only checkpoint is the last one; '
               'set by_epoch=False and the interval in iterations')
    else:
        counted = 'epoch' if by_epoch else 'iteration'
        total = length if counted == unit else run.iterations
        if total is not None and interval > total:
            yield (f'{place}.interval={interval} is more than the {plural(total, counted)} of the run: the only '
                   'checkpoint is the last one')
        if total is not None and (hook.get('save_begin') or 0) > total:
            yield (f'{place}.save_begin={hook["save_begin"]} is after the run of {plural(total, counted)}: '
                   'no checkpoint is written but the last one')
    if hook.get('save_best') and not validates:
        yield f'{place}.save_best={hook["save_best"]!r} has no effect: the run has no validation'


def _epochs(hook: Any, place: str, run: RunLength) -> Iterator[str]:
    """Compare the epochs and iterations at which a hook acts with the run."""
    epochs = run.epochs if run.by_epoch else 1  # an iteration loop is one epoch
    limits = {'begin_epoch': epochs, 'begin_iter': run.iterations}
    if 'EMAHook' in _name(hook):
        for name, most in limits.items():
            if most is not None and (hook.get(name) or 0) > most:
                raise UserError(f'{place}: {name}={hook[name]} is after the end of the run, which would end with an '
                                f'error; set at most {most}')
    for name in ('switch_epoch', 'num_last_epochs'):
        value = hook.get(name)
        if value is not None and not run.by_epoch:
            yield f'{place}: {name}={value} has no effect, since the training loop counts iterations'
        elif value is not None and run.epochs is not None and value > run.epochs:
            yield f'{place}: {name}={value} is more than the {plural(run.epochs, "epoch")} of the run'


def _early_stopping(hook: Any, place: str, loop: Any, length: int, validates: bool) -> Iterator[str]:
    if not validates:
        yield f'{place} has no effect: the run has no validation'
        return
    interval = int(loop.get('val_interval') or 1)
    count, patience = -(-length // interval), hook.get('patience', 5)
    if patience >= count:
        yield (f'{place}: patience={patience} has no effect, since the run has '
               f'{plural(count, "validation")}')
