"""Compare the saved state of optimizer and schedules with those that the config builds, before it is loaded."""
from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from mmengine.hooks import EMAHook

from ...errors import UnusableCheckpoint, UserError
from ...utils.text import plural
from ...weights.training_state import is_number
from ..wrappers import is_several, optim_wrappers
from .resumed_config import checkpoint_config

_OF_A_TYPE = {'momentum', 'betas', 'alpha', 'rho'}  # other settings come and go with the version of torch
_PER_GROUP = ('base_values', '_last_value')  # of a schedule: one value for each parameter group
_SHAPE = (2, 3)  # of the parameter of a trial optimizer


def check_state(runner: Any, checkpoint: dict, filename: str, names: Mapping[str, Any] | None) -> None:
    """Check the state of optimizers, schedules and EMA of a checkpoint.

    Args:
        runner: with built optimizers and schedules.
        checkpoint: its training state has been checked by
            :func:`~mmkcla.weights.training_state.check_training_state`.
        filename: for the messages.
        names: the class of each optimizer of the run that wrote it; None: not recorded.

    Raises:
        UnusableCheckpoint: a value has another type or shape than in any run with this model.
        UserError: it is of a run with another optimizer, other schedules or without EMA.
    """
    check = _Check(filename)
    for name, optimizer, state in check.pairs(runner.optim_wrapper, checkpoint['optimizer']):
        place = f'optimizer.{name}' if name else 'optimizer'
        saved = str(names.get(name, '')) if names else _name_in_config(checkpoint, name)
        check.kind(optimizer, state, saved)
        check.groups(optimizer, state, place)
        check.entries(optimizer, state, place)
    check.schedules(runner.param_schedulers, checkpoint)
    check.averages(runner, checkpoint)


class _Check:
    """The checks of one file."""

    def __init__(self, filename: str) -> None:
        self.filename = filename

    def other(self, what: str) -> UserError:
        """Return the error for a checkpoint of another run."""
        return UserError(f'cannot resume from {self.filename}: {what}; to start from its weights with the new '
                         f'settings, use --cfg-options load_from={self.filename}')

    def invalid(self, what: str) -> UnusableCheckpoint:
        """Return the error for a value that cannot be used."""
        return UnusableCheckpoint(f'cannot resume from {self.filename}: {what}')

    def pairs(self, wrapper: Any, state: dict) -> Iterator[tuple[str, torch.optim.Optimizer, dict]]:
        """Yield name, built optimizer and saved state of each optimizer."""
        several = is_several(wrapper)
        if several == ('param_groups' in state):
            raise self.other(f'it has {"one optimizer" if several else "several optimizers"}, the config has '
                             f'{"several" if several else "one"}')
        for name, one in optim_wrappers(wrapper).items():
            if several and not isinstance(state.get(name), dict):
                raise self.other(f'it has no optimizer {name!r}')
            yield name, one.optimizer, state[name] if several else state

    def kind(self, optimizer: torch.optim.Optimizer, state: dict, saved: str) -> None:
        """Compare the classes of the optimizers."""
        now, groups = type(optimizer).__name__, state['param_groups']
        if saved and saved != now:
            raise self.other(f'its optimizer is {saved}, the config has {now}')
        if not groups:
            return
        if missing := set(optimizer.defaults) & _OF_A_TYPE - set(groups[0]):
            raise self.other(f'its optimizer has no {", ".join(sorted(missing))}, so it is not {now}, the optimizer of '
                             'the config')
        decoupled = optimizer.defaults.get('decoupled_weight_decay')  # tells AdamW from Adam in recent torch
        if decoupled is not None and groups[0].get('decoupled_weight_decay', decoupled) != decoupled:
            raise self.other(f'its optimizer {"does not decouple" if decoupled else "decouples"} the weight decay, so '
                             f'it is not {now}, the optimizer of the config')

    def groups(self, optimizer: torch.optim.Optimizer, state: dict, place: str) -> None:
        """Compare the parameter groups: their number, sizes and settings."""
        saved, built = state['param_groups'], optimizer.param_groups
        if len(saved) != len(built):
            raise self.other(f'it has {plural(len(saved), "parameter group")}, the config makes {len(built)} '
                             '(optim_wrapper.paramwise_cfg)')
        trial = _trial(optimizer)
        for number, (group, own) in enumerate(zip(saved, built, strict=True)):
            where = f'{place}.param_groups[{number}]'
            if len(group['params']) != len(own['params']):
                raise self.other(f'its parameter group {number} has {plural(len(group["params"]), "parameter")}, that '
                                 f'of the config {len(own["params"])}')
            for key in own.keys() & group.keys() - {'params'}:
                if not _fits(group[key], own[key]):
                    raise self.invalid(f'its {where}.{key} is {_shown(group[key])}; expected {_shown(own[key])}, or '
                                       'another value of that type')
            missing = _missing(trial, optimizer, group)
            if missing:
                raise self.invalid(f'its {where} has no {", ".join(missing)}')

    def entries(self, optimizer: torch.optim.Optimizer, state: dict, place: str) -> None:
        """Compare the values that the optimizer keeps for each parameter with those of a trial step."""
        trial = _trial(optimizer)
        expected = next(iter(trial.state.values()), {}) if trial is not None else {}
        parameters = {index: parameter for group, own in zip(state['param_groups'], optimizer.param_groups, strict=True)
                      for index, parameter in zip(group['params'], own['params'], strict=True)}
        for index, values in state['state'].items():
            if index not in parameters:
                continue
            shape = parameters[index].shape
            for key, value in expected.items():
                where = f'{place}.state.{index}'
                if key not in values:
                    raise self.invalid(f'its {where} has no {key}')
                if value is None or values[key] is None:
                    continue
                full = isinstance(value, torch.Tensor) and value.shape == _SHAPE
                found = getattr(values[key], 'shape', None)
                if full and found != shape or not full and not _fits(values[key], value):
                    raise self.invalid(f'its {where}.{key} is {_shown(values[key])}; expected '
                                       + (f'a tensor of shape {tuple(shape)}' if full else _shown(value)))

    def schedules(self, built: Any, checkpoint: dict) -> None:
        """Compare number, types and values of the schedules."""
        several = isinstance(built, dict)
        own = built if several else {'': built or []}
        states = checkpoint.get('param_schedulers', {name: [] for name in own} if several else [])
        if several != isinstance(states, dict) or several and set(states) != set(own):
            raise self.other('its schedules are for other optimizers than those of the config')
        for name, schedulers in own.items():
            saved = states[name] if several else states
            if len(saved) != len(schedulers):
                raise self.other(f'it has {plural(len(saved), "scheduler")}, the config has {len(schedulers)}')
            for number, (state, scheduler) in enumerate(zip(saved, schedulers, strict=True)):
                self.schedule(state, scheduler, f'{name} {number}'.strip(), checkpoint['meta'])

    def schedule(self, state: dict, scheduler: Any, number: str, meta: dict) -> None:
        """Compare the state of a schedule with that of a built one."""
        own = scheduler.state_dict()
        if set(state) != set(own) or state.get('param_name') != own.get('param_name'):
            raise self.other(f'its scheduler {number} is not {type(scheduler).__name__}, the type in the config')
        for key, value in own.items():
            if callable(value):  # OneCycleLR: checkpoints have the name of the function
                state[key] = value
            elif not _fits(state[key], value, key in _PER_GROUP):
                raise self.invalid(f'its scheduler {number} has {key}={_shown(state[key])}; expected {_shown(value)}, '
                                   'or another value of that type')
        for key in ('last_step', '_global_step'):
            if not -1 <= state.get(key, 0) <= meta['iter']:
                raise self.invalid(f'its scheduler {number} has {key}={_shown(state[key])}; expected at most '
                                   f'meta.iter, {meta["iter"]}')

    def averages(self, runner: Any, checkpoint: dict) -> None:
        """Compare the entry of ``EMAHook``, which is the place of the weights that the optimizer continues with."""
        saved = checkpoint.get('ema_state_dict')
        hook = next((one for one in runner.hooks if isinstance(one, EMAHook)), None)
        if saved is None:
            return
        if hook is None:
            raise self.other('its weights are averages (EMA), and the config has no EMAHook')
        own = hook.ema_model.state_dict()
        if not isinstance(saved, Mapping):
            raise self.invalid(f'its ema_state_dict is {_shown(saved)}; expected a dict')
        for name, value in own.items():
            if getattr(saved.get(name), 'shape', None) != value.shape:
                raise self.invalid(f'its ema_state_dict has {_shown(saved.get(name))} for {name}; expected a tensor of '
                                   f'shape {tuple(value.shape)}')


def _name_in_config(checkpoint: dict, name: str) -> str:
    """Return the class of an optimizer according to the config in the checkpoint; '' if there is none."""
    part = checkpoint_config(checkpoint).get('optim_wrapper')
    for key in filter(None, (name, 'optimizer', 'type')):
        part = part.get(key) if isinstance(part, dict) else None
    return part.rpartition('.')[2] if isinstance(part, str) else ''


def _trial(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer | None:
    """Return an optimizer of the same class and settings after a step; None if its constructor has other arguments."""
    parameter = torch.nn.Parameter(torch.zeros(_SHAPE))
    parameter.grad = torch.zeros(_SHAPE)
    try:
        known = inspect.signature(type(optimizer)).parameters
        settings = {key: value for key, value in optimizer.defaults.items() if key in known}
        trial = type(optimizer)([parameter], **settings)
        trial.step()
    except Exception:  # an optimizer of another package may raise anything
        return None
    return trial


def _missing(trial: torch.optim.Optimizer | None, optimizer: torch.optim.Optimizer, group: dict) -> list[str]:
    """Return the settings that a saved group lacks, and that the optimizer does not complete itself."""
    if trial is None:
        return []
    copy = type(trial).__new__(type(trial))
    copy.__dict__.update(trial.__dict__)
    try:
        copy.load_state_dict(dict(state={}, param_groups=[{**group, 'params': [0]}]))
    except (KeyError, TypeError, ValueError, AttributeError):
        return sorted(set(optimizer.defaults) - set(group))
    return sorted(set(optimizer.defaults) - set(copy.param_groups[0]))


def _fits(value: Any, own: Any, same_length: bool = True) -> bool:
    """Whether a value has the type of a built one: number, true or false, text, or a list of them."""
    if isinstance(own, bool):
        return isinstance(value, (bool, type(None)))
    if is_number(own, finite=False):
        return is_number(value, finite=False)
    if isinstance(own, (list, tuple)):
        return (isinstance(value, (list, tuple)) and (len(value) == len(own) or not same_length)
                and all(_fits(item, one) for item, one in zip(value, own, strict=False)))
    if isinstance(own, Mapping) and all(map(is_number, own)):  # milestones and their counts
        return isinstance(value, Mapping) and all(is_number(item) for pair in value.items() for item in pair)
    if isinstance(own, Mapping):
        return (isinstance(value, Mapping) and own.keys() <= value.keys()
                and all(_fits(value[key], item) for key, item in own.items()))
    return not isinstance(own, str) or isinstance(value, str)


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f'a tensor of shape {tuple(value.shape)}'
    return repr(value)[:60]
