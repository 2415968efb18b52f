"""Compare schedules, hooks and validation with the length of the run."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import UserError
from ...utils.text import plural
from .hooks import hook_notes
from .run_length import RunLength

if TYPE_CHECKING:
    from mmengine.config import Config

_NEAR = 0.9  # a part of the run's length that counts as the whole


@dataclass(frozen=True)
class _Schedule:
    """A scheduler of a config with its place, and the length of the run in the unit that it counts."""

    place: str
    entries: dict
    length: float | None

    @property
    def kind(self) -> str:
        kind = self.entries.get('type')
        return kind.rpartition('.')[2] if isinstance(kind, str) else getattr(kind, '__name__', str(kind))

    @property
    def title(self) -> str:
        return f'{self.place} ({self.kind})'

    @property
    def by_epoch(self) -> bool:
        return bool(self.entries.get('by_epoch', True))

    @property
    def begin(self) -> float:
        return self.entries.get('begin') or 0

    @property
    def end(self) -> float:
        """The configured end; mmengine's default is the end of the run."""
        end = self.entries.get('end')
        return (self.length or float('inf')) if end is None else end

    @property
    def is_warm_up(self) -> bool:
        return self.kind.startswith(('Linear', 'Constant'))

    @property
    def is_plateau(self) -> bool:
        return self.kind.startswith('ReduceOnPlateau')

    def count(self, number: float) -> str:
        return plural(int(number), 'epoch' if self.by_epoch else 'iteration')


def check_schedules(config: Config, run: RunLength) -> list[str]:
    """Compare the schedulers, hooks and validation of a config with the run.

    Returns:
        One line for each setting that has no effect, or another one than its numbers suggest.

    Raises:
        UserError: a schedule would never advance, or the run would fail later.
    """
    schedules = [_Schedule(place, part, run.units(bool(part.get('by_epoch', True))))
                 for place, part in _schedulers(config.get('param_scheduler'), 'param_scheduler')]
    for schedule in schedules:
        _check_unit(schedule, run)
    optimizer = (config.get('optim_wrapper') or {}).get('optimizer') or {}
    return [*(line for schedule in schedules for line in (*_notes(schedule), *_of_optimizer(schedule, optimizer))),
            *_ends_early(schedules),
            *hook_notes(config, run)]


def _schedulers(part: Any, place: str) -> Iterator[tuple[str, dict]]:
    if isinstance(part, (list, tuple)):
        for number, inner in enumerate(part):
            yield from _schedulers(inner, f'{place}.{number}')
    elif isinstance(part, dict):
        if 'type' in part:
            yield place, part
        else:  # one list for each of several optimizers
            for name, inner in part.items():
                yield from _schedulers(inner, f'{place}.{name}')


def _check_unit(schedule: _Schedule, run: RunLength) -> None:
    convert = schedule.entries.get('convert_to_iter_based')
    if convert and not schedule.by_epoch:
        raise UserError(f'{schedule.title}: convert_to_iter_based=True needs by_epoch=True, with numbers in epochs')
    if not run.by_epoch and schedule.by_epoch and not convert and not schedule.is_plateau:
        raise UserError(f'{schedule.title} counts epochs, but the training loop counts iterations: it would never '
                        'change anything; set by_epoch=False and its numbers in iterations, or param_scheduler=[] for '
                        'a constant rate')
    total, length = schedule.entries.get('total_steps'), schedule.length
    if total is not None and length is not None and total < min(schedule.end, length) - schedule.begin:
        raise UserError(f'{schedule.title}: total_steps={total} is less than the {schedule.count(length)} of the run, '
                        f'which would fail there; set total_steps={int(min(schedule.end, length) - schedule.begin)}')


def _notes(schedule: _Schedule) -> Iterator[str]:
    length = schedule.length
    if length is None:
        return
    if schedule.begin >= length:
        yield (f'{schedule.title} begins after {schedule.count(schedule.begin)}, but the run has '
               f'{schedule.count(length)}: it has no effect')
        return
    stop = min(schedule.end, length)
    milestones = schedule.entries.get('milestones')
    if milestones is not None and not milestones:
        yield f'{schedule.title}: milestones=[] has no effect: the value never changes'
    elif milestones is not None:
        late = [milestone for milestone in milestones if schedule.begin + milestone >= stop]
        if late:
            yield (f'{schedule.title}: the milestones {", ".join(map(str, late))} are not reached, since '
                   f'{"the run" if stop == length else "the schedule"} ends after {schedule.count(stop)}')
    elif schedule.end > length and not schedule.is_plateau and not schedule.kind.startswith(('Step', 'Exponential')):
        what = 'the warm-up is not finished' if schedule.is_warm_up else 'its last values are not reached'
        yield (f'{schedule.title} ends after {schedule.count(schedule.end)}, but the run has '
               f'{schedule.count(length)}: {what}')
    else:
        yield from _period(schedule, stop - schedule.begin)


def _of_optimizer(schedule: _Schedule, optimizer: Any) -> Iterator[str]:
    """Compare a schedule with the values of the optimizer from which it starts."""
    rate, least = optimizer.get('lr'), schedule.entries.get('eta_min')
    if schedule.kind.endswith('LR') and least is not None and rate is not None and least > rate:
        yield f'{schedule.title}: eta_min={least} is above the learning rate {rate}, which rises to it'
    kind = optimizer.get('type')
    kind = kind if isinstance(kind, str) else getattr(kind, '__name__', '')
    if schedule.kind.endswith('Momentum') and kind.rpartition('.')[2] in ('SGD', 'RMSprop') and not optimizer.get(
            'momentum'):
        yield f'{schedule.title} has no effect: the momentum of {kind} is 0'


def _period(schedule: _Schedule, span: float) -> Iterator[str]:
    """Compare the half period of a cosine, or the steps of a cycle, with the span of the schedule."""
    name = next((name for name in ('T_max', 'total_steps') if schedule.entries.get(name)), None)
    if name is None:
        return
    period = schedule.entries[name]
    if name == 'T_max' and period < _NEAR * span:
        yield (f'{schedule.title}: T_max={period} is less than its {schedule.count(span)}: the value rises again after '
               f'{schedule.count(period)}')
    elif period * _NEAR > span:
        yield (f'{schedule.title}: {name}={period} is more than its {schedule.count(span)}: its last values are not '
               'reached')


def _ends_early(schedules: list[_Schedule]) -> Iterator[str]:
    """Report if all schedules end long before the run, as after an extension of the run alone."""
    rates = [schedule for schedule in schedules if schedule.length and not schedule.is_plateau
             and not schedule.kind.endswith('Momentum')]
    if not rates or all(schedule.is_warm_up for schedule in rates):
        return
    last = max(rates, key=lambda schedule: schedule.end / (schedule.length or 1))
    if last.length and last.end < _NEAR * last.length:
        yield (f'{last.title} ends after {last.count(last.end)} of {last.count(last.length)}: the learning rate is '
               'constant from there')
