"""Map parameter names of the released networks to ours."""
from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from ...errors import UserError
from .sources import BLOCK, PLAIN_SOURCES, SOURCES, bare_name, check_source, stage_of

StateDict = dict[str, Tensor]
DEAD = ''  # stands for entries that a reference creates but never uses

# KCLA layer: name in the paper's code -> our name
_KCLA_LAYER = {
    'Wq.': 'query.',
    'Wk.': 'key.',
    'Wv.': 'value.',
    'head_att.': 'head_mixing.',
    'bn_attention.': 'norm.',
    'adjust_channel.': 'carry.conv.',
    'u_bn.': 'carry.norm.',
    'u_Wk.': 'carry.key.',
}
# unused entries of the reference, by carry mode of the layer
_KCLA_DEAD = {
    'stage': (),
    'block': ('carry.conv.',),
    'none': ('carry.',),
}
CARRIES = tuple(_KCLA_DEAD)
_TRUNK = re.compile(r'(?:conv\d|bn\d|downsample\.\d)\.\w+')
_DEEP_STEM = re.compile(r'conv1\.(?P<step>[01346])\.(?P<rest>\w+)')  # convolution, norm, ReLU; twice, and a convolution
_SHARED = re.compile(r'(?:stages\.(?P<stage>\d+)|layer(?P<layer>\d+))\.(?P<rest>(?:lstm|excite|extict)\..+)')
_MRLA = {
    r'(?:mrla|layer_attention)\.lambda_t': 'past',
    r'(?:mrla|layer_attention)\.(?:mrla|layer_attention)\.Wq\.': 'query.',
    r'(?:mrla|layer_attention)\.(?:mrla|layer_attention)\.Wk\.': 'key.',
    r'(?:mrla|layer_attention)\.(?:mrla|layer_attention)\.Wv\.': 'value.',
    r'bn_(?:mrla|layer_attention)\.': 'norm.',
}
_DLA_SHARED = {
    r'lstm\.w_ih\.0\.seq\.': 'unit.input.',
    r'lstm\.w_hh\.0\.seq\.': 'unit.hidden.',
    r'(?:excite|extict)\.': 'excite.',  # spelling in the ImageNet network
}


@dataclass
class Conversion:
    """A converted state dict.

    Attributes:
        state_dict: weights under our names; temperatures (``log_temperature``) in float64, all others unchanged.
        matched: maps reference names to ours.
        dropped: entries that the reference creates but never uses, under their reference names.
    """

    state_dict: StateDict = field(default_factory=dict)
    matched: dict[str, str] = field(default_factory=dict)
    dropped: StateDict = field(default_factory=dict)

    @property
    def dropped_parameters(self) -> int:
        """Number of parameters in ``dropped``, without running statistics of batch norms."""
        return sum(tensor.numel() for name, tensor in self.dropped.items()
                   if not name.endswith(('running_mean', 'running_var', 'num_batches_tracked')))


def convert_reference(state_dict: Mapping[str, Tensor], source: str, **options: str) -> StateDict:
    """Map a state dict of a paper's released code to our names; entries that the reference never uses are dropped.

    Args:
        state_dict: reference names, with or without a leading ``module.`` or ``backbone.``.
        source: one of :data:`~mmkcla.convert.SOURCES`.

            * ``cifar-*``, ``imagenet-*``: the result fits mmpretrain's ``ImageClassifier(backbone,
              GlobalAveragePooling, LinearClsHead)``, with the backbone ``CifarLayerAttentionResNet`` or
              ``LayerAttentionResNet``. The ImageNet MRLA-base has a stem of three convolutions (``deep_stem=True``);
              the ImageNet KCLA of depth 101 also carries at block 11 of its third stage (``carry_blocks=(11,)``).
            * ``detector-*``: whole mmdet detectors; the backbone is renamed, everything else is copied unchanged.
            * ``torchvision``, ``mmpretrain``: plain ResNets, with or without classifier; the result has no attention
              entries.
            * ``kcla-layer``: one KCLA layer, without a prefix. Its option ``carry`` is ``'stage'`` if the layer carries
              over from the previous stage (or does not carry at all), ``'block'`` if it carries within its stage (block
              11 of the reference ResNet-101, where the convolution is unused), ``'none'`` if it is the first layer of
              the network (where the reference creates an unused carry).

            The segmentation network of KCLA cannot be converted: its carry convolution has a single group for all
            heads, its decoder crops, and its released versions keep different parts of the state.

    Returns:
        A state dict with our names; temperatures in float64, all other entries unchanged.

    Raises:
        UserError: the source is unknown, the state dict is from another source, or an entry does not belong to it.
    """
    return convert_state_dict(state_dict, source, **options).state_dict


def convert_state_dict(state_dict: Mapping[str, Tensor], source: str, carry: str = 'stage') -> Conversion:
    """Like :func:`convert_reference`, but also return which entries were matched and dropped."""
    if source not in SOURCES:
        raise UserError(f'unknown source {source!r}; available: {", ".join(sorted(SOURCES))}')
    if carry not in _KCLA_DEAD:
        raise UserError(f'carry={carry!r} is unknown; choose one of: {", ".join(_KCLA_DEAD)}')
    if source != 'kcla-layer':
        check_source(state_dict, source)
    deep_stem = any(bare_name(name) == 'conv1.6.weight' for name in state_dict)
    conversion = Conversion()
    for name, tensor in state_dict.items():
        if not tensor.is_floating_point() and not name.endswith('num_batches_tracked'):
            raise UserError(f'{source}: {name!r} has type {str(tensor.dtype).removeprefix("torch.")}; weights must be '
                            'floating-point')
        if source == 'kcla-layer':
            new = _kcla_name(name, carry)
        elif source.startswith('detector-') and not re.match(r'(?:module\.)?backbone\.', name):
            new = name.removeprefix('module.')
        else:
            new = _network_name(bare_name(name), source, deep_stem)
        if new is None:
            raise UserError(_foreign(name, source))
        if new == DEAD:
            conversion.dropped[name] = tensor
            continue
        if new in conversion.state_dict:
            twin = next(theirs for theirs, ours in conversion.matched.items() if ours == new)
            raise UserError(f'{source}: {twin!r} and {name!r} both map to {new!r}')
        conversion.matched[name] = new
        conversion.state_dict[new] = _value(new, tensor)
    return conversion


def _foreign(name: str, source: str) -> str:
    if source == 'kcla-layer':
        return (f'kcla-layer: {name!r} is not an entry of a reference KCLA layer; expected are norm_d, '
                + ', '.join(prefix.rstrip('.') for prefix in _KCLA_LAYER))
    return f'{source}: {name!r} is not an entry of that network'


def _value(name: str, tensor: Tensor) -> Tensor:
    """Convert a value to our entry ``name``: the reference stores 1/P instead of log P, and λ as (C, 1, 1)."""
    last = name.rpartition('.')[2]
    if last == 'log_temperature':
        return -tensor.double().flatten().log()
    return tensor.flatten() if last == 'past' else tensor


def _renamed(name: str, table: Mapping[str, str]) -> str | None:
    for theirs, ours in table.items():
        if match := re.match(theirs, name):
            return ours + name[match.end():]
    return None


def _kcla_name(name: str, carry: str) -> str | None:
    """Return our name in a KCLA layer, :data:`DEAD`, or None for an unknown entry."""
    if name == 'norm_d':
        return 'log_temperature'
    new = _renamed(name, {re.escape(theirs): ours for theirs, ours in _KCLA_LAYER.items()})
    return DEAD if new and new.startswith(_KCLA_DEAD[carry]) else new


def _network_name(name: str, source: str, deep_stem: bool) -> str | None:
    """Return our name in a whole network, :data:`DEAD`, or None for an unknown entry."""
    if name.startswith('fc.'):
        return 'head.' + name
    if source in PLAIN_SOURCES and re.match(r'head\.fc\.\w+$', name):
        return name
    if name.startswith('bn2.') and source == 'cifar-dla-light':
        return DEAD
    if stem := _stem_name(name, source, deep_stem):
        return 'backbone.' + stem
    if match := _SHARED.match(name):
        new = _renamed(match['rest'], _DLA_SHARED)
        return new and f'backbone.layer_attentions.{stage_of(match)}.0.{new}'
    if match := BLOCK.match(name):
        new = _block_name(stage_of(match), int(match['block']), match['part'], match['rest'], source)
        return 'backbone.' + new if new else new
    return None


def _stem_name(name: str, source: str, deep_stem: bool) -> str | None:
    if source == 'mmpretrain' and re.fullmatch(r'stem\.\d\.(?:conv|bn)\.\w+', name):
        return name
    if not deep_stem:
        return name if re.fullmatch(r'(?:conv1|bn1)\.\w+', name) else None
    if match := _DEEP_STEM.fullmatch(name):
        number, norm = divmod(int(match['step']), 3)
        return f'stem.{number}.{"bn" if norm else "conv"}.{match["rest"]}'
    return 'stem.2.bn.' + name.removeprefix('bn1.') if name.startswith('bn1.') else None


def _block_name(stage: int, block: int, part: str | None, rest: str, source: str) -> str | None:
    """Return our name below ``backbone.``; ``part`` is set if the reference lists blocks and attentions separately."""
    if part != 'attention' and _TRUNK.fullmatch(rest):
        return f'layer{stage + 1}.{block}.{rest}'
    if source in PLAIN_SOURCES or part == 'layers':
        return None
    if source.endswith('-kcla'):
        if part is None and not rest.startswith('kcla.'):
            return None
        new = _kcla_name(rest.removeprefix('kcla.'), 'block' if block else 'stage' if stage else 'none')
    else:
        new = _renamed(rest, _MRLA)
    return f'layer_attentions.{stage}.{block}.{new}' if new else new
