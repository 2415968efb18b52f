"""Set the rule of each hook and schedule that compares values of a metric: greater or less."""
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ...errors import UserError
from ...evaluation.directions import rule_for
from ...evaluation.names import nearest_name
from ...utils.text import note

if TYPE_CHECKING:
    from mmengine.config import Config


def set_rules(config: 'Config') -> None:
    """Set ``rule`` of checkpoint hooks with ``save_best``, of ``EarlyStoppingHook`` and of ``ReduceOnPlateau…``.

    A rule that contradicts the metric, often inherited from a base config for another metric, is replaced and
    reported.

    Raises:
        UserError: the direction of a metric is unknown and no rule is given.
    """
    for hook, where in _hooks(config):
        if hook.get('save_best') and not (hook.get('greater_keys') or hook.get('less_keys')):
            _set_best_rules(hook, where)
        elif _is_named(hook, 'EarlyStoppingHook') and hook.get('monitor'):
            _set(hook, hook['monitor'], hook.get('rule'), where)
    for part, where in _schedulers(config):
        if _is_named(part, 'ReduceOnPlateau') and part.get('monitor'):
            _set(part, part['monitor'], part.get('rule', 'less'), where)


def check_monitors(config: 'Config', names: Iterable[str]) -> None:
    """Check that the metrics that hooks and schedules wait for are among ``names``; without them they do nothing.

    Raises:
        UserError: the first one that is not.
    """
    names = list(names)
    for hook, where in _hooks(config):
        monitor = hook.get('monitor')
        if _is_named(hook, 'EarlyStoppingHook') and monitor not in names:
            raise UserError(f'{where}.monitor={monitor!r} is not a validation metric{nearest_name(monitor, names)}, so '
                            f'the training would never stop early; available: {", ".join(names) or "none"}')
    for part, where in _schedulers(config):
        monitor = part.get('monitor', 'loss')  # mmengine's default
        if _is_named(part, 'ReduceOnPlateau') and part.get('by_epoch', True) and monitor not in names:
            raise UserError(f'{where}.monitor={monitor!r} is not a validation metric{nearest_name(monitor, names)}, '
                            'and the training would end with an error at the first validation; available: '
                            f'{", ".join(names) or "none"}')


def _set_best_rules(hook: dict, where: str) -> None:
    metrics, rules = hook['save_best'], hook.get('rule')
    many = isinstance(metrics, (list, tuple))
    metrics = list(metrics) if many else [metrics]
    if metrics == ['auto']:
        return  # decided by the first validation
    given = list(rules) if isinstance(rules, (list, tuple)) else [rules]
    if len(given) == 1:
        given *= len(metrics)
    if len(given) != len(metrics):
        raise UserError(f'{where}.rule has {len(given)} entries, save_best has {len(metrics)}')
    found = [_rule(metric, rule, where) for metric, rule in zip(metrics, given, strict=True)]
    hook['rule'] = found if many else found[0]


def _set(part: dict, metric: str, given: str | None, where: str) -> None:
    part['rule'] = _rule(metric, given, where)


def _rule(metric: str, given: str | None, where: str) -> str:
    rule, changed = rule_for(metric, given, where)
    if changed:
        note(changed)
    return rule


def _hooks(config: 'Config') -> list[tuple[dict, str]]:
    hooks = [(hook, f'default_hooks.{name}') for name, hook in (config.get('default_hooks') or {}).items()]
    hooks += [(hook, f'custom_hooks[{number}]') for number, hook in enumerate(config.get('custom_hooks') or [])]
    return [(hook, where) for hook, where in hooks if isinstance(hook, dict)]


def _schedulers(config: 'Config') -> list[tuple[dict, str]]:
    parts = config.get('param_scheduler') or []
    parts = parts if isinstance(parts, (list, tuple)) else [parts]
    return [(part, f'param_scheduler[{number}]') for number, part in enumerate(parts) if isinstance(part, dict)]


def _is_named(part: dict, name: str) -> bool:
    kind: Any = part.get('type')
    return (kind if isinstance(kind, str) else getattr(kind, '__name__', '')).split('.')[-1].startswith(name)
