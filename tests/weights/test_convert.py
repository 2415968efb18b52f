"""The converters: every entry of a released network lands where it belongs, and nothing else is taken for one."""
import contextlib
import re

import numpy as np
import pytest
import torch
import torchvision
from hypothesis import given, settings
from hypothesis import strategies as st
from mmengine.registry import MODELS
from mmpretrain.models import ResNet as PlainResNet
from mmpretrain.models.backbones import ResNet_CIFAR
from reference_files import reference_of

from mmkcla.errors import UserError
from mmkcla.weights.convert import SOURCES, convert_reference, convert_state_dict, recognise
from mmkcla.weights.convert.architecture import backbone_config, classifier_config, layer_options
from mmkcla.weights.convert.fit import fit_of

ATTENTIONS = {
    'kcla': dict(type='KCLA'),
    'mrla-light': dict(type='MRLALight'),
    'mrla-base': dict(type='MRLABase', head_channels=16),
    'dla-light': dict(type='DLALight'),
}


def network(method, depth=50, classes=1000, attention=None, **options):
    """Ours of an ImageNet network of a paper."""
    if method == 'mrla-base':
        options['deep_stem'] = True
    attention = {**ATTENTIONS[method], **(attention or {})}
    if method == 'kcla' and depth == 101:
        attention['carry_blocks'] = (11, )
    channels = options.get('base_channels', 64) * 32
    return dict(type='ImageClassifier', neck=dict(type='GlobalAveragePooling'),
                backbone=dict(type='mmkcla.LayerAttentionResNet', depth=depth, layer_attention=attention, **options),
                head=dict(type='LinearClsHead', num_classes=classes, in_channels=channels))


def build(model):
    return MODELS.build(dict(model, _scope_='mmpretrain'))


def weights(model):
    """Values that differ from entry to entry, on names and shapes of a model."""
    generator = torch.Generator().manual_seed(0)
    return {name: torch.tensor(7) if name.endswith('num_batches_tracked') else
            torch.randn(tensor.shape, generator=generator) for name, tensor in build(model).state_dict().items()}


def small(method, depth=50, **options):
    return network(method, depth, classes=7, base_channels=16, stem_channels=16, **options)


def equal(converted, ours):
    assert set(converted) == set(ours)
    for name, tensor in ours.items():
        if name.endswith('log_temperature'):
            torch.testing.assert_close(converted[name], tensor.double(), rtol=1e-6, atol=1e-6)
        else:
            assert torch.equal(converted[name], tensor), name


# Names ------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(('method', 'depth'), [('kcla', 50), ('kcla', 101), ('mrla-light', 50), ('mrla-base', 50),
                                               ('dla-light', 50)])
def test_imagenet(method, depth):
    ours = weights(small(method, depth))
    theirs = reference_of(ours, method)
    source = f'imagenet-{method}'
    assert recognise(theirs) == (source, )
    conversion = convert_state_dict(theirs, source)
    equal(conversion.state_dict, ours)
    assert set(conversion.matched.values()) == set(ours)
    assert set(conversion.matched) | set(conversion.dropped) == set(theirs)
    assert len(conversion.dropped) == {('kcla', 50): 7, ('kcla', 101): 8}.get((method, depth), 0)


@pytest.mark.parametrize('method', ['kcla', 'mrla-light', 'mrla-base', 'dla-light'])
def test_architecture_is_told_from_the_weights(method):
    model = small(method, 101 if method == 'kcla' else 50, attention=dict(reduction=20) if 'dla' in method else
                  dict(head_channels=32) if method == 'kcla' else None)
    ours = weights(model)
    backbone = backbone_config(ours, f'imagenet-{method}')
    assert backbone == model['backbone']
    assert classifier_config(ours, backbone, f'imagenet-{method}') == model
    assert classifier_config(ours, backbone, f'imagenet-{method}', 3)['head']['num_classes'] == 3


# Parameters of the released networks, and how many of them are never used; KCLA's with its temperatures
COUNTS = {
    ('kcla', 50): (25_859_078, 8_709, 236),
    ('kcla', 101): (45_082_309, 41_477, 508),
    ('mrla-light', 50): (25_738_452, 0, 0),
    ('mrla-light', 101): (44_939_646, 0, 0),
    ('dla-light', 50): (28_581_812, 0, 0),
    ('dla-light', 101): (47_783_006, 0, 0),
}


@pytest.mark.parametrize(('method', 'depth'), list(COUNTS))
def test_counts_of_whole_networks(method, depth):
    net = build(network(method, depth))
    theirs = reference_of(net.state_dict(), method)
    total, dead, temperatures = COUNTS[method, depth]
    assert sum(tensor.numel() for name, tensor in theirs.items()
               if not name.endswith(('running_mean', 'running_var', 'num_batches_tracked'))) == total
    conversion = convert_state_dict(theirs, f'imagenet-{method}')
    assert conversion.dropped_parameters == dead
    assert sum(parameter.numel() for parameter in net.parameters()) == total - dead - temperatures
    assert fit_of(conversion.state_dict, net, f'imagenet-{method}').complete


@pytest.mark.parametrize('prefix', ['module.', 'backbone.', 'module.backbone.'])
def test_prefixes(prefix):
    ours = weights(small('mrla-light'))
    theirs = {prefix + name: tensor for name, tensor in reference_of(ours, 'mrla-light').items()}
    equal(convert_reference(theirs, 'imagenet-mrla-light'), ours)


@pytest.mark.parametrize(('method', 'older'), [('kcla', False), ('kcla', True), ('mrla-light', False),
                                               ('dla-light', False)])
def test_detector(method, older):
    ours = {name: tensor for name, tensor in weights(small(method)).items() if name.startswith('backbone.')}
    theirs = {f'backbone.{name}': tensor for name, tensor in reference_of(ours, method, excite='excite').items()}
    if older:  # with the attentions inside the blocks
        theirs = {re.sub(r'\.attention\.(\d+)\.', r'.\1.kcla.', name).replace('.layers.', '.'): tensor
                  for name, tensor in theirs.items()}
    rest = {'neck.fpn_convs.0.conv.weight': torch.randn(4, 4), 'rpn_head.rpn_cls.bias': torch.randn(3),
            'roi_head.bbox_head.fc_cls.weight': torch.randn(3, 4)}
    source = f'detector-{method}'
    assert recognise({**theirs, **rest}) == (source, )
    conversion = convert_state_dict({f'module.{name}': tensor for name, tensor in {**theirs, **rest}.items()}, source)
    equal(conversion.state_dict, {**ours, **rest})
    config = backbone_config(conversion.state_dict, source)
    assert config['depth'] == 50 and config['out_indices'] == (0, 1, 2, 3)


@pytest.mark.parametrize('head', [True, False])
@pytest.mark.parametrize('depth', [18, 50])
def test_torchvision(depth, head):
    theirs = getattr(torchvision.models, f'resnet{depth}')(num_classes=5).state_dict()
    theirs = {name: tensor for name, tensor in theirs.items() if head or not name.startswith('fc.')}
    ours = convert_reference(theirs, 'torchvision')
    equal(ours, {f'head.{name}' if name.startswith('fc.') else f'backbone.{name}': tensor
                 for name, tensor in theirs.items()})
    backbone = backbone_config(ours, 'torchvision')
    assert backbone == dict(type='mmkcla.LayerAttentionResNet', depth=depth,
                            layer_attention=dict(type='KCLA', layer_scale_init=0.))
    model = classifier_config(ours, backbone, 'torchvision')
    assert ('head' in model) == head
    fit = fit_of(ours, build(model), 'torchvision')
    assert fit.complete and all('layer_attentions' in name for name in fit.kept) and len(fit.matched) > 100
    assert recognise(theirs) == (('torchvision', ) if head else ('torchvision', 'mmpretrain'))


@torch.no_grad()
def test_torchvision_computes_the_same():
    plain = torchvision.models.resnet18(num_classes=5).eval()
    ours = convert_reference(plain.state_dict(), 'torchvision')
    model = classifier_config(ours, backbone_config(ours, 'torchvision'), 'torchvision')
    net = build(model).eval()
    assert not net.load_state_dict(ours, strict=False).unexpected_keys
    x = torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(net.head.fc(net.extract_feat(x)[-1]), plain(x))


@pytest.mark.parametrize(('kind', 'arguments', 'expected'), [
    (PlainResNet, dict(depth=18), dict(depth=18)),
    (PlainResNet, dict(depth=50, deep_stem=True), dict(depth=50, deep_stem=True)),
    (PlainResNet, dict(depth=50, deep_stem=True, avg_down=True), dict(depth=50, deep_stem=True, avg_down=True)),
    (PlainResNet, dict(depth=18, in_channels=1), dict(depth=18, in_channels=1)),
    (ResNet_CIFAR, dict(depth=34), dict(depth=34, small_stem=True)),
], ids=['plain', 'v1c', 'v1d', 'grey', 'cifar'])
def test_mmpretrain(kind, arguments, expected):
    theirs = {f'backbone.{name}': tensor for name, tensor in kind(**arguments).state_dict().items()}
    width = 2048 if arguments['depth'] == 50 else 512
    theirs |= {'head.fc.weight': torch.ones(4, width), 'head.fc.bias': torch.ones(4)}
    assert recognise(theirs) == ('mmpretrain', )
    ours = convert_reference(theirs, 'mmpretrain')
    assert set(ours) == set(theirs)
    backbone = backbone_config(ours, 'mmpretrain')
    assert {name: value for name, value in backbone.items() if name not in ('type', 'layer_attention')} == expected
    fit = fit_of(ours, build(classifier_config(ours, backbone, 'mmpretrain')), 'mmpretrain')
    assert fit.complete and len(fit.matched) > 100


THEIRS = {method: reference_of(weights(small(method)), method) for method in ATTENTIONS}


# What is not what it is said to be ----------------------------------------------------------------------------------

def golden(data_dir, name):
    arrays = np.load(data_dir / 'golden' / f'{name}.npz')
    return {key.removeprefix('state/'): torch.from_numpy(arrays[key]) for key in arrays.files
            if key.startswith('state/')}


def test_recognise_cifar(data_dir):
    for name, sources in {'cifar20_kcla': ('cifar-kcla', ), 'cifar20_mrla_light': ('cifar-mrla-light', ),
                          'cifar20_mrla_base': ('cifar-mrla-base', 'cifar-softmax'),
                          'cifar20_layer_attention': ('cifar-mrla-base', 'cifar-softmax'),
                          'cifar20_dla_l': ('cifar-dla-light', ), 'efficient_attention': ()}.items():
        assert recognise(golden(data_dir, name)) == sources


def test_dead_norm_of_dla(data_dir):
    conversion = convert_state_dict(golden(data_dir, 'cifar20_dla_l'), 'cifar-dla-light')
    assert set(conversion.dropped) == {'bn2.weight', 'bn2.bias', 'bn2.running_mean', 'bn2.running_var'}
    assert conversion.dropped_parameters == 512


def test_another_source_is_named(data_dir):
    cifar = golden(data_dir, 'cifar20_mrla_base')
    with pytest.raises(UserError, match='is not from cifar-kcla: its entries are those of cifar-mrla-base or cifar-'):
        convert_reference(cifar, 'cifar-kcla')
    with torch.device('meta'):
        plain, vgg = torchvision.models.resnet18().state_dict(), torchvision.models.vgg11().state_dict()
    with pytest.raises(UserError, match='is not from cifar-kcla: its entries are those of torchvision$'):
        convert_reference(plain, 'cifar-kcla')
    with pytest.raises(UserError, match='fit no known source; they start with: classifier, features$'):
        convert_reference(vgg, 'torchvision')
    with pytest.raises(UserError, match='is not from imagenet-kcla: .*with: .no entries.'):
        convert_reference({}, 'imagenet-kcla')
    assert all(not recognise({}) and source in SOURCES for source in SOURCES)


@pytest.mark.parametrize(('names', 'reason'), [
    (['backbone.layer_attentions.0.0.query.weight'], 'already has the names of this package'),
    (['encoder.layer1.layers.0.conv1.weight', 'up1.conv.double_conv.0.weight'], 'is a U-Net of KCLA.s segmentation'),
    (['layer1.0.conv1.weight', 'layer1.lstm.w_ih.0.seq.0.weight'], 'like DLA-B, which cannot be converted'),
    (['backbone.layer1.0.conv1.weight', 'neck.a.weight'], 'a detector without layer attention'),
])
def test_what_needs_or_has_no_conversion(names, reason):
    with pytest.raises(UserError, match=reason):
        convert_reference({name: torch.zeros(1) for name in names}, 'imagenet-kcla')


def test_foreign_entries():
    theirs = reference_of(weights(small('mrla-light')), 'mrla-light')
    with pytest.raises(UserError, match="imagenet-mrla-light: 'layer1.0.se.fc.0.weight' is not an entry of that netw"):
        convert_reference({**theirs, 'layer1.0.se.fc.0.weight': torch.zeros(1)}, 'imagenet-mrla-light')
    with pytest.raises(UserError, match="'conv1.weight' and 'module.conv1.weight' both map to 'backbone.conv1.weight'"):
        convert_reference({**theirs, 'module.conv1.weight': torch.zeros(1)}, 'imagenet-mrla-light')


def test_networks_that_cannot_be_told():
    ours = weights(small('mrla-light'))
    for dropped, reason in ((r'backbone.layer3.5.', r'no ResNet of .* has \(3, 4, 5, 3\) bottleneck blocks; use --c'),
                            ('backbone.conv1.', r'lacks backbone.conv1.weight \(in our names\); it does not contain')):
        with pytest.raises(UserError, match=reason):
            backbone_config({name: tensor for name, tensor in ours.items() if not name.startswith(dropped)},
                            'imagenet-mrla-light')
    with pytest.raises(UserError, match=r'three stages of equal length; the file has \(3, 4, 6, 3\)'):
        backbone_config(ours, 'cifar-mrla-light')
    with pytest.raises(UserError, match='the file lacks value.weight'):
        layer_options({'query.weight': torch.zeros(1, 1, 5)}, 'stage')
    with pytest.raises(UserError, match=r'conv1.weight \(in our names\) has the invalid shape \(\)'):
        backbone_config({**ours, 'backbone.layer1.0.conv1.weight': torch.tensor(1.)}, 'imagenet-mrla-light')


@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data())
def test_damaged_networks_are_a_user_s_error_or_none(data):
    """Whatever lacks, or is of whatever shape: one line for people, and never another exception."""
    method = data.draw(st.sampled_from(sorted(THEIRS)))
    theirs = dict(THEIRS[method])
    for name in data.draw(st.lists(st.sampled_from(sorted(theirs)), max_size=4)):
        theirs[name] = torch.zeros(data.draw(st.lists(st.integers(0, 3), max_size=5)))
    for name in data.draw(st.lists(st.sampled_from(sorted(theirs)), max_size=4)):
        theirs.pop(name, None)
    source = f'imagenet-{method}'
    with contextlib.suppress(UserError):
        ours = convert_reference(theirs, source)
        classifier_config(ours, backbone_config(ours, source), source)
