"""Ranges of numbers by the name of their entry: sizes and counts above 0, probabilities up to 1, and the like.

The classes of mmdet, mmseg, mmpretrain and mmcv use a name for one kind of number. A value outside of the range of its
name often causes no error, or one in the middle of a training.
"""
from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from ...errors import UserError
from ..moved_variables import keys_read
from .parts import classes_of
from .signatures import taken

if TYPE_CHECKING:
    from mmengine.config import Config

_PACKAGES = ('mmdet', 'mmseg', 'mmpretrain', 'mmcv', 'mmengine', 'mmkcla', 'torch')


@dataclass(frozen=True)
class Range:
    """The numbers that are ``valid`` for entries whose name matches ``names``; ``needed`` says which, in words."""

    names: re.Pattern[str]
    valid: Callable[[float], bool]
    needed: str


def _range(needed: str, valid: Callable[[float], bool], *names: str) -> Range:
    return Range(re.compile('|'.join(names)), valid, needed)


def _whole(least: int) -> Callable[[float], bool]:
    return lambda value: isinstance(value, int) and value >= least


RANGES = (
    _range('an integer of at least 0', _whole(0), 'c1_(in_)?channels', 'corner_emb_channels',
           'num_stuff_classes', 'num_patterns', 'num_shots',
           '(num_|stacked_)(shared_|cls_|reg_|dconv_|stacked_)?(convs|fcs)', 'out_indices',
           'start_level', 'min_size', 'max_refetch', 'num_digits', 'opencv_num_threads', 'nms_post', 'bootstrap'),
    _range('an integer of at least 1', _whole(1), r'(\w+_)?channels', 'num_classes', 'num_things_classes',
           'embed_dims?', 'hidden_dim', 'base_width', 'width_per_group', 'groups', 'num_groups', 'deform_groups',
           'radix', r'num_(heads|attention_heads|layers|stages|outs|levels|blocks|branches|modules|points|queries|'
           r'proposals|feature_levels|feats|codes|views)', 'depths', 'stage_blocks', r'(\w+_)?dilations?', 'times',
           'pool_scales', 'pad_size_divisor', 'size_divisor', 'patch_size', 'window_size', 'roi_feat_size', 'mask_size',
           'output_size', 'img_size', 'input_size', 'img_scale', 'topk', 'proposal_nums', 'scales_per_octave',
           'reduction_factor', 'ins_per_id', 'num_policies', 'prefetch_factor'),
    _range('an integer of at least 1, or -1 for no limit', lambda value: value == -1 or _whole(1)(value), 'max_per_img',
           'max_num'),
    _range('an integer of at least -1', _whole(-1), 'frozen_stages', 'end_level', 'nms_pre'),
    _range('a finite number above 0', lambda value: 0 < value < math.inf, r'(\w+_)?strides?', r'(\w+_)?kernel_sizes?',
           'scales?', 'crop_size', 'size', 'scale_factor', 'ratio_range', 'octave_base_scale', 'base_sizes', 'ratios',
           'widen_factor', 'deepen_factor', 'expand_ratio', 'mlp_ratios?', 'temperature', 'target_stds',
           'oversample_ratio', 'finest_scale'),
    _range('a finite number of at least 0', lambda value: 0 <= value < math.inf, 'paddings?', 'brightness_delta',
           'hue_delta', 'timeout', 'min_bbox_size', 'min_gt_bbox_wh', 'max_translate_ratio', 'layer_scale_init'),
    _range('a number from 0 to 1', lambda value: 0 <= value <= 1, r'(\w+_)?prob', 'attn_drop', 'proj_drop', 'ffn_drop',
           'dropout', 'dropout_rate', 'drop_path', 'drop_path_rate', 'drop_rate', 'attn_drop_rate', 'iou_threshold',
           r'(pos|neg)_iou_thr', 'min_pos_iou', 'pos_fraction', 'cat_max_ratio', 'mask_ratio', 'label_smooth_val',
           'importance_sample_ratio', 'iou_thrs?'),
    _range('a number of at most 1', lambda value: value <= 1, 'score_thr', 'mask_thr_binary'),
)
_SWITCHES = frozenset(('filter_empty_gt', 'class_agnostic'))  # in dicts without a type


def check_ranges(config: Config) -> None:
    """Check the numbers of all parts that a run reads; values that a class has as a default are valid for it.

    The host libraries must be imported already.

    Raises:
        UserError: the first number out of its range, with its place, or text in place of a truth value.
    """
    for key in sorted(keys_read() & set(config)):
        if key == 'data_preprocessor' and (config.get('model') or {}).get(key) is not None:
            continue
        for place, name, value, kind, scope in _leaves(config[key], key, '', None, config.get('default_scope')):
            if isinstance(value, bool):
                continue
            if isinstance(value, str) and name in _SWITCHES:
                raise UserError(f'{place}={value!r} must be True or False')
            rule = range_of(name) if isinstance(value, (int, float)) else None
            if rule is not None and not rule.valid(value) and not _exempt(kind, scope, name, rule):
                raise UserError(f'{place}={value!r} must be {rule.needed}')


@cache
def range_of(name: str) -> Range | None:
    """Return the range of the entries with a name, None if it has none."""
    return next((rule for rule in RANGES if rule.names.fullmatch(name)), None)


def _exempt(kind: Any, scope: str | None, name: str, rule: Range) -> bool:
    """Whether the number is for a class of others, or for one with a default that the rule would refuse."""
    parts = classes_of(kind, scope) if kind is not None else ()
    if name == 'out_indices' and not any(name in taken(part)[0] for part in parts):
        return True  # of a dict that another class reads, which may count from the end
    for part in parts:
        if str(getattr(part, '__module__', '')).split('.')[0] not in _PACKAGES:
            return True
        if any(not rule.valid(value) for value in defaults(part, name)):
            return True
    return False


def defaults(part: Any, name: str) -> Iterator[float]:
    """Yield the numbers in the defaults that a class or its bases have for an argument."""
    for owner in part.__mro__[:-1] if inspect.isclass(part) else (part, ):
        function = vars(owner).get('__init__') if inspect.isclass(owner) else owner
        try:
            parameter = inspect.signature(function).parameters.get(name) if function else None
        except (TypeError, ValueError):
            continue
        if parameter is not None:
            yield from (value for _, _, value, *_ in _leaves(parameter.default, '', name, None, None)
                        if isinstance(value, (int, float)) and not isinstance(value, bool))


def _leaves(part: Any, place: str, name: str, kind: Any, scope: str | None) -> Iterator[tuple]:
    """Yield (place, name, value, type of the part around it, scope) of all entries that are no dicts or lists."""
    if isinstance(part, dict):
        kind, scope = part.get('type') or kind, part.get('_scope_') or scope
        for key, value in part.items():
            yield from _leaves(value, f'{place}.{key}', str(key), kind, scope)
    elif isinstance(part, (list, tuple)):
        for number, value in enumerate(part):
            yield from _leaves(value, f'{place}.{number}', name, kind, scope)
    else:
        yield place, name, part, kind, scope
