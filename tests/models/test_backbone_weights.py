"""Freezing, initial weights and pretrained weights of the backbones."""
import math

import pytest
import torch
from mmengine.model import PretrainedInit
from mmengine.registry import MODELS as ROOT
from mmengine.registry import DefaultScope
from mmengine.runner import load_checkpoint
from small_nets import HOSTS, KCLA, equal, host_class, image, mixed, randomise_, trunk, weighted_sum
from torch import nn

from mmkcla.errors import UserError
from mmkcla.models.backbones import KCLAResNet, LayerAttentionResNet, layer_attention_mixin

SMALL = dict(depth=18, base_channels=8, stem_channels=8, out_indices=(0, 1, 2, 3), norm_eval=False)
PLAIN_START = {**KCLA, 'layer_scale_init': 0.}


@pytest.fixture
def log(monkeypatch):
    """The lines the backbones log."""
    lines = []
    monkeypatch.setattr(layer_attention_mixin, 'print_log', lambda message, **_: lines.append(message))
    return lines


def build(library='mmpretrain', layer_attention=KCLA, **options):
    return mixed(host_class(library))(**{**SMALL, **options}, layer_attention=layer_attention)


def save(path, state_dict):
    """As a classifier's checkpoint, whose head a backbone has no use for."""
    torch.save({'state_dict': {**state_dict, 'fc.weight': torch.zeros(10, 64), 'fc.bias': torch.zeros(10)}}, path)
    return dict(type='Pretrained', checkpoint=str(path))


def save_plain(path, library='mmpretrain', **options):
    plain = randomise_(host_class(library)(**{**SMALL, **options}))
    return plain, save(path, plain.state_dict())


# Freezing ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('library', HOSTS)
@pytest.mark.parametrize('frozen', [-1, 0, 2, 4])
def test_frozen_stages(library, frozen):
    net = build(library, frozen_stages=frozen)
    frozen = [*(['conv1', 'bn1'] if frozen >= 0 else []), *(f'layer{i + 1}' for i in range(frozen)),
              *(f'layer_attentions.{i}' for i in range(frozen))]

    def is_frozen(name):
        return any(name == part or name.startswith(part + '.') for part in frozen)

    for step in ('built', 'train', 'eval', 'train'):
        if step != 'built':
            assert getattr(net, step)() is net
        for name, parameter in net.named_parameters():
            assert parameter.requires_grad is not is_frozen(name), (step, name)
        for name, module in net.named_modules():
            if name not in ('', 'conv1', 'relu', 'maxpool', 'layer_attentions'):
                assert module.training is (step != 'eval' and not is_frozen(name)), (step, name)
    if len(frozen) == 2 * 4 + 2:
        return
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    weighted_sum(net(image(40, 40))).backward()
    for name, parameter in net.named_parameters():
        assert (parameter.grad is None) if is_frozen(name) else parameter.grad.any(), name
    for name, tensor in net.state_dict().items():
        if name.endswith('running_mean'):
            assert torch.equal(tensor, before[name]) is is_frozen(name), name


# norm_eval --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(('loaded', 'given', 'frozen', 'reason'), [
    (None, None, False, 'no weights were loaded for them'),
    ('plain', None, False, 'no weights were loaded for them'),
    ('attention', None, True, 'their weights were loaded'),
    ('plain', True, True, 'attention_norm_eval=True'),
    ('attention', False, False, 'attention_norm_eval=False'),
])
@pytest.mark.parametrize('library', HOSTS)
def test_norm_eval(library, loaded, given, frozen, reason, tmp_path, log):
    options = dict(norm_eval=True, frozen_stages=1, attention_norm_eval=given)
    if loaded:
        net = build(library, layer_attention=KCLA if loaded == 'attention' else None)
        options['init_cfg'] = save(tmp_path / 'net.pth', net.state_dict())
    net = build(library, **options)
    net.init_weights()
    norms = [(name, module) for name, module in net.train().named_modules() if isinstance(module, nn.BatchNorm2d)]
    for name, norm in norms:
        trains = name.startswith('layer_attentions.') and not name.startswith('layer_attentions.0.') and not frozen
        assert norm.training is trains, name
    assert net.layer_attentions[1].training and net.layer1.training is False
    assert log[-1 if loaded else -2] == (
        f'{type(net).__name__}: norm_eval=True; the batch norms of the layer attentions '
        f'{"are frozen" if frozen else "are trained"} ({reason}).')
    assert not any(module.training for module in net.eval().modules())


def test_norm_eval_off_says_nothing(log):
    net = build(norm_eval=False)
    net.init_weights()
    assert all(module.training for module in net.train().modules()) and not log


@pytest.mark.parametrize('library', HOSTS)
def test_norm_eval_without_weights_warns_once(library, log):
    net = build(library, norm_eval=True)
    assert not [line for line in log if 'no pretrained weights' in line]
    net.init_weights()
    net.eval()
    assert not [line for line in log if 'no pretrained weights' in line]
    for _ in range(3):
        net.train()
    assert len([line for line in log if 'norm_eval=True, but no pretrained weights were loaded' in line]) == 1


@pytest.mark.parametrize('how', ['load_state_dict', 'load_checkpoint', 'parent', 'init_cfg', 'norm_eval=False', 'GN'])
def test_norm_eval_with_weights_does_not_warn(how, tmp_path, log):
    plain, init_cfg = save_plain(tmp_path / 'plain.pth')
    options = {'init_cfg': dict(init_cfg=init_cfg), 'norm_eval=False': dict(norm_eval=False),
               'GN': dict(norm_cfg=dict(type='GN', num_groups=2))}.get(how, {})
    net = build(**{'norm_eval': True, **options})
    net.init_weights()
    if how == 'load_state_dict':
        net.load_state_dict(plain.state_dict(), strict=False)
    elif how == 'load_checkpoint':
        load_checkpoint(net, init_cfg['checkpoint'])
    elif how == 'parent':
        nn.ModuleDict(dict(backbone=net)).load_state_dict(
            {f'backbone.{name}': value for name, value in plain.state_dict().items()}, strict=False)
    net.train()
    assert not [line for line in log if 'no pretrained weights' in line]


def test_other_weights_do_not_count_as_loaded(log):
    net = build(norm_eval=True)
    net.init_weights()
    nn.ModuleDict(dict(backbone=net, head=nn.Linear(1, 1))).load_state_dict(
        {'head.weight': torch.zeros(1, 1), 'head.bias': torch.zeros(1)}, strict=False)
    net.train()
    assert [line for line in log if 'no pretrained weights' in line]


# Initial weights --------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('library', HOSTS)
def test_attentions_keep_their_own_start(library):
    """The hosts' rules for Conv2d reach f_V and the carries; they must not stay."""
    net = build(library, base_channels=64)
    net.init_weights()
    layer = net.layer_attentions[3][0]
    for module, bound in (
        (layer.query, math.sqrt(3 / 5)),  # Xavier-uniform, kernel 5
        (layer.key, math.sqrt(3 / 5)),
        (layer.head_mixing, math.sqrt(3 / 64)),
        (layer.value, 1 / 3),  # torch's start of a depthwise 3×3
        (layer.carry.conv, 1 / 2),  # of a 1×1 with four inputs
    ):
        largest = module.weight.abs().max()
        assert largest <= bound and largest > (0.3 if module.weight.numel() < 10 else 0.95) * bound, module
    assert (layer.norm.weight == 1).all() and (layer.carry.norm.weight == 1).all()
    assert layer.log_temperature[0].exp().item() == pytest.approx(0.7)
    # and the host's rules hold for its trunk
    assert net.layer4[1].conv1.weight.std().item() == pytest.approx(math.sqrt(2 / (512 * 9)), rel=0.02)
    assert all((block.norm2.weight == 0).all() for block in net._blocks())


def test_second_init_weights_changes_nothing(tmp_path):
    net = build()
    net.init_weights()
    randomise_(net)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    net.init_weights()
    assert equal(list(net.state_dict().values()), list(before.values()))


def detector(backbone):
    return dict(type='RetinaNet', backbone=backbone,
                neck=dict(type='FPN', in_channels=[8, 16, 32, 64], out_channels=8, num_outs=4),
                bbox_head=dict(type='RetinaHead', num_classes=2, in_channels=8, feat_channels=8, stacked_convs=1))


def segmentor(backbone):
    return dict(type='EncoderDecoder', backbone=backbone,
                decode_head=dict(type='FCNHead', in_channels=64, in_index=3, channels=8, num_classes=2),
                test_cfg=dict(mode='whole'))


def classifier(backbone):
    return dict(type='ImageClassifier', backbone=backbone, neck=dict(type='GlobalAveragePooling'),
                head=dict(type='LinearClsHead', num_classes=2, in_channels=64))


@pytest.mark.parametrize(('library', 'make'), [('mmdet', detector), ('mmseg', segmentor), ('mmpretrain', classifier)],
                         ids=list(HOSTS))
def test_init_weights_of_the_whole_model(library, make, tmp_path):
    """Loads once; neither the model's nor the neck's rules touch what was loaded."""
    plain, init_cfg = save_plain(tmp_path / 'plain.pth')
    with DefaultScope.overwrite_default_scope(library):
        model = ROOT.build(make(dict(type='mmkcla.KCLAResNet', init_cfg=init_cfg, layer_attention=KCLA, **SMALL)))
    for _ in range(2):
        model.init_weights()
        model.backbone.init_weights()
        state_dict = model.backbone.state_dict()
        assert all(torch.equal(tensor, state_dict[name]) for name, tensor in plain.state_dict().items())
    assert model.backbone.is_init and model.backbone.init_cfg == init_cfg


# Starting from plain weights --------------------------------------------------------------------------------------

@pytest.mark.parametrize('library', HOSTS)
def test_from_plain_weights(library, tmp_path, log):
    plain, init_cfg = save_plain(tmp_path / 'plain.pth', library, depth=50)
    options = dict(depth=50, norm_eval=True)
    reference = host_class(library)(**{**SMALL, **options})
    reference.load_state_dict(plain.state_dict())
    net = build(library, PLAIN_START, init_cfg=init_cfg, **options)
    net.init_weights()
    assert any(f'{len(plain.state_dict())} matched' in line and 'keep their initial values' in line for line in log)
    assert not any('would start from the plain network' in line for line in log)
    x = image(40, 56)
    reference.eval()
    assert equal(net.eval()(x), reference(x))
    reference.train()
    assert equal(net.train()(x), reference(x))  # the attentions' own batch norms are training here

    start = {name: parameter.clone() for name, parameter in net.named_parameters()}
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    for step in range(2):
        optimizer.zero_grad()
        weighted_sum(net(image(40, 56, seed=step))).backward()
        optimizer.step()
    for name, parameter in net.named_parameters():
        assert parameter.isfinite().all() and not torch.equal(parameter, start[name]), name


def test_random_attention_on_plain_weights_is_logged(tmp_path, log):
    _, init_cfg = save_plain(tmp_path / 'plain.pth')
    build(init_cfg=init_cfg, frozen_stages=1).init_weights()
    assert any('layer_scale_init=0. would start from the plain network' in line for line in log)
    assert any('frozen_stages=1 freezes layer attentions with random weights' in line for line in log)
    log.clear()
    build(layer_attention=PLAIN_START, init_cfg=init_cfg, frozen_stages=1).init_weights()
    build(layer_attention=None, init_cfg=init_cfg, frozen_stages=1).init_weights()
    assert not any('would start' in line or 'with random weights' in line for line in log)


@pytest.mark.parametrize('spelling', ['list', 'class', 'pretrained', 'bare', 'safetensors'])
def test_spellings_of_pretrained(spelling, tmp_path):
    plain, init_cfg = save_plain(tmp_path / 'plain.pth')
    options = dict(init_cfg=init_cfg)
    if spelling == 'list':
        options = dict(init_cfg=[init_cfg, dict(type='Kaiming', layer='Conv2d')])
    elif spelling == 'class':
        options = dict(init_cfg={**init_cfg, 'type': PretrainedInit})
    elif spelling == 'pretrained':
        options = dict(pretrained=init_cfg['checkpoint'])
    elif spelling == 'bare':
        torch.save(plain.state_dict(), init_cfg['checkpoint'])
    else:
        from safetensors.torch import save_file
        save_file(plain.state_dict(), tmp_path / 'plain.safetensors')
        options = dict(pretrained=str(tmp_path / 'plain.safetensors'))
    net = KCLAResNet(**SMALL, layer_attention=KCLA, **options)
    net.init_weights()
    assert all(torch.equal(tensor, net.state_dict()[name]) for name, tensor in plain.state_dict().items())


@pytest.mark.parametrize('prefix', ['backbone.', 'backbone'])
def test_prefix(prefix, tmp_path):
    plain, init_cfg = save_plain(tmp_path / 'plain.pth')
    whole = {f'module.backbone.{name}': value for name, value in plain.state_dict().items()}
    init_cfg = save(tmp_path / 'whole.pth', {**whole, 'module.head.fc.weight': torch.zeros(2, 2)})
    with pytest.raises(UserError, match="contains a complete model; add prefix='backbone.' to init_cfg"):
        build(init_cfg=init_cfg).init_weights()
    net = build(init_cfg={**init_cfg, 'prefix': prefix})
    net.init_weights()
    assert all(torch.equal(tensor, net.state_dict()[name]) for name, tensor in plain.state_dict().items())
    with pytest.raises(UserError, match="no entry with the prefix 'encoder.'; its entries start with: backbone, fc"):
        build(init_cfg={**init_cfg, 'prefix': 'encoder.'}).init_weights()


@pytest.mark.parametrize(('spoil', 'counts'), [
    (lambda weights: [weights.pop(name) for name in list(weights) if name.startswith('layer4.')], (90, 25, 0, 0)),
    (lambda weights: weights.update({'conv1.weight': torch.zeros(8, 1, 7, 7)}), (119, 0, 0, 1)),
    (lambda weights: weights.update({'layer4.0.extra': weights.pop('layer4.0.conv1.weight')}), (119, 1, 1, 0)),
])
def test_weights_that_do_not_fit(spoil, counts, tmp_path):
    plain, _ = save_plain(tmp_path / 'plain.pth')
    weights = dict(plain.state_dict())
    spoil(weights)
    with pytest.raises(UserError, match=r'plain.pth does not fit LayerAttentionResNet-18: {} matched, {} missing, '
                       r'{} unexpected, {} mismatched in shape'.format(*counts)) as error:
        build(init_cfg=save(tmp_path / 'plain.pth', weights)).init_weights()
    assert 'layer_attentions' not in str(error.value) and '\n' not in str(error.value)


def test_attention_of_another_shape_does_not_fit(tmp_path):
    init_cfg = save(tmp_path / 'net.pth', build(layer_attention={**KCLA, 'head_channels': 4}).state_dict())
    with pytest.raises(UserError, match='does not fit .*mismatched: layer_attentions.0.0.'):
        build(init_cfg=init_cfg).init_weights()


def test_unused_attention_weights_are_logged(tmp_path, log):
    init_cfg = save(tmp_path / 'net.pth', build().state_dict())
    build(layer_attention=None, init_cfg=init_cfg).init_weights()
    count = sum(name.startswith('layer_attentions.') for name in build().state_dict())
    assert f'{count} not used (layer_attentions.0.0.' in log[-1] and 'fc.' not in log[-1]


@pytest.mark.parametrize('name', ['ResNetV1c', 'ResNetV1d'])
@pytest.mark.parametrize('library', ['mmseg', 'mmpretrain'])
def test_deep_stem_weights_under_either_name(library, name, tmp_path):
    options = dict(SMALL, depth=50, strides=(1, 2, 1, 1))
    plain = randomise_(host_class(library, name)(**options))
    init_cfg = save(tmp_path / 'plain.pth', plain.state_dict())
    options.update(layer_attention=PLAIN_START, init_cfg=init_cfg)
    with pytest.raises(UserError, match='has a deep stem .*set deep_stem=True'):
        KCLAResNet(**options).init_weights()
    net = KCLAResNet(**options, deep_stem=True, avg_down=name == 'ResNetV1d')
    net.init_weights()
    assert equal(net.eval()(x := image()), plain.eval() or plain(x))


def test_trunk_names_are_the_hosts_own():
    net, plain = LayerAttentionResNet(50, layer_attention=dict(type='KCLA')), host_class('mmdet')(50)
    assert trunk(net.state_dict()) == list(plain.state_dict())
