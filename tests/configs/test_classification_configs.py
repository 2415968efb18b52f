"""The classification configs: they build, count what the papers' code counts, and differ by one line."""
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

ROOT = Path(__file__).parents[2] / 'configs'
METHODS = {'': None, 'kcla-': 'KCLA', 'mrla-light-': 'MRLALight', 'mrla-base-': 'MRLABase',
           'softmax-': 'SoftmaxLayerAttention', 'linear-': 'LinearLayerAttention', 'dla-light-': 'DLALight',
           'dla-base-': 'DLABase'}
BASELINES = {'se-': None}  # no layer attention
CIFAR = {f'{method}resnet{depth}_1xb128-180e_cifar{classes}': (type_, depth, classes) for method, type_ in
         (METHODS | BASELINES).items() for depth in (20, 56, 110, 164) for classes in (10, 100)}
IMAGENET = {f'{method}resnet{depth}_8xb32_in1k': (type_, depth) for method, type_ in (METHODS | BASELINES).items()
            for depth in (50, 101)}


def test_every_method_has_every_config():
    assert {path.stem for path in (ROOT / 'cifar').glob('*.py')} == set(CIFAR)
    assert {path.stem for path in (ROOT / 'imagenet').glob('*.py')} == set(IMAGENET)


@pytest.mark.parametrize('name', list(CIFAR))
def test_cifar(name):
    type_, depth, classes = CIFAR[name]
    config = Config.fromfile(ROOT / 'cifar' / f'{name}.py')
    backbone = config.model.backbone
    assert backbone.type == 'mmkcla.CifarLayerAttentionResNet' and backbone.depth == depth
    assert (backbone.get('layer_attention') or {}).get('type') == type_
    assert backbone.get('block') == ('se_bottleneck' if name.startswith('se-') else None)
    assert config.train_dataloader.dataset.type == f'CIFAR{classes}' and config.train_dataloader.batch_size == 128
    assert config.model.head.num_classes == classes
    assert config.param_scheduler[0].milestones == [100, 150] and config.train_cfg.max_epochs == 180
    assert config.default_scope == 'mmpretrain' and config.auto_scale_lr.base_batch_size == 128
    if depth == 20 or name == 'kcla-resnet164_1xb128-180e_cifar100':
        init_default_scope('mmpretrain')
        model = MODELS.build(config.model).eval()
        with torch.no_grad():
            assert model(torch.randn(2, 3, 32, 32)).shape == (2, classes)


# Of the papers' code, 1000 classes; KCLA less what is never used and the temperatures
COUNTS = {'resnet50': 25_557_032, 'kcla-resnet50': 25_850_133, 'mrla-light-resnet50': 25_738_452,
          'resnet101': 44_549_160, 'kcla-resnet101': 45_040_324, 'mrla-light-resnet101': 44_939_646,
          'dla-light-resnet50': 28_581_812, 'dla-light-resnet101': 47_783_006}


@pytest.mark.parametrize('name', list(IMAGENET))
def test_imagenet(name):
    type_, depth = IMAGENET[name]
    config = Config.fromfile(ROOT / 'imagenet' / f'{name}.py')
    attention = config.model.backbone.get('layer_attention')
    assert (attention or {}).get('type') == type_ and config.model.backbone.depth == depth
    assert config.train_dataloader.batch_size == 32 and config.auto_scale_lr.base_batch_size == 256
    assert [part.type for part in config.param_scheduler] == ['LinearLR', 'MultiStepLR']
    short = name.removesuffix('_8xb32_in1k')
    if short in COUNTS:
        init_default_scope('mmpretrain')
        model = MODELS.build(config.model)
        assert sum(parameter.numel() for parameter in model.parameters()) == COUNTS[short]


ABLATIONS = {
    'd4': dict(head_channels=4), 'd8': dict(head_channels=8), 'd32': dict(head_channels=32),
    'd64': dict(head_channels=64), 'temperature-0.5': dict(temperature_range=(0.5, 2.)),
    'temperature-0.9': dict(temperature_range=(0.9, 1 / 0.9)), 'temperature-none': dict(temperature_range=(1., 1.)),
    'no-phi': dict(head_mixing=False), 'no-relu': dict(relu=False), 'rla': dict(dynamic_value=False),
    'accumulated-key': dict(gate_key='accumulated'), 'scaled-norm': dict(scale_by_width=True),
    'learnable-temperature': dict(temperature='learnable'), 'dynamic-temperature': dict(temperature='dynamic')}


def test_there_is_a_config_for_each_ablation():
    assert {path.stem for path in (ROOT / 'cifar_ablations').glob('*.py')} == {
        f'kcla-{name}-resnet56_1xb128-180e_cifar100' for name in ABLATIONS}


@pytest.mark.parametrize('name', list(ABLATIONS))
def test_ablation_differs_by_its_option_and_builds(name):
    ours = Config.fromfile(ROOT / 'cifar_ablations' / f'kcla-{name}-resnet56_1xb128-180e_cifar100.py')
    full = Config.fromfile(ROOT / 'cifar' / 'kcla-resnet56_1xb128-180e_cifar100.py')
    assert ours.model.backbone.layer_attention == dict(type='KCLA') | ABLATIONS[name]
    init_default_scope('mmpretrain')
    layer = MODELS.build(ours.model.backbone).layer_attentions[1][0]
    assert layer.num_heads == 128 // ABLATIONS[name].get('head_channels', 16)
    del ours.model.backbone['layer_attention'], full.model.backbone['layer_attention']
    assert ours.to_dict() == full.to_dict()


def test_squeeze_and_excitation_is_the_hosts():
    """Two 1×1 convolutions with biases a block over the plain network; mmpretrain rounds C/16 up to a multiple of 8."""
    init_default_scope('mmpretrain')
    config = Config.fromfile(ROOT / 'cifar' / 'se-resnet20_1xb128-180e_cifar100.py')
    model = MODELS.build(config.model)
    extra = sum(2 * (2 * width * hidden + hidden + width) for width, hidden in ((64, 8), (128, 8), (256, 16)))
    assert sum(parameter.numel() for parameter in model.parameters()) == 243_508 + extra
