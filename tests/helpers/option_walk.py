"""Values for the entries of a config, one at a time, and whether an accepted one is in effect."""
import math
from collections.abc import Iterator
from typing import Any

from campaign import Outcome, check, run

from mmkcla.runtime.options import parse_option

VALUES = ('None', '-1', '0', '1', '1.5', '-0.5', 'nan', 'inf', '1e30', 'text', "''", '[]', '{}', '[1,2]', '(3,)',
          'True', 'False', "dict(type='X')", 'dict(a=1)', '[None]', '[[]]', 'file.pkl', "[dict(type='X')]", "['a','b']",
          '-64', '(-1,-1)', '(64,0)', '(0.5,2)', '7', "'1'", '["all"]', '-1e-3', '1,2,3', '9223372036854775808')
# Would fill the machine, or switch to another kind of run. They are limited or refused elsewhere.
SKIPPED = ('num_workers', 'launcher', 'work_dir', 'mp_start_method', 'custom_imports', '_scope_')


def places(config: Any, prefix: str = '') -> Iterator[str]:
    """The dotted keys of all entries, inner ones, too."""
    items = config.items() if isinstance(config, dict) else enumerate(config)
    for key, value in items:
        if str(key) in SKIPPED:
            continue
        yield f'{prefix}{key}'
        if isinstance(value, (dict, list)):
            yield from places(value, f'{prefix}{key}.')


def value_at(config: Any, place: str) -> Any:
    for part in place.split('.'):
        config = config[int(part)] if isinstance(config, (list, tuple)) else config[part]
    return config


def same(value: Any, other: Any) -> bool:
    return value == other or str(value) == str(other) or (isinstance(value, float) and math.isnan(value))


def train_with(config: str, option: str) -> Outcome:
    """Start a training with an option: it ends without a traceback, and if it starts, the option is in effect."""
    outcome = run(['train', config, '--work-dir', 'w', '--cfg-options', option])
    check(outcome, f'{config} {option}')
    if outcome.runner is not None and outcome.code == 0:
        place, wanted = parse_option(option)
        if not isinstance(wanted, dict):  # which is merged
            found = value_at(outcome.runner.cfg, place)
            assert same(found, wanted) or 'note' in outcome.text, f'{config} {option}: {found!r} is in effect'
    return outcome
