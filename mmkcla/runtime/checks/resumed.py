"""What of a config a resumed training does not use: optimizer and schedules continue with their saved values."""
from __future__ import annotations

from typing import Any

from ...errors import UserError
from ...utils.text import listed, plural
from ..wrappers import optim_wrappers

# what changes in the course of a run, or follows from other values
_RUNNING = {'last_step', '_global_step', '_last_value', 'base_values', 'verbose', 'best', 'num_bad_epochs',
            'cooldown_counter', 'need_val_args', 'rule_worse', '_is_better', 'params', 'param_names'}
Values = dict[str, list[Any]]


def settings_of(runner: Any) -> Values:
    """Return the settings of the built optimizer and schedulers of a runner, by their names in messages."""
    values: Values = {}
    for name, wrapper in optim_wrappers(runner.optim_wrapper).items():
        for group in wrapper.optimizer.param_groups:
            for key, value in _of_group(group).items():
                values.setdefault(f'{name}.{key}' if name else key, []).append(value)
    schedulers = runner.param_schedulers or []
    lists = schedulers.items() if isinstance(schedulers, dict) else [('', schedulers)]
    for name, each in lists:
        for number, scheduler in enumerate(each):
            place = f'param_scheduler.{name}.{number}' if name else f'param_scheduler.{number}'
            for key, value in scheduler.state_dict().items():
                if key not in _RUNNING and not callable(value):
                    values[f'{place}.{key}'] = [sorted(value.elements()) if hasattr(value, 'elements') else value]
    return values


def _of_group(group: dict) -> dict[str, Any]:
    """Return the settings of a group. Its first values are compared, since schedules change the present ones."""
    found = {key: value for key, value in group.items() if key not in _RUNNING and not key.startswith('initial_')
             and f'initial_{key}' not in group and isinstance(value, (int, float, tuple, list, str, bool, type(None)))}
    return found | {key.removeprefix('initial_'): value for key, value in group.items() if key.startswith('initial_')}


def unused_settings(wanted: Values, used: Values) -> list[str]:
    """Return one line for each setting of the config that the resumed run does not use."""
    lines = []
    for name, values in wanted.items():
        resumed = used.get(name, [])
        different = [(old, new) for old, new in zip(resumed, values, strict=False) if not _equal(old, new)]
        if different:
            old, new = different[0]
            where = f' in {len(different)} of {plural(len(values), "parameter group")}' if len(values) > 1 else ''
            lines.append(f'{name} {old} (config: {new}){where}')
    return lines


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return list(one) == list(other)
    if isinstance(one, float) and isinstance(other, (int, float)):
        return abs(one - other) <= 1e-9 * max(abs(one), abs(other))
    return bool(one == other)


def unused_line(lines: list[str], filename: str) -> str:
    """Return the note for :func:`unused_settings`."""
    return (f'resumed values stay: {listed(lines, 12)}; to start with the values of the config, use --cfg-options '
            f'load_from={filename} without --resume')


def finished_line(loop: Any, by_epoch: bool, filename: str) -> str | None:
    """Return a note if nothing is left to train.

    Raises:
        UserError: the checkpoint is beyond the end of the run.
    """
    name, done, most = ('max_epochs', loop.epoch, loop.max_epochs) if by_epoch else ('max_iters', loop.iter,
                                                                                     loop.max_iters)
    unit = 'epoch' if by_epoch else 'iteration'
    if done > most:
        raise UserError(f'{filename} is at {unit} {done}, but train_cfg.{name} is {most}: nothing is left to train; '
                        f'set train_cfg.{name} to more than {done}')
    if done == most:
        return (f'{filename} is at {unit} {done} of {most}: the training is finished, nothing is left to train; to '
                f'continue, set train_cfg.{name} to more than {done}')
    return None
