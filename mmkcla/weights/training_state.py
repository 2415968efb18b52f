"""Check the training state of a checkpoint before a run is resumed from it.

Unpickling is safe (:mod:`~mmkcla.weights.reading`), but mmengine uses what was unpickled: a stored config would be
evaluated, a wrong type ends in a traceback in the middle of the run, and a value that is not finite spoils the weights.
"""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ..errors import UnusableCheckpoint

_LARGEST = 2 ** 62
_COUNTERS = ('epoch', 'iter')
_TEXTS = ('cfg', 'experiment_name', 'time', 'mmengine_version', 'hash')
_HUB = ('log_scalars', 'runtime_info', 'resumed_keys')
_RUN_COUNTERS = ('iter', 'epoch', 'max_iters', 'max_epochs', 'non_finite_skipped')
_PATHS = ('last_ckpt', 'best_ckpt', 'interruption_checkpoint')
_INFINITE = ('end', 'best', 'rule_worse')  # of a schedule: no end, and no value yet for ReduceOnPlateau
_NOT_NEGATIVE = ('lr', 'initial_lr', 'weight_decay', 'momentum', 'dampening', 'eps')


def check_training_state(checkpoint: dict[str, Any], source: str) -> None:
    """Check ``meta``, ``message_hub``, ``optimizer`` and ``param_schedulers`` of a checkpoint, in place.

    ``meta['config']`` is removed: mmengine would run it as Python code.

    Args:
        checkpoint: as returned by :func:`~mmkcla.weights.reading.read_checkpoint`.
        source: its file, for the messages.

    Raises:
        UnusableCheckpoint: the first part that is missing, has the wrong type or is out of range.
    """
    check = _Check(source)
    check.meta(checkpoint.get('meta'))
    check.message_hub(checkpoint.get('message_hub'))
    optimizer = checkpoint.get('optimizer')
    if optimizer is None:
        raise UnusableCheckpoint(f'cannot resume from {source}: it has no optimizer state, as best_* and published '
                                 f'checkpoints do not; to start from its weights, use --cfg-options load_from={source}')
    check.optimizers(optimizer)
    check.schedulers(checkpoint.get('param_schedulers', []))
    check.counters(checkpoint['meta'], checkpoint['message_hub']['runtime_info'], 'exact_resume' in checkpoint)


class _Check:
    """The checks of one file."""

    def __init__(self, source: str) -> None:
        self.source = source

    def expect(self, valid: bool, place: str, value: Any, expected: str) -> None:
        if not valid:
            text = repr(value) if isinstance(value, (str, int, float, type(None))) else f'a {type(value).__name__}'
            raise UnusableCheckpoint(f'cannot resume from {self.source}: its {place} is {text[:80]}; '
                                     f'expected {expected}')

    def meta(self, meta: Any) -> None:
        self.expect(isinstance(meta, dict), 'meta', meta, 'a dict')
        meta.pop('config', None)
        for name in _COUNTERS:
            self.expect(_is_count(meta.get(name)), f'meta.{name}', meta.get(name), 'an integer of at least 0')
        seed = meta.get('seed')
        self.expect(seed is None or _is_count(seed) and seed < 2 ** 32, 'meta.seed', seed, 'an integer below 2**32')
        for name in _TEXTS:
            self.expect(isinstance(meta.get(name), (str, type(None))), f'meta.{name}', meta.get(name), 'text')
        self.expect(isinstance(meta.get('dataset_meta'), (dict, type(None))), 'meta.dataset_meta',
                    meta.get('dataset_meta'), 'a dict')

    def message_hub(self, hub: Any) -> None:
        self.expect(isinstance(hub, dict), 'message_hub', hub, 'a dict')
        for name in _HUB:
            part = hub.get(name)
            self.expect(isinstance(part, dict) and all(isinstance(key, str) for key in part), f'message_hub.{name}',
                        part, 'a dict with names')
        for key, value in hub['log_scalars'].items():  # mmengine skips numbers, which its first versions stored
            self.expect(type(value).__name__ == 'HistoryBuffer' or is_number(value, finite=False),
                        f'message_hub.log_scalars.{key}', value, 'a history of numbers')
        for key, value in hub['resumed_keys'].items():
            self.expect(isinstance(value, bool), f'message_hub.resumed_keys.{key}', value, 'true or false')
        info = hub['runtime_info']
        for key in _RUN_COUNTERS:
            self.expect(key not in info or _is_count(info[key]), f'message_hub.runtime_info.{key}', info.get(key),
                        'an integer of at least 0')
        for key, value in info.items():
            if key.startswith(_PATHS):
                self.expect(isinstance(value, (str, type(None))), f'message_hub.runtime_info.{key}', value, 'a path')
            elif key.startswith('best_score'):
                self.expect(is_number(value), f'message_hub.runtime_info.{key}', value, 'a finite number')
        steps = info.get('keep_ckpt_ids', [])
        self.expect(isinstance(steps, (list, tuple)) and all(map(_is_count, steps)),
                    'message_hub.runtime_info.keep_ckpt_ids', steps, 'a list of integers')

    def optimizers(self, state: Any) -> None:
        self.expect(isinstance(state, dict), 'optimizer', state, 'a dict')
        if 'param_groups' in state:
            self.optimizer(state, 'optimizer')
            return
        for name, part in state.items():  # of an OptimWrapperDict
            if isinstance(part, dict):
                self.optimizer(part, f'optimizer.{name}')

    def optimizer(self, state: dict, place: str) -> None:
        groups, values = state.get('param_groups'), state.get('state')
        self.expect(isinstance(groups, list) and all(isinstance(group, dict) for group in groups),
                    f'{place}.param_groups', groups, 'a list of dicts')
        for number, group in enumerate(groups):  # type: ignore[arg-type]
            where = f'{place}.param_groups[{number}]'
            parameters = group.get('params')
            self.expect(isinstance(parameters, list) and all(map(_is_count, parameters)), f'{where}.params', parameters,
                        'a list of integers')
            for key, value in group.items():
                if key != 'params':
                    self.finite(value, f'{where}.{key}')
            for key in _NOT_NEGATIVE:
                value = group.get(key, 0)
                self.expect(value is None or is_number(value) and value >= 0, f'{where}.{key}', value,
                            'a number of at least 0')
        self.expect(isinstance(values, dict) and all(isinstance(value, dict) for value in values.values()),
                    f'{place}.state', values, 'a dict of dicts')
        known = {number for group in groups for number in group['params']}  # type: ignore[union-attr]
        unknown = [key for key in values if not isinstance(key, str) and key not in known]  # type: ignore[union-attr]
        self.expect(not unknown, f'{place}.state', values, f'no entry {unknown[:1]}, which is in no parameter group')
        self.finite(values, f'{place}.state')

    def schedulers(self, states: Any) -> None:
        self.expect(isinstance(states, (list, dict)), 'param_schedulers', states, 'a list')
        lists = states.values() if isinstance(states, dict) else [states]
        for number, part in enumerate(lists):
            self.expect(isinstance(part, list) and all(isinstance(state, dict) for state in part),
                        f'param_schedulers{f"[{number}]" if isinstance(states, dict) else ""}', part, 'a list of dicts')
        self.finite(states, 'param_schedulers')

    def counters(self, meta: dict, info: dict, ours: bool) -> None:
        """Check that the counters agree. Both places are written in the same step; ``ours``: by the loops of this
        package."""
        self.expect(meta['epoch'] <= meta['iter'], 'meta.epoch', meta['epoch'],
                    f'at most meta.iter, {meta["iter"]}; an epoch has an iteration or more')
        for key in _COUNTERS if ours else ():
            place = f'message_hub.runtime_info.{key}'
            self.expect(key not in info or info[key] <= meta[key] <= info[key] + 1, f'meta.{key}', meta[key],
                        f'{info.get(key)} or one more, as {place}')

    def finite(self, value: Any, place: str) -> None:
        """Refuse NaN and infinities anywhere below ``value``, except for those of :data:`_INFINITE`."""
        if isinstance(value, Mapping):
            for key, item in value.items():
                if key not in _INFINITE:
                    self.finite(item, f'{place}.{key}')
        elif isinstance(value, torch.Tensor):
            if value.is_floating_point() and not torch.isfinite(value).all():
                self.expect(False, place, float('nan'), 'finite numbers; the training had diverged before it was saved')
        elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
            for number, item in enumerate(value):
                self.finite(item, f'{place}[{number}]')
        elif isinstance(value, (float, np.floating)):
            self.expect(math.isfinite(value), place, float(value), 'a finite number')


def _is_count(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and 0 <= value <= _LARGEST


def is_number(value: Any, finite: bool = True) -> bool:
    """Whether ``value`` is a number, or a tensor with one; ``finite``: neither NaN nor infinite."""
    if isinstance(value, torch.Tensor):
        return value.numel() == 1 and (not finite or bool(torch.isfinite(value).all()))
    return (isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
            and (not finite or math.isfinite(value)))  # type: ignore[arg-type]
