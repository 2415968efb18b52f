"""Infer the architecture of converted weights from their names and shapes."""
from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ...errors import UserError
from ...layers import layer_attention_class

# attention type of each method, and options that differ from our defaults and cannot be inferred from the weights
_TYPES = {'kcla': 'KCLA', 'mrla-light': 'MRLALight', 'mrla-base': 'MRLABase', 'softmax': 'SoftmaxLayerAttention',
          'dla-light': 'DLALight'}
_OPTIONS = {'imagenet-mrla-base': dict(head_channels=16)}  # heads of the released network
_STAGE = 'backbone.layer{}.0.'
# blocks per stage, by (bottleneck, depth)
DEPTHS = {(False, 18): (2, 2, 2, 2), (False, 34): (3, 4, 6, 3), (True, 50): (3, 4, 6, 3), (True, 101): (3, 4, 23, 3),
          (True, 152): (3, 8, 36, 3)}


def backbone_config(state_dict: Mapping[str, Tensor], source: str) -> dict[str, Any]:
    """Return the arguments of the backbone that converted weights belong to.

    Widths, depth, stem, head width of KCLA and reduction of DLA are inferred from the shapes. The head width of the
    other methods cannot be inferred; it is that of the released code. Weights of a plain ResNet get a KCLA that has no
    effect at the start (``layer_scale_init=0.``).

    Args:
        state_dict: weights of a whole network, in our names.
        source: origin of the weights.

    Raises:
        UserError: no ResNet has these numbers of blocks, or a required entry is missing.
    """
    blocks = _blocks(state_dict)
    bottleneck = 'backbone.layer1.0.conv3.weight' in state_dict
    config: dict[str, Any] = dict(type='mmkcla.LayerAttentionResNet')
    width = 64
    if source.startswith('cifar-'):
        config['type'] = 'mmkcla.CifarLayerAttentionResNet'
        config['depth'] = sum(blocks) * (3 if bottleneck else 2) + 2
        width = 16
        if len(blocks) != 3 or len(set(blocks)) != 1:
            raise UserError(f'{source}: a CIFAR ResNet has three stages of equal length; the file has {blocks} blocks')
    else:
        config['depth'] = _depth(blocks, bottleneck)
    deep = 'backbone.stem.0.conv.weight' in state_dict
    stem = _shape(state_dict, 'backbone.stem.2.conv.weight' if deep else 'backbone.conv1.weight', 4)
    entrance = _shape(state_dict, 'backbone.stem.0.conv.weight', 4) if deep else stem
    found = dict(in_channels=(entrance[1], 3), stem_channels=(stem[0], width),
                 base_channels=(_shape(state_dict, _STAGE.format(1) + 'conv1.weight', 4)[0], width))
    config |= {name: value for name, (value, default) in found.items() if value != default}
    if deep:
        config['deep_stem'] = True
    elif stem[-1] == 3 and not source.startswith('cifar-'):
        config['small_stem'] = True
    if getattr(state_dict.get(_STAGE.format(2) + 'downsample.1.weight'), 'ndim', 1) == 4:  # after a pooling
        config['avg_down'] = True
    if source.startswith('detector-'):
        config['out_indices'] = tuple(range(len(blocks)))
    config['layer_attention'] = _attention_config(state_dict, source)
    return config


def classifier_config(state_dict: Mapping[str, Tensor], backbone: Mapping[str, Any], source: str,
                      num_classes: int | None = None) -> dict[str, Any]:
    """Return the config of mmpretrain's ``ImageClassifier``; without neck and head if there is no classifier.

    Args:
        state_dict: weights in our names.
        backbone: arguments from :func:`backbone_config`.
        source: origin of the weights.
        num_classes: expected number of classes; default: that of the file.
    """
    model = dict(type='ImageClassifier', backbone=dict(backbone))
    head = state_dict.get('head.fc.weight')
    if head is None and source in ('torchvision', 'mmpretrain') and num_classes is None:
        return model
    width = _widths(state_dict)[-1]
    classes = num_classes or (1000 if head is None else _shape(state_dict, 'head.fc.weight', 2)[0])
    return model | dict(neck=dict(type='GlobalAveragePooling'),
                        head=dict(type='LinearClsHead', num_classes=classes, in_channels=width))


def layer_options(state_dict: Mapping[str, Tensor], carry: str) -> dict[str, Any]:
    """Return the arguments of the :class:`~mmkcla.layers.KCLA` that a converted layer belongs to.

    Args:
        state_dict: weights of one layer, in our names.
        carry: see :func:`~mmkcla.convert.convert_reference`.

    Raises:
        UserError: a required entry is missing.
    """
    channels, heads = _shape(state_dict, 'value.weight', 4)[0], _shape(state_dict, 'log_temperature', 1)[0]
    options = dict(channels=channels, head_channels=channels // heads)
    if 'carry.conv.weight' in state_dict:
        options['carry_channels'] = _shape(state_dict, 'carry.conv.weight', 4)[1] * heads
    elif carry == 'block' and 'carry.norm.weight' in state_dict:
        options |= dict(carry_channels=channels, carry_stride=1)
    if 'head_mixing.weight' not in state_dict:
        options['head_mixing'] = False
    return options


def _blocks(state_dict: Mapping[str, Tensor]) -> tuple[int, ...]:
    """Return the number of blocks of each stage."""
    found: dict[int, set[int]] = {}
    for name in state_dict:
        if match := re.match(r'backbone\.layer(\d+)\.(\d+)\.', name):
            found.setdefault(int(match[1]), set()).add(int(match[2]))
    return tuple(max(found[stage]) + 1 for stage in sorted(found))


def _widths(state_dict: Mapping[str, Tensor]) -> list[int]:
    """Return the output channels of each stage."""
    last = 'conv3' if 'backbone.layer1.0.conv3.weight' in state_dict else 'conv2'
    return [_shape(state_dict, f'{_STAGE.format(stage + 1)}{last}.weight', 4)[0]
            for stage in range(len(_blocks(state_dict)))]


def _shape(state_dict: Mapping[str, Tensor], name: str, ndim: int) -> tuple[int, ...]:
    """Return the shape of an entry that is required to infer the network."""
    if name not in state_dict:
        raise UserError(f'the file lacks {name} (in our names); it does not contain the whole network')
    shape = tuple(state_dict[name].shape)
    if len(shape) != ndim or 0 in shape:
        raise UserError(f'{name} (in our names) has the invalid shape {shape}')
    return shape


def _depth(blocks: tuple[int, ...], bottleneck: bool) -> int:
    depth = sum(blocks) * (3 if bottleneck else 2) + 2  # stem and classifier in addition to the blocks
    if DEPTHS.get((bottleneck, depth)) == blocks:
        return depth
    kind = 'bottleneck' if bottleneck else 'basic'
    raise UserError(f'no ResNet of {", ".join(str(depth) for _, depth in DEPTHS)} layers has {blocks} {kind} blocks; '
                    'use --config to define the network')


def _attention_config(state_dict: Mapping[str, Tensor], source: str) -> dict[str, Any]:
    family, _, method = source.partition('-')
    if method not in _TYPES:
        return dict(type='KCLA', layer_scale_init=0.)
    config = dict(type=_TYPES[method], **_OPTIONS.get(source, {}))
    kind = layer_attention_class(config['type'])
    widths = _widths(state_dict)
    of_stage = 'backbone.layer_attentions.{}.0.'
    if method == 'kcla':
        head_channels = widths[0] // _shape(state_dict, of_stage.format(0) + 'log_temperature', 1)[0]
        if head_channels != (kind.cifar_options['head_channels'] if family == 'cifar' else 64):
            config['head_channels'] = head_channels
        carrying = {int(match[1]) for name in state_dict if
                    (match := re.match(r'backbone\.layer_attentions\.\d+\.([1-9]\d*)\.carry\.', name))}
        if carrying:
            config['carry_blocks'] = tuple(sorted(carrying))
    elif method == 'dla-light':
        hidden = [_shape(state_dict, of_stage.format(stage) + 'unit.input.0.weight', 2)[0]
                  for stage in range(len(widths))]
        default = kind.cifar_options['reduction'] if family == 'cifar' else 16
        fitting = [r for r in (default, 4, 16, 20, *range(1, widths[0] + 1))
                   if all(width // r == units for width, units in zip(widths, hidden, strict=True))]
        if fitting and fitting[0] != default:
            config['reduction'] = fitting[0]
    return config
