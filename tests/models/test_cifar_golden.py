"""Whole CIFAR networks with each layer attention, against numbers of the papers' released code."""
import copy

import numpy as np
import pytest
import torch
from mmengine.registry import MODELS

from mmkcla.errors import UserError
from mmkcla.layers import known_layer_attentions
from mmkcla.models.backbones import CifarLayerAttentionResNet
from mmkcla.weights.convert import convert_reference, convert_state_dict

# file, source of the converter, layer attention
NETS = {
    'kcla': ('cifar-kcla', 'KCLA'),
    'mrla_light': ('cifar-mrla-light', 'MRLALight'),
    'mrla_base': ('cifar-mrla-base', 'MRLABase'),
    'layer_attention': ('cifar-softmax', 'SoftmaxLayerAttention'),
    'dla_l': ('cifar-dla-light', 'DLALight'),
}


def classifier(type_, depth=20, classes=10, **options):
    attention = type_ and dict(type=type_, drop_path=0., **options)
    return MODELS.build(dict(
        type='mmpretrain.ImageClassifier', _scope_='mmpretrain',
        backbone=dict(type='mmkcla.CifarLayerAttentionResNet', depth=depth, layer_attention=attention),
        neck=dict(type='GlobalAveragePooling'),
        head=dict(type='LinearClsHead', num_classes=classes, in_channels=256)))


@pytest.fixture(scope='module', params=list(NETS))
def golden(request, data_dir):
    source, type_ = NETS[request.param]
    arrays = {name: torch.from_numpy(np.asarray(array)) for name, array in
              np.load(data_dir / 'golden' / f'cifar20_{request.param}.npz').items()}
    state = {name.removeprefix('state/'): array for name, array in arrays.items() if name.startswith('state/')}
    net = classifier(type_).double()
    keys = net.load_state_dict(convert_reference(state, source), strict=False)
    assert not keys.unexpected_keys and all(key.endswith('num_batches_tracked') for key in keys.missing_keys)
    return arrays, net, source, state


def close(ours, theirs, tolerance):
    return (ours.double() - theirs.double()).abs().max() <= tolerance * theirs.double().abs().max()


@pytest.mark.parametrize(('dtype', 'tolerance'), [(torch.float64, 1e-6), (torch.float32, 1e-4)])
@torch.no_grad()
def test_eval(golden, dtype, tolerance):
    arrays, net, *_ = golden
    net = copy.deepcopy(net).to(dtype).eval()
    assert close(net(arrays['input'].to(dtype)), arrays['eval_logits'], tolerance)


@pytest.mark.parametrize(('with_cp', 'fused'), [(False, True), (True, True), (False, False)])
def test_training(golden, with_cp, fused):
    arrays, net, source, state = golden
    net = copy.deepcopy(net).train()
    net.backbone.with_cp = with_cp
    for attentions in net.backbone.layer_attentions:
        for attention in attentions:
            attention.with_cp = with_cp
            attention.fused = fused  # read by KCLA alone
    x = arrays['input'].double().requires_grad_()
    logits = net(x)
    assert close(logits, arrays['train_logits'], 1e-6)
    (logits * arrays['cotangent']).sum().backward()
    assert close(x.grad, arrays['grad_input'], 1e-5)
    names = {new: name for name, new in convert_state_dict(state, source).matched.items()}
    compared = 0
    for name, parameter in net.named_parameters():
        theirs = arrays.get(f'grad_norm/{names[name]}')
        if theirs is None:
            assert parameter.grad.norm() < 1e-8, name
        else:
            assert close(parameter.grad.norm(), theirs, 1e-5), name
            compared += 1
    assert compared == sum(name.startswith('grad_norm/') for name in arrays)


# Counts of the papers' code, CIFAR-100; KCLA and DLA-L less what the reference builds and never uses, and KCLA's
# temperatures, which are buffers
COUNTS = {
    None: (243_508, 614_452, 1_170_868),
    'KCLA': (258_637 - 643 - 56, 650_853 - 643 - 168, 1_239_177 - 643 - 336),
    'MRLALight': (254_312, 646_864, 1_235_692),
    'MRLABase': (253_416, 644_176, 1_230_316),
    'SoftmaxLayerAttention': (253_416, 644_176, 1_230_316),
    'LinearLayerAttention': (253_416, 644_176, 1_230_316),
    'DLALight': (433_800 - 512, 826_352 - 512, 1_415_180 - 512),
    'DLABase': (428_360, 819_120),
    # counted by hand: 3 (C·C/2 + C/2) + C/2·C + C a block over the plain network
    'EfficientLayerAttention': tuple(plain + blocks * (8_352 + 33_088 + 131_712) for plain, blocks in
                                     ((243_508, 2), (614_452, 6), (1_170_868, 12))),
}


@pytest.mark.parametrize('type_', list(COUNTS))
def test_parameter_counts(type_):
    for depth, count in zip((20, 56, 110), COUNTS[type_], strict=False):
        assert sum(p.numel() for p in classifier(type_, depth, 100).parameters()) == count


def test_every_method_is_counted():
    assert set(known_layer_attentions()) == {name for name in COUNTS if name}


def test_block_kinds():
    net = CifarLayerAttentionResNet(20)
    assert net.out_channels == (256, ) and net.stage_blocks == (2, 2, 2) and net.out_strides == (4, )
    basic = CifarLayerAttentionResNet(20, block='basic', layer_attention=dict(type='KCLA'))
    assert basic.out_channels == (64, ) and basic.stage_blocks == (3, 3, 3)
    assert basic(torch.rand(2, 3, 32, 32))[0].shape == (2, 64, 8, 8)
    assert CifarLayerAttentionResNet(32).stage_blocks == (5, 5, 5)


@pytest.mark.parametrize(('options', 'message'), [
    (dict(depth=51), 'no CIFAR ResNet of depth 51; choose 9n'),
    (dict(depth='20'), "no CIFAR ResNet of depth '20'; choose 9n"),
    (dict(depth=32, block='bottleneck'), 'no CIFAR ResNet of depth 32'),
    (dict(depth=20, layer_attention='KCLA'), "layer_attention='KCLA' must be a dict"),
    (dict(depth=20, layer_attention=dict(type='KCLA', head_channels=True)), 'not divisible by head_channels=True'),
    (dict(depth=20, in_channels=0), 'in_channels=0 must be a number of channels'),
    (dict(depth=20, base_channels='16'), "base_channels='16' must be a number of channels"),
])
def test_invalid_values_are_reported(options, message):
    with pytest.raises(UserError, match=message) as error:
        CifarLayerAttentionResNet(**options)
    assert '\n' not in str(error.value)
