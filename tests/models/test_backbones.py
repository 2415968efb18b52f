"""The backbones against the hosts' own: the plain trunk bit for bit, names, shapes, keywords, counts, bad values."""
import inspect
import subprocess
import sys
from pathlib import Path

import mmdet.registry
import mmpretrain.registry
import mmseg.registry
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import DefaultScope
from small_nets import HOSTS, KCLA, SMALL, equal, host_class, image, mixed, randomise_, trunk, weighted_sum
from torch import nn

from mmkcla.errors import UserError
from mmkcla.layers import LayerAttention
from mmkcla.models.backbones import KCLAResNet, LayerAttentionMixin, LayerAttentionResNet

# library, class, its keywords
VARIANTS = [
    ('mmdet', 'ResNet', dict()),
    ('mmdet', 'ResNet', dict(depth=18)),
    ('mmdet', 'ResNet', dict(style='caffe', deep_stem=True, avg_down=True)),
    ('mmdet', 'ResNeXt', dict(groups=4, base_width=2)),
    ('mmseg', 'ResNet', dict(multi_grid=(1, 2, 4), dilations=(1, 1, 2, 4), strides=(1, 2, 1, 1))),
    ('mmseg', 'ResNetV1c', dict(strides=(1, 2, 1, 1), dilations=(1, 1, 2, 4), contract_dilation=True)),
    ('mmpretrain', 'ResNet', dict()),
    ('mmpretrain', 'ResNet', dict(depth=34)),
    ('mmpretrain', 'ResNeXt', dict(groups=4, width_per_group=2)),
    ('mmpretrain', 'ResNetV1d', dict()),
    ('mmpretrain', 'SEResNet', dict(se_ratio=4)),
]
ids = lambda value: '-'.join(map(str, value.values())) if isinstance(value, dict) else value  # noqa: E731


def build_pair(library, name, options, layer_attention):
    """The host's net, and ours with the same trunk weights."""
    host = host_class(library, name)
    plain = randomise_(host(**{**SMALL, **options}))
    ours = mixed(host)(**{**SMALL, **options}, layer_attention=layer_attention)
    ours.load_state_dict(plain.state_dict(), strict=layer_attention is None)
    return plain, ours


# Counts -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(('depth', 'options', 'count'), [
    (50, {}, 23_801_133),
    (101, {}, 42_989_271),
    (101, dict(carry_blocks=(11,)), 42_991_324),
])
def test_parameter_count(depth, options, count, monkeypatch):
    monkeypatch.setattr(torch.Tensor, 'item', lambda self: 0.)  # the host reads its drop path rates
    with torch.device('meta'):
        net = KCLAResNet(depth, layer_attention=dict(type='KCLA', **options))
    assert sum(parameter.numel() for parameter in net.parameters()) == count
    assert all(parameter.requires_grad for parameter in net.parameters())


# The plain trunk --------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(('library', 'name', 'options'), VARIANTS, ids=ids)
def test_without_attention_it_is_the_host(library, name, options):
    plain, ours = build_pair(library, name, options, None)
    assert list(plain.state_dict()) == list(ours.state_dict())
    for mode in (False, True):
        plain.train(mode)
        assert ours.train(mode) is ours
        assert equal(ours(x := image()), plain(x))
    for name, tensor in plain.state_dict().items():
        assert torch.equal(tensor, ours.state_dict()[name]), name


@pytest.mark.parametrize(('library', 'name', 'options'), VARIANTS, ids=ids)
def test_with_attention(library, name, options):
    """Names and shapes of the host, a gradient for every parameter, at sizes that divide by nothing."""
    plain, ours = build_pair(library, name, options, KCLA)
    assert trunk(ours.state_dict()) == list(plain.state_dict())
    assert [len(stage) for stage in ours.layer_attentions] == list(ours.stage_blocks)
    plain, ours = plain.double(), ours.double().train()
    outs, theirs = ours(x := image(33, 47, batch=3, dtype=torch.float64)), plain(x)
    assert isinstance(outs, tuple)
    assert [out.shape for out in outs] == [out.shape for out in theirs]
    assert not any(torch.equal(a, b) for a, b in zip(outs, theirs, strict=True))
    assert ours.out_channels == tuple(out.shape[1] for out in outs)
    assert [(-(-33 // stride), -(-47 // stride)) for stride in ours.out_strides] == [out.shape[2:] for out in outs]
    weighted_sum(outs).backward()
    for name, parameter in ours.named_parameters():
        assert parameter.requires_grad and parameter.grad.abs().sum() > 0, name


def test_out_channels_and_strides_follow_out_indices():
    net = LayerAttentionResNet(18, out_indices=(2, 0), dilations=(1, 1, 2, 2), strides=(1, 2, 1, 2))
    assert net.layer_attentions is None
    assert (net.out_channels, net.out_strides) == ((64, 256), (4, 8))  # the hosts' outputs too go from fine to coarse
    assert [out.shape[1:] for out in net(image(32, 32))] == [(64, 8, 8), (256, 4, 4)]


@pytest.mark.parametrize('options', [
    dict(),
    dict(dilations=(1, 1, 2, 4), strides=(1, 2, 1, 1)),
    dict(dilations=(1, 1, 2, 4), strides=(1, 2, 1, 1), contract_dilation=True),
    dict(dilations=(1, 1, 1, 2), strides=(1, 2, 2, 1), multi_grid=(1, 2, 4)),
    dict(dilations=(1, 1, 2, 4), strides=(1, 2, 1, 1), contract_dilation=True, multi_grid=(2, 4, 8), style='caffe'),
    dict(num_stages=3, dilations=(1, 1, 2), strides=(1, 2, 1), contract_dilation=True, multi_grid=(1, 2, 4, 4, 4, 4),
         out_indices=(1, 2)),
], ids=ids)
@pytest.mark.parametrize('depth', [18, 50])
def test_dilations_as_in_mmseg(depth, options):
    options = {**SMALL, 'depth': depth, **options}
    plain = randomise_(host_class('mmseg')(**options))
    ours = LayerAttentionResNet(**options)
    ours.load_state_dict(plain.state_dict())
    for mode in (False, True):
        plain.train(mode)
        assert equal(ours.train(mode)(x := image(65, 49)), plain(x))


def test_deep_stem_as_in_mmseg():
    """The same numbers under mmpretrain's names."""
    options = dict(SMALL, deep_stem=True, depth=18)
    plain, ours = randomise_(host_class('mmseg')(**options)), LayerAttentionResNet(**options)
    names = list(ours.state_dict())
    assert len(names) == len(plain.state_dict())
    ours.load_state_dict(dict(zip(names, plain.state_dict().values(), strict=True)))
    assert equal(ours.train()(x := image()), plain.train() or plain(x))


# The hosts' keywords and registries -------------------------------------------------------------------------------

REGISTRIES = {'mmdet': mmdet.registry, 'mmseg': mmseg.registry, 'mmpretrain': mmpretrain.registry}
BASES = {'mmdet': 'faster-rcnn_r50_fpn.py', 'mmseg': 'fcn_r50-d8.py', 'mmpretrain': 'resnet50.py'}


def base_backbone(library):
    folder = Path(HOSTS[library].__file__).parents[1] / '.mim' / 'configs' / '_base_' / 'models'
    return Config.fromfile(folder / BASES[library])


@pytest.mark.parametrize('library', HOSTS)
def test_only_the_type_changes(library):
    config = base_backbone(library)
    config.merge_from_dict({'model.backbone.type': 'mmkcla.KCLAResNet'})
    backbone = config.model.backbone
    with DefaultScope.overwrite_default_scope(library):
        net = REGISTRIES[library].MODELS.build(backbone)
    assert type(net) is KCLAResNet and net.depth == 50
    assert net.out_indices == backbone.out_indices and net.frozen_stages == backbone.get('frozen_stages', -1)
    assert net.norm_eval == backbone.get('norm_eval', False) and net.init_cfg == backbone.get('init_cfg', net.init_cfg)
    assert net.layer4[0].conv2.dilation == (2, 2) if library == 'mmseg' else (1, 1)
    assert isinstance(net.layer_attentions[0][0].norm, nn.SyncBatchNorm if library == 'mmseg' else nn.BatchNorm2d)


@pytest.mark.parametrize('library', HOSTS)
def test_every_keyword_of_the_hosts(library):
    """With the hosts' own defaults, whatever they are."""
    defaults = {name: parameter.default for name, parameter in
                inspect.signature(host_class(library).__init__).parameters.items()
                if parameter.default is not parameter.empty}
    net = LayerAttentionResNet(18, **{**defaults, 'base_channels': 8})
    theirs = host_class(library)(18, **{**defaults, 'base_channels': 8})
    assert {name: tensor.shape for name, tensor in net.state_dict().items()} == {
        name: tensor.shape for name, tensor in theirs.state_dict().items()}
    assert (net.norm_eval, tuple(net.out_indices)) == (theirs.norm_eval, tuple(theirs.out_indices))


def run_python(code):
    done = subprocess.run([sys.executable, '-W', 'ignore', '-c', code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_mmengine_finds_us_without_an_import():
    assert 'KCLAResNet 4' in run_python(
        'import sys\n'
        'from mmengine.registry import DefaultScope\n'
        'from mmpretrain.registry import MODELS\n'
        'assert not any(name.startswith("mmkcla") for name in sys.modules)\n'
        'with DefaultScope.overwrite_default_scope("mmpretrain"):\n'
        '    net = MODELS.build(dict(type="mmkcla.KCLAResNet", depth=18))\n'
        'print(type(net).__name__, len(net.layer_attentions))\n')


def test_layers_need_no_openmmlab():
    assert run_python(
        'import sys, mmkcla, mmkcla.layers\n'
        'print([name for name in sys.modules if name.split(".")[0] in ("mmdet", "mmseg", "mmpretrain", "mmengine", '
        '"mmcv")])\n').strip() == '[]'


def test_layer_depth_of_an_attention_is_its_blocks():
    net = KCLAResNet(50, base_channels=16)
    names = [name for name, _ in net.named_parameters() if name.startswith('layer_attentions.')]
    assert names
    for name in names:
        _, stage, block, *_ = name.split('.')
        assert net.get_layer_depth(f'backbone.{name}', 'backbone.') == net.get_layer_depth(
            f'backbone.layer{int(stage) + 1}.{block}.conv1.weight', 'backbone.')
    assert net.get_layer_depth('backbone.layer_attentions.2.5.norm.weight', 'backbone.')[0] == 5
    assert net.get_layer_depth('head.fc.weight', 'backbone.') == (7, 8)


# Choosing the method ----------------------------------------------------------------------------------------------

def test_kcla_is_the_default_and_its_options_go_without_a_type():
    net = KCLAResNet(18, base_channels=16, layer_attention=dict(head_channels=8, drop_path=0.1))
    assert net.layer_attentions[0][0].num_heads == 2 and net.layer_attentions[3][1].drop_path.p == 0.1
    assert KCLAResNet(18).layer_attentions[3][0].num_heads == 8


def test_another_method_by_class_or_name():
    class Doubling(LayerAttention):
        def __init__(self, channels, carry_channels=None, carry_stride=1, norm_layer=None):
            super().__init__()

        def reset_parameters(self):
            pass

        def attend(self, x, state, shortcut):
            return x, ()

    try:
        for type_ in (Doubling, 'Doubling', 'mmkcla.Doubling'):
            net = KCLAResNet(18, base_channels=8, out_indices=(0,), layer_attention=dict(type=type_)).eval()
            x = net.forward_stem(image())
            doubled = 2 * net.layer1[1](2 * net.layer1[0](x))
            assert equal(net(image()), (doubled,))
    finally:
        del LayerAttention._known['Doubling']


@pytest.mark.parametrize(('make', 'message'), [
    (lambda: KCLAResNet(50, layer_attention=dict(type='KCLB')), r"unknown layer_attention type 'KCLB'; known are"),
    (lambda: LayerAttentionResNet(50, layer_attention=dict(drop_path=0.)), 'layer_attention has no type; known are: '),
    (lambda: LayerAttentionResNet(50, layer_attention='KCLA'), r"layer_attention='KCLA' must be a dict"),
    (lambda: KCLAResNet(18, layer_attention=dict(tempreature='fixed')), "KCLA does not take 'tempreature'; its "),
    (lambda: KCLAResNet(18, layer_attention=dict(channels=64)), "KCLA does not take 'channels'; its options"),
    (lambda: KCLAResNet(18, layer_attention=dict(norm_cfg='BN')), "norm_cfg='BN' must be a dict with a type"),
    (lambda: KCLAResNet(18, layer_attention=dict(norm_cfg=dict(type='Nope'))),
     r"norm_cfg=\{'type': 'Nope'\} cannot be built for 64 channels"),
    (lambda: KCLAResNet(49), 'no ResNet of depth 49; choose one of: 18, 34, 50, 101, 152'),
    (lambda: KCLAResNet(18, base_channels=48, layer_attention=dict(head_channels=64)),
     '48 channels are not divisible by head_channels=64'),
    (lambda: KCLAResNet(18, layer_attention=dict(carry_blocks=(0,))), r'carry_blocks=\(0,\)'),
    (lambda: KCLAResNet(18, dcn=dict(type='DCNv2'), stage_with_dcn=(False, True, True, True)), 'does not support dcn'),
    (lambda: KCLAResNet(18, plugins=[dict(cfg=dict(type='ContextBlock'), position='after_conv3')]), 'block plugins'),
    (lambda: KCLAResNet(50, multi_grid=(1, 2)), r'multi_grid=\(1, 2\) needs .* one entry for each of the 3 blocks'),
    (lambda: KCLAResNet(50, pretrained='a.pth', init_cfg=dict(type='Pretrained', checkpoint='b.pth')), 'both be set'),
])
def test_invalid_values_are_reported(make, message):
    with pytest.raises(UserError, match=message) as error:
        make()
    assert '\n' not in str(error.value)


def test_type_errors_in_a_layer_are_not_hidden():
    class _Broken(LayerAttention):
        def __init__(self, channels, **options):
            raise TypeError('broken')

    with pytest.raises(TypeError, match='^broken$'):
        LayerAttentionResNet(18, base_channels=8, layer_attention=dict(type=_Broken))


def test_dcn_that_asks_for_nothing_is_accepted():
    net = KCLAResNet(18, base_channels=16, dcn=dict(type='DCNv2'), stage_with_dcn=(False,) * 4, plugins=[],
                     layer_attention=dict(head_channels=16))
    assert isinstance(net, LayerAttentionMixin) and len(net(image())) == 1
