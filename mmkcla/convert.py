"""Other people's weights in our names."""
from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from torch import Tensor

from .errors import UserError

StateDict = dict[str, Tensor]

# a layer of the KCLA paper's code -> ours
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
# what the reference builds but never uses, by what the layer carries
_KCLA_DEAD = {
    'stage': (),
    'block': ('carry.conv.',),
    'none': ('carry.',),
}


def _convert_kcla_layer(state_dict: Mapping[str, Tensor], carry: str = 'stage') -> StateDict:
    """One layer of the reference KCLA; its ``norm_d`` is 1/P."""
    if carry not in _KCLA_DEAD:
        raise UserError(f'carry={carry!r} is unknown; choose one of: {", ".join(_KCLA_DEAD)}')
    converted = {}
    for name, tensor in state_dict.items():
        if name == 'norm_d':
            converted['log_temperature'] = -tensor.double().flatten().log()
            continue
        prefix = next((prefix for prefix in _KCLA_LAYER if name.startswith(prefix)), None)
        if prefix is None:
            raise UserError(f'kcla-layer: {name!r} is not an entry of a reference KCLA layer; expected are norm_d, '
                            + ', '.join(prefix.rstrip('.') for prefix in _KCLA_LAYER))
        converted[_KCLA_LAYER[prefix] + name[len(prefix):]] = tensor
    return {name: tensor for name, tensor in converted.items() if not name.startswith(_KCLA_DEAD[carry])}


# Whole classifiers ------------------------------------------------------------------------------------------------

_BLOCK = re.compile(r'(?:stages\.(?P<stage>\d+)\.(?:layers\.|attention\.)?|layer(?P<layer>\d+)\.)'
                    r'(?P<block>\d+)\.(?P<rest>.+)')
_SHARED = re.compile(r'stages\.(?P<stage>\d+)\.(?P<rest>(?:lstm|excite)\..+)')
_TRUNK = re.compile(r'(?:conv\d|bn\d|downsample\.\d)\.\w+')
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
    r'excite\.': 'excite.',
}


def _renamed(name: str, table: Mapping[str, str]) -> str | None:
    for theirs, ours in table.items():
        match = re.match(theirs, name)
        if match:
            return ours + name[match.end():]
    return None


def _convert_classifier(state_dict: Mapping[str, Tensor], source: str) -> StateDict:
    """A whole network of a paper's code, to ``ImageClassifier(backbone, GlobalAveragePooling, LinearClsHead)``."""
    converted: StateDict = {}
    kcla: dict[tuple[int, int], StateDict] = {}
    for name, tensor in state_dict.items():
        name = re.sub(r'^(?:module\.|backbone\.)+', '', name)
        new = None
        if name.startswith('fc.'):
            new = 'head.' + name
        elif re.match(r'(?:conv1|bn1)\.', name):
            new = 'backbone.' + name
        elif name.startswith('bn2.') and source == 'cifar-dla-light':
            continue  # built and never used
        elif match := _SHARED.match(name):
            new = _renamed(match['rest'], _DLA_SHARED)
            new = new and f'backbone.layer_attentions.{match["stage"]}.0.{new}'
        elif match := _BLOCK.match(name):
            stage = int(match['stage']) if match['stage'] else int(match['layer']) - 1
            block, rest = int(match['block']), match['rest']
            if rest.startswith('kcla.'):
                kcla.setdefault((stage, block), {})[rest.removeprefix('kcla.')] = tensor
                continue
            if _TRUNK.fullmatch(rest):
                new = f'backbone.layer{stage + 1}.{block}.{rest}'
            elif attention := _renamed(rest, _MRLA):
                new = f'backbone.layer_attentions.{stage}.{block}.{attention}'
                tensor = tensor.flatten() if attention == 'past' else tensor
        if new is None:
            raise UserError(f'{source}: {name!r} is not an entry of that network')
        converted[new] = tensor
    for (stage, block), layer in kcla.items():
        carry = 'block' if block else 'stage' if stage else 'none'
        converted |= {f'backbone.layer_attentions.{stage}.{block}.{name}': tensor
                      for name, tensor in _convert_kcla_layer(layer, carry).items()}
    _see_that_it_is(source, converted)
    return converted


def _see_that_it_is(source: str, converted: StateDict) -> None:
    """The attention's own entries tell one network from another."""
    attention = {name.split('.', 4)[-1] for name in converted if name.startswith('backbone.layer_attentions.')}
    method = source.partition('-')[2]
    wanted = {'kcla': {'log_temperature'}, 'mrla-light': {'past'}, 'mrla-base': {'query.weight'},
              'softmax': {'query.weight'}, 'dla-light': {'past', 'excite.weight'}}[method]
    foreign = {'kcla': {'past'}, 'mrla-light': {'log_temperature', 'excite.weight'},
               'mrla-base': {'log_temperature', 'past'}, 'softmax': {'log_temperature', 'past'},
               'dla-light': {'log_temperature'}}[method]
    if not wanted <= attention or foreign & attention:
        raise UserError(f'the checkpoint is not of {source}: '
                        + (f'it lacks {", ".join(sorted(wanted - attention))}' if wanted - attention else
                           f'it has {", ".join(sorted(foreign & attention))}') + '; see --source')


CLASSIFIER_SOURCES = (
    'cifar-kcla', 'cifar-mrla-light', 'cifar-mrla-base', 'cifar-softmax', 'cifar-dla-light', 'imagenet-kcla',
    'imagenet-mrla-light', 'imagenet-mrla-base', 'imagenet-dla-light')
_SOURCES: dict[str, Callable[..., StateDict]] = {'kcla-layer': _convert_kcla_layer}


def convert_reference(state_dict: Mapping[str, Tensor], source: str, **options: str) -> StateDict:
    """Map a state dict of a paper's released code to our names; entries the reference never uses are dropped.

    Args:
        state_dict: names as in the reference, with or without ``module.`` or ``backbone.`` before them.
        source: one of :data:`CLASSIFIER_SOURCES`: the result fits mmpretrain's
            ``ImageClassifier(backbone, GlobalAveragePooling, LinearClsHead)``, with ``LayerAttentionResNet`` or
            ``CifarLayerAttentionResNet`` for a backbone. Or ``'kcla-layer'``: one KCLA layer, without a prefix. Its
            option ``carry`` is ``'stage'`` if the layer carries over from a previous stage (or has no carry at all),
            ``'block'`` if it carries inside its stage (the reference ResNet-101's block 11, whose convolution is
            dead), ``'none'`` if it opens the network (the reference builds a dead carry there).

    Returns:
        A state dict for ours; temperatures in float64, the rest as given.

    Raises:
        UserError: for an unknown source, or an entry that does not belong to it.
    """
    if source in CLASSIFIER_SOURCES:
        return _convert_classifier(state_dict, source, **options)
    if source not in _SOURCES:
        known = ', '.join(sorted([*_SOURCES, *CLASSIFIER_SOURCES]))
        raise UserError(f'unknown source {source!r}; known are: {known}')
    return _SOURCES[source](state_dict, **options)
