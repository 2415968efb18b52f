"""Check that the numbers of a config are possible: learning rates, loss weights, intervals, batch sizes."""
from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import UserError
from ...utils.text import listed, one_line
from ..moved_variables import TRAINING_KEYS, keys_read

if TYPE_CHECKING:
    from mmengine.config import Config


@dataclass(frozen=True)
class Rule:
    """A rule for the numbers whose dotted place matches ``places``: ``valid`` holds, in words ``needed``."""

    places: str
    valid: Callable[[Any], bool]
    needed: str


def _finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _integer(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _at_least(least: int) -> Callable[[Any], bool]:
    return lambda value: _integer(value, least)


def _length(value: Any) -> bool:
    """Whether it is the length of a run or an interval; mmengine takes 1e3, too."""
    return _finite(value) and value == int(value) >= 1


_POSITIVE = (lambda value: _finite(value) and value > 0, 'a finite number above 0')
_NOT_NEGATIVE = (lambda value: _finite(value) and value >= 0, 'a finite number of at least 0')
_FINITE = (_finite, 'a finite number')
_BELOW_ONE = (lambda value: _finite(value) and 0 <= value < 1, 'a number from 0 to below 1')
_SHARE = (lambda value: _finite(value) and 0 <= value <= 1, 'a number from 0 to 1')
_FROM_ONE = (_at_least(1), 'an integer of at least 1')
_FROM_ZERO = (_at_least(0), 'an integer of at least 0')
_OR_NEVER = (lambda value: _integer(value, 1) or value == -1 and not isinstance(value, bool),
             'an integer of at least 1, or -1 for never')
_DTYPES = ('float16', 'bfloat16', 'float32', 'float64')
_ITEM = r'(\.\d+)?'
_HOOKS = r'(default_hooks\.\w+|custom_hooks\.\d+)'
_OPTIMIZER = r'optim_wrapper\.(\w+\.)?optimizer'
_SCHEDULER = r'param_scheduler(\.\w+)*'
_NORM = r'.*norm_cfg'

RULES = tuple(Rule(*rule) for rule in (
    (r'\w+_dataloader\.batch_size', *_FROM_ONE),
    (r'\w+_dataloader\.num_workers', *_FROM_ZERO),
    (r'\w+_dataloader\.prefetch_factor', *_FROM_ONE),
    (r'train_cfg\.(max_iters|max_epochs|val_interval)', _length, _FROM_ONE[1]),
    (r'train_cfg\.val_begin', *_FROM_ZERO),
    (rf'{_OPTIMIZER}\.lr', *_POSITIVE),
    (rf'{_OPTIMIZER}\.(weight_decay|eps)', *_NOT_NEGATIVE),
    (rf'{_OPTIMIZER}\.(momentum|betas\.\d+|rho|alpha)', *_BELOW_ONE),
    (rf'{_OPTIMIZER}\.betas', lambda value: False, 'two numbers, e.g. (0.9,0.999)'),  # a number or text
    (r'optim_wrapper\.(\w+\.)?accumulative_counts', *_FROM_ONE),
    (r'optim_wrapper\.(\w+\.)?clip_grad\.(max_norm|clip_value)', lambda value: value == math.inf or _POSITIVE[0](value),
     'a number above 0'),
    (r'optim_wrapper\.(\w+\.)?clip_grad\.norm_type', lambda value: value == math.inf or _POSITIVE[0](value),
     'a number above 0'),
    (r'optim_wrapper\.(\w+\.)?loss_scale', lambda value: value == 'dynamic' or isinstance(value, float) and value > 0,
     "'dynamic', or a number above 0 with a decimal point"),
    (r'optim_wrapper\.(\w+\.)?dtype', lambda value: value in _DTYPES, f'one of {listed(_DTYPES, 4)}'),
    (r'optim_wrapper\..*_mult', *_NOT_NEGATIVE),
    (rf'{_SCHEDULER}\.(T_max|step_size|total_steps|milestones\.\d+)', *_FROM_ONE),
    (rf'{_SCHEDULER}\.(begin|end)', *_FROM_ZERO),
    (rf'{_SCHEDULER}\.(gamma|power)', *_POSITIVE),
    (rf'{_SCHEDULER}\.(eta_min|eta_min_ratio|start_factor|end_factor|factor|eta_max)', *_NOT_NEGATIVE),
    (rf'model\..*(loss_weight|class_weight){_ITEM}', *_NOT_NEGATIVE),
    (rf'model\..*loss_weights{_ITEM}', *_NOT_NEGATIVE),
    (r'model\..*dropout_ratio', lambda value: _SHARE[0](value) or value == -1, _SHARE[1]),  # -1: none, in mmseg
    (r'model\..*(drop_path|drop_path_rate|drop_rate|attn_drop_rate)', *_SHARE),
    (r'model\..*num_classes', *_FROM_ONE),
    (r'model\.\w+_head(\.\d+)?\.threshold', *_SHARE),
    (r'\w+_dataloader\..*filter_cfg\.min_size', *_NOT_NEGATIVE),
    (rf'{_NORM}\.momentum', *_SHARE),
    (rf'{_NORM}\.eps', *_NOT_NEGATIVE),
    (r'(model\.)?data_preprocessor\.std\.\d+', *_POSITIVE),
    (r'(model\.)?data_preprocessor\.mean\.\d+', *_FINITE),
    (r'default_hooks\.checkpoint\.(interval|max_keep_ckpts)', *_OR_NEVER),
    (rf'{_HOOKS}\.(interval|patience)', *_FROM_ONE),
    (rf'{_HOOKS}\.(begin_epoch|begin_iter|save_begin)', *_FROM_ZERO),
    (r'custom_hooks\.\d+\.momentum', *_SHARE),
    (r'env_cfg\.mp_cfg\.opencv_num_threads', *_FROM_ZERO),
    (r'auto_scale_lr\.base_batch_size', *_FROM_ONE),
    (r'randomness\.seed', lambda value: _integer(value, 0) and value < 2**32, 'an integer from 0 to 4294967295'),
))

# Entries that are never a list or a dict. Those of the model may be a list with one number for each level, loss_scale a
# dict, eps of Adafactor two numbers, and the name of a parameter in custom_keys may look like the entry of a rule.
_SINGLE = re.compile('|'.join(f'(?:{rule.places})' for rule in RULES if not rule.places.startswith(
    ('model', '(model', _NORM)) and not rule.places.endswith((r'\.betas', '_mult', 'loss_scale'))))
_PAIR = re.compile(rf'{_OPTIMIZER}\.eps')


def check_numbers(config: Config, training: bool = True) -> None:
    """Check the numbers in all parts of a config that a run reads. None is never judged: it stands for a default.

    Args:
        config: the config.
        training: whether it is trained; else the parts that only a training reads are passed over.

    Raises:
        UserError: the first impossible number, with its place, and any number that is NaN.
    """
    rules = [(re.compile(rule.places), rule) for rule in RULES]
    for key in config:
        if key not in keys_read() or key in (() if training else TRAINING_KEYS):
            continue
        if key == 'data_preprocessor' and config.model.get(key) is not None:
            continue
        for place, value in _leaves(config[key], key):
            rule = next((rule for pattern, rule in rules if pattern.fullmatch(place)), None)
            if rule is not None and value is not None and not rule.valid(value):
                raise UserError(f'{place}={one_line(repr(value), 80)} must be {rule.needed}')
            if isinstance(value, float) and math.isnan(value):
                raise UserError(f'{place} is nan; set a number')


def _leaves(part: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Yield all entries that are no dicts, lists or tuples, with their dotted keys; and those that are in place of a
    single number."""
    if isinstance(part, (dict, list, tuple)) and _SINGLE.fullmatch(place) and not _PAIR.fullmatch(place):
        yield place, part
    elif isinstance(part, dict):
        for key, value in part.items():
            yield from _leaves(value, f'{place}.{key}')
    elif isinstance(part, (list, tuple)):
        for number, value in enumerate(part):
            yield from _leaves(value, f'{place}.{number}')
    else:
        yield place, part
