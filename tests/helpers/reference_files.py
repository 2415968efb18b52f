"""State dicts as the papers' released networks have them, made from ours: the converters' way, backwards.

Written from the released networks' module names, and not with the converters' tables.
"""
import re

import torch

KCLA = {'query': 'Wq', 'key': 'Wk', 'value': 'Wv', 'head_mixing': 'head_att', 'norm': 'bn_attention',
        'carry.conv': 'adjust_channel', 'carry.norm': 'u_bn', 'carry.key': 'u_Wk'}
# method -> (where an attention's entries are, how the attention calls its query, its λ, its norm)
PLACES = {
    'kcla': 'layer{layer}.attention.{block}.{name}',
    'mrla-light': 'layer{layer}.{block}.{name}',
    'mrla-base': 'stages.{stage}.{block}.{name}',
    'dla-light': 'layer{layer}.attention.{block}.{name}',
}
BLOCKS = {'kcla': 'layer{layer}.layers.{block}.{name}', 'mrla-light': 'layer{layer}.{block}.{name}',
          'mrla-base': 'stages.{stage}.{block}.{name}', 'dla-light': 'layer{layer}.layers.{block}.{name}'}
MRLA = {'query.weight': 'mrla.mrla.Wq.weight', 'key.weight': 'mrla.mrla.Wk.weight',
        'value.weight': 'mrla.mrla.Wv.weight', 'past': 'mrla.lambda_t'}
DLA = {'query.weight': 'layer_attention.mrla.Wq.weight', 'key.weight': 'layer_attention.mrla.Wk.weight',
       'value.weight': 'layer_attention.mrla.Wv.weight', 'past': 'layer_attention.lambda_t'}
STEM = {'stem.0.conv': 'conv1.0', 'stem.0.bn': 'conv1.1', 'stem.1.conv': 'conv1.3', 'stem.1.bn': 'conv1.4',
        'stem.2.conv': 'conv1.6', 'stem.2.bn': 'bn1'}


def reference_of(ours, method, excite='extict'):
    """An ImageNet network as released, from a classifier of ours; KCLA with the entries that it never uses."""
    theirs = {}
    for name, tensor in ours.items():
        theirs |= _entry(name.removeprefix('backbone.'), tensor, method, excite)
    if method == 'kcla':
        theirs |= _dead_carries(ours)
    return theirs


def _entry(name, tensor, method, excite):
    if name.startswith('head.'):
        return {name.removeprefix('head.'): tensor}
    if match := re.fullmatch(r'(stem\.\d\.\w+)\.(\w+)', name):
        return {f'{STEM[match[1]]}.{match[2]}': tensor}
    if match := re.fullmatch(r'layer(\d)\.(\d+)\.(.+)', name):
        return {BLOCKS[method].format(layer=match[1], stage=int(match[1]) - 1, block=match[2], name=match[3]): tensor}
    match = re.fullmatch(r'layer_attentions\.(\d)\.(\d+)\.(.+)', name)
    if not match:
        return {name: tensor}
    stage, block, name = int(match[1]), int(match[2]), match[3]
    if name == 'past':
        tensor = tensor.reshape(-1, 1, 1)
    if name == 'log_temperature':
        name, tensor = 'norm_d', (-tensor).exp().reshape(1, -1, 1, 1, 1)
    elif method == 'kcla':
        part, _, last = name.rpartition('.')
        name = f'{KCLA[part]}.{last}'
    elif name.startswith('unit.'):
        part, rest = name.removeprefix('unit.').split('.', 1)
        return {f'layer{stage + 1}.lstm.{dict(input="w_ih", hidden="w_hh")[part]}.0.seq.{rest}': tensor}
    elif name.startswith('excite.'):
        return {f'layer{stage + 1}.{excite}.weight': tensor}
    elif name.startswith('norm.'):
        name = ('bn_layer_attention.' if method == 'dla-light' else 'bn_mrla.') + name.removeprefix('norm.')
    else:
        name = (DLA if method == 'dla-light' else MRLA)[name]
    return {PLACES[method].format(layer=stage + 1, stage=stage, block=block, name=name): tensor}


def _dead_carries(ours):
    """A carry at the network's first layer, and a convolution wherever else a carry has none."""
    dead = {}
    for name in ours:
        match = re.fullmatch(r'backbone\.layer_attentions\.(\d)\.(\d+)\.value\.weight', name)
        if not match:
            continue
        prefix = name.removesuffix('value.weight')
        there = f'layer{int(match[1]) + 1}.attention.{match[2]}.'
        channels, heads = len(ours[name]), len(ours[prefix + 'log_temperature'])
        first = match[1] == match[2] == '0'
        if first or prefix + 'carry.norm.weight' in ours and prefix + 'carry.conv.weight' not in ours:
            dead[there + 'adjust_channel.weight'] = torch.ones(channels, channels // 2 // heads, 1, 1)
        if first:
            dead[there + 'u_Wk.weight'] = torch.ones_like(ours[prefix + 'key.weight'])
            for last in ('weight', 'bias', 'running_mean', 'running_var', 'num_batches_tracked'):
                dead[f'{there}u_bn.{last}'] = torch.ones_like(ours[f'{prefix}norm.{last}'])
    return dead
