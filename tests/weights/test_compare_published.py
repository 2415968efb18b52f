"""tools/dev/compare_published.py on small stand-ins of published code, written from the papers' formulas."""
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from mmengine.registry import MODELS
from reference_files import reference_of

sys.path.insert(0, str(Path(__file__).parents[2] / 'tools' / 'dev'))
import compare_published

# MRLA-light on torchvision's bottlenecks, with the names of the released network
NETWORKS = '''
import torch
from torch import nn
from torchvision.models import resnet18
from torchvision.models.resnet import Bottleneck, ResNet


class Light(nn.Module):
    def __init__(self, channels, past, first_gate):
        super().__init__()
        size = int((channels.bit_length() - 1 + 1) / 2)
        size += 1 - size % 2
        self.mrla = nn.ModuleDict(dict(
            Wq=nn.Conv1d(1, 1, size, padding=size // 2, bias=False),
            Wk=nn.Conv1d(1, 1, size, padding=size // 2, bias=False),
            Wv=nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)))
        self.lambda_t = nn.Parameter(torch.randn(channels, 1, 1))
        self.past, self.first_gate = past, first_gate

    def forward(self, x, identity):
        pooled = x.mean((2, 3))[:, None]
        product = self.mrla['Wq'](pooled) * self.mrla['Wk'](pooled)
        gate = torch.sigmoid(product.reshape(len(x), -1, 32).sum(-1) / 32 ** 0.5).repeat_interleave(32, 1)
        if self.first_gate:
            gate = gate[:1]
        return self.mrla['Wv'](x) * gate[:, :, None, None] + (self.lambda_t * identity if self.past else 0)


class Block(Bottleneck):
    options = dict(past=True, first_gate=False)

    def __init__(self, inplanes, planes, *rest, **options):
        super().__init__(inplanes, planes, *rest, **options)
        self.mrla = Light(4 * planes, **self.options)
        self.bn_mrla = nn.BatchNorm2d(4 * planes)

    def forward(self, x):
        x = x + nn.Linear(1, 1, bias=False)(torch.zeros(1).cuda())  # as the released DLA creates its state
        identity = x if self.downsample is None else self.downsample(x)
        out = super().forward(x)
        return out + self.bn_mrla(self.mrla(out, identity))


def light(num_classes=5, **options):
    kind = type('Block', (Block, ), dict(options=Block.options | options))
    return ResNet(kind, [3, 4, 6, 3], num_classes=num_classes)


def shorter():
    return ResNet(Block, [3, 4, 6, 2], num_classes=5)


def number():
    return 3


class Features(ResNet):
    def __init__(self):
        super().__init__(Block, [3, 4, 6, 3], num_classes=5)

    def forward(self, x):
        return [super().forward(x)]
'''
SMALL = ('--size', '32', '--batches', '2')


@pytest.fixture
def checkout(tmp_path):
    (tmp_path / 'networks').mkdir()
    (tmp_path / 'networks' / 'resnets.py').write_text(NETWORKS, encoding='utf-8')
    yield tmp_path
    for name in ('networks', 'networks.resnets'):
        sys.modules.pop(name, None)


def compare(checkout, name, *arguments, source='imagenet-mrla-light', module='networks.resnets'):
    return compare_published.main([str(checkout), '--source', source, '--module', module, '--name', name, *arguments])


def value(line):
    return float(line.split('difference ')[1].split()[0])


@pytest.mark.parametrize(('name', 'source', 'double', 'most'), [
    ('light', 'imagenet-mrla-light', False, 1e-6), ('light', 'imagenet-mrla-light', True, 1e-12),
    ('resnet18', 'torchvision', False, 1e-6)])
def test_equal_networks(checkout, capsys, name, source, double, most):
    assert compare(checkout, name, *SMALL, *(['--double'] if double else []), source=source) == 0
    line, = capsys.readouterr().out.splitlines()
    assert line.startswith(f'{source}: networks.resnets.{name}: largest relative difference ')
    assert line.endswith(f'(2 × 1 images of 32×32, {"float64" if double else "float32"}, seed 0)')
    assert value(line) < most


def test_a_difference_is_found(checkout, capsys):
    assert compare(checkout, 'light', *SMALL, '--arguments', 'past=False', 'num_classes=3') == 1
    assert value(capsys.readouterr().out) > 1e-3


def test_one_sample_s_state_for_all_shows_by_position(checkout, capsys):
    assert compare(checkout, 'light', *SMALL, '--batch', '3', '--arguments', 'first_gate=True') == 1
    by_position = capsys.readouterr().out.splitlines()[1].removeprefix('by position in the batch: ').split()
    assert float(by_position[0]) < 1e-6 and min(map(float, by_position[1:])) > 1e-5
    assert compare(checkout, 'light', *SMALL, '--arguments', 'first_gate=True') == 0  # batches of one


@pytest.mark.parametrize(('name', 'source', 'module', 'message'), [
    ('light', 'imagenet-kcla', 'networks.resnets', 'error: the checkpoint is not from imagenet-kcla'),
    ('missing', 'imagenet-mrla-light', 'networks.resnets', 'AttributeError: module \'networks.resnets\' has no'),
    ('light', 'imagenet-mrla-light', 'networks.absent', 'No module named \'networks.absent\'; check --module'),
    ('number', 'imagenet-mrla-light', 'networks.resnets', 'networks.resnets.number gives a int, not a torch.nn.Module'),
    ('shorter', 'imagenet-mrla-light', 'networks.resnets', 'has (3, 4, 6, 2) bottleneck blocks'),
    ('Features', 'imagenet-mrla-light', 'networks.resnets', 'the published network returns list, ours (1, 5)')])
def test_errors(checkout, capsys, name, source, module, message):
    assert compare(checkout, name, *SMALL, source=source, module=module) == 2
    shown = capsys.readouterr().err
    assert message in shown and shown.count('\n') == 1


def test_package_that_cannot_be_imported(checkout, capsys):
    (checkout / 'networks' / '__init__.py').write_text('import networks.absent\n', encoding='utf-8')
    assert compare(checkout, 'resnet18', *SMALL, source='torchvision') == 2
    assert capsys.readouterr().err.endswith('or try --skip-package-init\n')
    assert compare(checkout, 'resnet18', *SMALL, '--skip-package-init', source='torchvision') == 0


def test_random_state_follows_the_seed(checkout):
    network = compare_published.published_network(checkout, 'networks.resnets', 'light', {})
    first, again, other = (compare_published.random_state(network, torch.Generator().manual_seed(seed))
                           for seed in (0, 0, 1))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first['conv1.weight'], other['conv1.weight'])
    assert all((first[name] > 0).all() for name in first if name.endswith(('running_var', 'bn1.weight')))
    assert str(checkout) not in sys.path


@pytest.mark.parametrize(('method', 'attention', 'options'), [
    ('kcla', dict(type='KCLA'), {}), ('mrla-base', dict(type='MRLABase', head_channels=16), dict(deep_stem=True)),
    ('dla-light', dict(type='DLALight'), {})])
def test_random_states_of_all_methods(method, attention, options):
    backbone = dict(type='mmkcla.LayerAttentionResNet', depth=50, base_channels=16, stem_channels=16,
                    layer_attention=attention, **options)
    ours = MODELS.build(dict(type='ImageClassifier', _scope_='mmpretrain', backbone=backbone, neck=dict(
        type='GlobalAveragePooling'), head=dict(type='LinearClsHead', num_classes=7, in_channels=512)))

    class Named(torch.nn.Module):
        def state_dict(self):
            return reference_of(ours.state_dict(), method)

    state = compare_published.random_state(Named(), torch.Generator().manual_seed(0))
    network = compare_published.converted_network(state, f'imagenet-{method}')
    with torch.no_grad():
        out = network(torch.randn(2, 3, 32, 32), mode='tensor')
    assert out.shape == (2, 7) and out.isfinite().all() and 0.01 < out.std() < 100
    if method == 'kcla':
        temperature = network.backbone.layer_attentions[1][0].log_temperature
        torch.testing.assert_close(temperature, -state['layer2.attention.0.norm_d'].flatten().log().float())


def test_command(checkout):
    done = subprocess.run([sys.executable, compare_published.__file__, str(checkout / 'none'), '--source',
                           'imagenet-kcla', '--module', 'a', '--name', 'b'], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 2 and done.stderr.splitlines()[-1] == f'error: no such folder: {checkout}/none'
