"""``mmkcla convert``: files in, files out, the account it gives, and what it refuses in which words."""
import hashlib
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from mmengine.config import Config, ConfigDict
from mmengine.registry import MODELS
from PIL import Image
from reference_files import reference_of
from safetensors import safe_open
from safetensors.torch import save_file
from tiny import KCLA, error_of, write_detector

import mmkcla.checkpoint
import mmkcla.layers
from mmkcla.checkpoint import fetch_state_dict, read_checkpoint
from mmkcla.cli import main
from mmkcla.version import __version__
from mmkcla.weights.convert import convert_reference

ROOT = Path(__file__).parents[2]
CIFAR = {'kcla': 'cifar-kcla', 'mrla_light': 'cifar-mrla-light', 'mrla_base': 'cifar-mrla-base',
         'layer_attention': 'cifar-softmax', 'dla_l': 'cifar-dla-light'}


def golden(data_dir, name):
    arrays = np.load(data_dir / 'golden' / f'{name}.npz')
    return {key: torch.from_numpy(np.asarray(arrays[key])) for key in arrays.files}


def states(arrays, prefix='state/'):
    return {name.removeprefix(prefix): tensor.float() for name, tensor in arrays.items() if name.startswith(prefix)}


@pytest.fixture
def kcla(data_dir, tmp_path):
    """A file of the reference's KCLA ResNet-20, in the middle of a training."""
    weights = states(golden(data_dir, 'cifar20_kcla'))
    torch.save(dict(state_dict={f'module.{name}': tensor for name, tensor in weights.items()}, epoch=3,
                    optimizer=dict(state={}, param_groups=[])), path := tmp_path / 'best.pth.tar')
    return path


def printed_backbone(text):
    """The arguments that the command says the file is to be used with."""
    lines = re.search(r'^backbone=(dict\(.*?\n.*\))$', text, re.MULTILINE)
    return eval(lines[1], {'dict': dict})


def untouched(folder, before):
    return sorted(folder.iterdir()) == before


# What it writes -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('suffix', ['.pth', '.safetensors'])
@pytest.mark.parametrize('name', list(CIFAR))
@torch.no_grad()
def test_file_gives_the_logits_of_the_reference(data_dir, tmp_path, capsys, name, suffix):
    arrays = golden(data_dir, f'cifar20_{name}')
    torch.save(dict(state_dict=states(arrays)), tmp_path / 'a.pth')
    out = tmp_path / f'out{suffix}'
    assert main(['convert', str(tmp_path / 'a.pth'), str(out), '--source', CIFAR[name]]) == 0
    backbone = printed_backbone(capsys.readouterr().out)
    net = MODELS.build(dict(type='ImageClassifier', backbone=backbone, neck=dict(type='GlobalAveragePooling'),
                            head=dict(type='LinearClsHead', num_classes=10, in_channels=256), _scope_='mmpretrain'))
    net.init_weights()
    net.head.load_state_dict(fetch_state_dict(out, 'head.'))
    logits = net.eval()(arrays['input'].float()).double()
    assert (logits - arrays['eval_logits']).abs().max() <= 1e-4 * arrays['eval_logits'].abs().max()


def test_account_and_contents(kcla, tmp_path, capsys):
    out = tmp_path / 'new' / 'out.pth'
    assert main(['convert', str(kcla), str(out)]) == 0  # the source is told from the names
    shown = capsys.readouterr().out
    assert f'{kcla}: cifar-kcla, CifarLayerAttentionResNet-20, KCLA, 10 classes\n' in shown
    assert re.search(r'^  matched +178 of 178$', shown, re.MULTILINE)
    assert 'dropped     6 that the released code creates but never uses (643 parameters): ' in shown
    assert 'stages.0.0.kcla.u_bn.weight and 3 more' in shown
    for kind in ('missing', 'unexpected', 'mismatched'):
        assert re.search(rf'^  {kind} +0$', shown, re.MULTILINE)
    file = torch.load(out, weights_only=True)
    backbone = dict(type='mmkcla.CifarLayerAttentionResNet', depth=20, layer_attention=dict(type='KCLA'))
    record = file['meta'].pop('mmkcla')
    assert record['methods']['backbone.layer_attentions.2.1']['type'] == 'KCLA'
    assert record['methods']['backbone.layer_attentions.2.1']['options']['head_channels'] == 16
    assert len(record['methods']) == 6 and record['version'] == __version__
    assert set(file) == {'meta', 'state_dict'} and file['meta'] == dict(
        source='cifar-kcla', source_sha256=hashlib.sha256(kcla.read_bytes()).hexdigest(), mmkcla_version=__version__,
        backbone=backbone)
    expected = convert_reference(torch.load(kcla, weights_only=True)['state_dict'], 'cifar-kcla')
    assert list(file['state_dict']) == list(expected)
    assert all(torch.equal(file['state_dict'][name], tensor) for name, tensor in expected.items())
    assert printed_backbone(shown) == backbone | dict(
        init_cfg=dict(type='Pretrained', checkpoint=str(out), prefix='backbone.'))


def test_safetensors_both_ways(kcla, tmp_path):
    weights = torch.load(kcla, weights_only=True)['state_dict']
    save_file(weights, tmp_path / 'in.safetensors')
    out = tmp_path / 'out.safetensors'
    assert main(['convert', str(tmp_path / 'in.safetensors'), str(out), '--source', 'cifar-kcla']) == 0
    with safe_open(out, 'pt') as file:
        meta = file.metadata()
    assert meta['source'] == 'cifar-kcla' and meta['mmkcla_version'] == __version__
    assert meta['backbone'] == ('{"type": "mmkcla.CifarLayerAttentionResNet", "depth": 20, '
                                '"layer_attention": {"type": "KCLA"}}')
    assert read_checkpoint(out)['meta']['mmkcla']['methods']['backbone.layer_attentions.0.0']['type'] == 'KCLA'
    written, expected = read_checkpoint(out)['state_dict'], convert_reference(weights, 'cifar-kcla')
    assert set(written) == set(expected) and all(torch.equal(written[name], expected[name]) for name in expected)


def test_views_do_not_take_their_storage_along(data_dir, tmp_path):
    weights = states(golden(data_dir, 'cifar20_mrla_light'))
    pool = torch.zeros(10_000_000)
    pool[:2560] = weights['fc.weight'].flatten()
    weights['fc.weight'] = pool[:2560].view(10, 256)
    torch.save(weights, tmp_path / 'a.pth')
    assert main(['convert', str(tmp_path / 'a.pth'), str(tmp_path / 'b.pth')]) == 0
    assert (tmp_path / 'a.pth').stat().st_size > 40_000_000 > 3_000_000 > (tmp_path / 'b.pth').stat().st_size


@pytest.mark.parametrize('place', ['model', 'model_ema', 'state_dict_ema', None])
def test_where_weights_are(kcla, tmp_path, place):
    weights = torch.load(kcla, weights_only=True)['state_dict']
    torch.save({place: weights, 'epoch': 1} if place else weights, tmp_path / 'a.pt')
    assert main(['convert', str(tmp_path / 'a.pt'), str(tmp_path / 'b.pth')]) == 0
    assert len(torch.load(tmp_path / 'b.pth', weights_only=True)['state_dict']) == 178


@torch.no_grad()
def test_one_layer(data_dir, tmp_path, capsys):
    arrays = golden(data_dir, 'imagenet_kcla_layers')
    torch.save(states(arrays, 'state/3.'), tmp_path / 'a.pth')
    assert main(['convert', str(tmp_path / 'a.pth'), str(tmp_path / 'b.safetensors')]) == 0
    lines = capsys.readouterr().out.split('use it with:\n')[1]
    space = {'mmkcla': mmkcla}
    exec(lines, space)
    layer = space['layer'].double().eval()
    assert layer.carry.conv.weight.shape == (512, 32, 1, 1) and layer.num_heads == 8
    # the state that the third layer left: its history mean is m z/(z + 1e-3)
    z = arrays['log_z/2'].double().exp()
    share = (z / (z + 1e-3)).repeat_interleave(64, 1)[..., None, None]
    out, _ = layer(arrays['x/3'].double(), (arrays['history_mean/2'].double() / share, z))
    assert (out - arrays['out/3']).abs().max() <= 1e-6 * arrays['out/3'].abs().max()


def test_layer_with_the_carry_of_block_11(data_dir, tmp_path, capsys):
    torch.save(states(golden(data_dir, 'imagenet_kcla_layers'), 'state/0.'), tmp_path / 'a.pth')
    assert main(['convert', str(tmp_path / 'a.pth'), str(tmp_path / 'b.pth'), '--carry', 'block']) == 0
    shown = capsys.readouterr().out
    assert 'dropped     1 that the released code creates but never uses (8,192 parameters): adjust_channel.w' in shown
    assert 'KCLA(channels=256, head_channels=64, carry_channels=256, carry_stride=1)' in shown


@pytest.mark.parametrize(('depth', 'dead', 'with_config'), [(50, '8,709', True), (101, '41,477', False)])
def test_imagenet_kcla_at_full_size(tmp_path, capsys, depth, dead, with_config):
    config = f'kcla-resnet{depth}_8xb32_in1k'
    model = Config.fromfile(ROOT / 'configs' / 'imagenet' / f'{config}.py').model.to_dict()
    net = MODELS.build(dict(model, _scope_='mmpretrain'))
    torch.save(dict(state_dict=reference_of(net.state_dict(), 'kcla')), tmp_path / 'a.pth.tar')
    more = ['--config', config] if with_config else []
    assert main(['convert', str(tmp_path / 'a.pth.tar'), str(tmp_path / 'b.pth'), *more]) == 0
    shown = capsys.readouterr().out
    assert f'({dead} parameters)' in shown
    backbone = printed_backbone(shown)
    assert backbone['depth'] == depth
    assert backbone['layer_attention'] == dict(type='KCLA', **(dict(carry_blocks=(11, )) if depth == 101 else {}))
    net.load_state_dict(torch.load(tmp_path / 'b.pth', weights_only=True)['state_dict'])  # strict


def test_plain_resnet(tmp_path, capsys):
    plain = torchvision.models.resnet18(num_classes=3)
    torch.save(plain.state_dict(), tmp_path / 'a.pth')
    assert main(['convert', str(tmp_path / 'a.pth'), str(tmp_path / 'b.pth'), '--source', 'torchvision']) == 0
    shown = capsys.readouterr().out
    assert re.search(r'kept +98 at their initial values, as the file cannot contain them: '
                     r'backbone.layer_attentions.0.0.', shown)
    assert re.search(r'^  missing +0$', shown, re.MULTILINE)
    net = MODELS.build(dict(printed_backbone(shown), _scope_='mmpretrain'))
    net.init_weights()
    x = torch.randn(1, 3, 40, 40)
    plain.fc = plain.avgpool = torch.nn.Identity()
    with torch.no_grad():  # layer_scale_init=0.: at its start the network is the plain one
        torch.testing.assert_close(net.eval()(x)[0].flatten(1), plain.eval()(x))


def test_classifier_for_a_detector(tmp_path, capsys):
    config = write_detector(tmp_path / 'tiny.py', tmp_path, backbone=KCLA)
    backbone = Config.fromfile(config).model.backbone
    net = MODELS.build(dict(backbone.to_dict(), init_cfg=None, layer_attention=None, type='mmkcla.LayerAttentionResNet',
                            _scope_='mmdet'))
    torch.save(net.state_dict(), tmp_path / 'a.pth')
    arguments = ['convert', str(tmp_path / 'a.pth'), str(tmp_path / 'b.pth'), '--source', 'mmpretrain', '--config',
                 str(config)]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert f'mmpretrain, the backbone of {config}' in shown and 'unchecked' not in shown
    loaded = MODELS.build(dict(printed_backbone(shown), _scope_='mmdet'))
    loaded.init_weights()
    assert torch.equal(loaded.layer4[0].conv1.weight, net.layer4[0].conv1.weight)


@pytest.mark.parametrize('with_config', [True, False])
def test_detector(tmp_path, capsys, with_config):
    config = write_detector(tmp_path / 'tiny.py', tmp_path, backbone=KCLA)
    from mmkcla.runtime.hosts import import_hosts
    import_hosts(['mmdet'], with_models=True)
    net = MODELS.build(ConfigDict(Config.fromfile(config).model.to_dict(), _scope_='mmdet'))
    ours = net.state_dict()
    inside = {name: tensor for name, tensor in ours.items() if name.startswith('backbone.')}
    theirs = {f'backbone.{name}': tensor for name, tensor in reference_of(inside, 'kcla').items()}
    theirs |= {name: tensor for name, tensor in ours.items() if name not in inside}
    torch.save(dict(state_dict=theirs, meta=dict(epoch=12)), tmp_path / 'epoch_12.pth')
    more = ['--config', str(config)] if with_config else []
    assert main(['convert', str(tmp_path / 'epoch_12.pth'), str(tmp_path / 'b.pth'), *more]) == 0
    shown = capsys.readouterr().out
    assert ('unchecked' in shown) != with_config and (f"load_from = '{tmp_path / 'b.pth'}'" in shown) == with_config
    net.load_state_dict(torch.load(tmp_path / 'b.pth', weights_only=True)['state_dict'])
    assert torch.equal(net.roi_head.bbox_head.fc_cls.weight, ours['roi_head.bbox_head.fc_cls.weight'])


def test_tool_is_the_command(tmp_path):
    tool = ROOT / 'tools' / 'model_converters' / 'reference_to_mmkcla.py'
    result = subprocess.run([sys.executable, tool, 'no.pth', 'out.pth'], cwd=tmp_path, capture_output=True, text=True)
    assert (result.returncode, result.stdout, result.stderr) == (2, '', 'error: no such file: no.pth\n')


# A partial match ----------------------------------------------------------------------------------------------------

def test_values_that_are_not_finite_are_refused(tmp_path, capsys):
    weights = torchvision.models.resnet18(weights=None).state_dict()
    weights['conv1.weight'][0, 0, 0, 0] = torch.nan
    weights['fc.bias'][3] = torch.inf
    torch.save(weights, file := tmp_path / 'r18.pth')
    assert error_of(capsys, 'convert', file, tmp_path / 'out.pth').startswith(
        f'checkpoint {file} has NaN or infinite values in conv1.weight, fc.bias: ')
    assert not (tmp_path / 'out.pth').exists()


def test_types_and_twins_that_cannot_be(tmp_path, capsys):
    weights = torchvision.models.resnet18(weights=None).state_dict()
    weights['conv1.weight'] = weights['conv1.weight'].int()
    torch.save(weights, file := tmp_path / 'r18.pth')
    assert error_of(capsys, 'convert', file, tmp_path / 'out.pth') == \
        f"{file}: torchvision: 'conv1.weight' has type int32; weights must be floating-point"
    torch.save({'conv1.weight': torch.zeros(2), 'module.conv1.weight': torch.ones(2)}, file)
    assert error_of(capsys, 'convert', file, tmp_path / 'out.pth') == \
        f"{file}: the checkpoint contains 'conv1.weight' twice, with and without 'module.'"


def test_other_number_of_classes(kcla, tmp_path, capsys):
    before = sorted(tmp_path.iterdir())
    line = error_of(capsys, 'convert', kcla, tmp_path / 'o.pth', '--source', 'cifar-kcla', '--num-classes', '100')
    assert line == (
        f'{kcla} fits CifarLayerAttentionResNet-20, KCLA, 100 classes only partially: 2 mismatched in shape '
        '(head.fc.weight 10×256 in the file, 100×256 in the network, head.fc.bias 10 in the file, 100 in the network); '
        'nothing was written (--allow-partial writes the matching entries)')
    assert untouched(tmp_path, before)


def test_other_depth(kcla, tmp_path, capsys):
    line = error_of(capsys, 'convert', kcla, tmp_path / 'out.pth', '--depth', '56')
    assert 'only partially: 288 missing (backbone.layer1.2.conv1.weight, ' in line and 'and 285 more' in line
    line = error_of(capsys, 'convert', kcla, tmp_path / 'out.pth', '--depth', '51')
    assert line.startswith(f'{kcla}: there is no CIFAR ResNet of depth 51')


def test_what_is_missing_and_too_much(data_dir, tmp_path, capsys):
    weights = states(golden(data_dir, 'cifar20_mrla_light'))
    del weights['layer3.1.conv3.weight']
    weights['layer3.1.conv4.weight'] = torch.zeros(3)
    torch.save(weights, tmp_path / 'a.pth')
    before = sorted(tmp_path.iterdir())
    line = error_of(capsys, 'convert', tmp_path / 'a.pth', tmp_path / 'b.pth')
    assert '1 missing (backbone.layer3.1.conv3.weight); 1 unexpected (backbone.layer3.1.conv4.weight)' in line
    assert untouched(tmp_path, before)


def test_allow_partial_writes_what_matches_and_says_so(kcla, tmp_path, capsys):
    out = tmp_path / 'out.pth'
    assert main(['convert', str(kcla), str(out), '--num-classes', '100', '--allow-partial']) == 0
    shown = capsys.readouterr()
    assert f'note: {out} is partial: 2 mismatched in shape (head.fc.weight' in shown.err
    assert 'mismatched  2: head.fc.weight 10×256 in the file' in shown.out
    names = set(torch.load(out, weights_only=True)['state_dict'])
    assert len(names) == 176 and not any(name.startswith('head.') for name in names)


# Refused --------------------------------------------------------------------------------------------------------------

class Hostile:
    """Unpickled, it makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path, )


def test_hostile_pickle_does_not_run(tmp_path, capsys, monkeypatch):
    mark = tmp_path / 'it ran'
    torch.save(dict(state_dict={}, hook=Hostile(mark)), tmp_path / 'a.pth')
    line = error_of(capsys, 'convert', tmp_path / 'a.pth', tmp_path / 'b.pth', '--source', 'cifar-kcla')
    assert line.startswith(f'checkpoint {tmp_path / "a.pth"} contains more than weights (') and 'it is refused' in line
    assert not mark.exists() and not (tmp_path / 'b.pth').exists()
    monkeypatch.setenv('TORCH_FORCE_WEIGHTS_ONLY_LOAD', '0')
    torch.load(tmp_path / 'a.pth', weights_only=False)
    assert mark.exists()  # it would have


def test_files_that_are_no_checkpoints(kcla, tmp_path, capsys):
    arguments = (tmp_path / 'b.pth', '--source', 'cifar-kcla')
    truncated, picture, empty = (tmp_path / name for name in ('truncated.pth', 'picture.pth', 'empty.pth'))
    truncated.write_bytes(kcla.read_bytes()[:-5000])
    Image.new('RGB', (8, 8)).save(picture, 'JPEG')
    torch.save(dict(state_dict={}), empty)
    (tmp_path / 'cut.safetensors').write_bytes(b'\xff\0\0\0\0\0\0\0{"a":')
    line = error_of(capsys, 'convert', truncated, *arguments)
    assert line.startswith(f'checkpoint {truncated} is truncated or not a checkpoint (')
    assert error_of(capsys, 'convert', picture, *arguments) == f'checkpoint {picture} is a JPEG image'
    line = error_of(capsys, 'convert', tmp_path / 'cut.safetensors', *arguments)
    assert 'cut.safetensors is truncated or not a safetensors file (' in line
    line = error_of(capsys, 'convert', empty, *arguments)
    assert line == f'{empty}: the checkpoint contains no weights; its keys are: state_dict'
    assert not (tmp_path / 'b.pth').exists()


def test_wrong_architecture_and_source(data_dir, kcla, tmp_path, capsys):
    with torch.device('meta'):
        nets = dict(vgg=torchvision.models.vgg11(), r18=torchvision.models.resnet18())
    for name, net in nets.items():
        torch.save({key: torch.zeros(1) for key in net.state_dict()}, tmp_path / f'{name}.pth')
    torch.save(states(golden(data_dir, 'cifar20_mrla_base')), tmp_path / 'base.pth')
    out = tmp_path / 'b.pth'
    for file, source, message in (
            (tmp_path / 'vgg.pth', 'torchvision', 'the checkpoint is not from torchvision: its entries fit no known '
                                                  'source; they start with: classifier, features'),
            (tmp_path / 'vgg.pth', None, 'its entries fit no known source; they start with: '
                                         'classifier, features'),
            (tmp_path / 'r18.pth', 'cifar-kcla', 'the checkpoint is not from cifar-kcla: its entries are those of '
                                                 'torchvision'),
            (kcla, 'imagenet-kcla', 'the checkpoint is not from imagenet-kcla: its entries are those of cifar-kcla'),
            (tmp_path / 'base.pth', None, 'the names fit several sources; choose one: --source cifar-mrla-base or '
                                          '--source cifar-softmax')):
        line = error_of(capsys, 'convert', file, out, *(['--source', source] if source else []))
        assert line == f'{file}: {message}'
    line = error_of(capsys, 'convert', kcla, out, '--source', 'kcla')
    assert line.startswith(f"{kcla}: unknown source 'kcla'; available: cifar-dla-light, ")
    assert not out.exists()


def test_outputs_that_cannot_be(kcla, tmp_path, capsys):
    out = tmp_path / 'out.pth'
    out.write_text('precious')
    assert error_of(capsys, 'convert', kcla, out) == f'{out} exists; use --force to overwrite it'
    assert out.read_text() == 'precious'
    line = error_of(capsys, 'convert', kcla, out / 'b.pth')
    assert line.startswith(f'cannot write {out / "b.pth"}: ') and line.endswith('; choose another output file')
    assert error_of(capsys, 'convert', kcla, tmp_path / 'b.pt').endswith('use .pth or .safetensors')
    (tmp_path / 'folder.pth').mkdir()
    assert 'is a folder' in error_of(capsys, 'convert', kcla, tmp_path / 'folder.pth', '--force')
    assert main(['convert', str(kcla), str(out), '--force']) == 0
    line = error_of(capsys, 'convert', out, tmp_path / 'folder.pth' / '..' / 'out.pth', '--force')
    assert line.endswith('is the input file; choose another output file')
    line = error_of(capsys, 'convert', out, tmp_path / 'again.pth')
    assert line == f'{out}: it already has the names of this package and needs no conversion'


def test_nothing_is_left_of_a_write_that_fails(kcla, tmp_path, capsys, monkeypatch):
    def full(value, file):
        file.write(b'half of it')
        raise OSError(28, 'No space left on device')

    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr(torch, 'save', full)
    line = error_of(capsys, 'convert', kcla, tmp_path / 'out.pth')
    assert line == f'cannot write {tmp_path / "out.pth"}: No space left on device; choose another output file'
    assert untouched(tmp_path, before)


def test_arguments(kcla, tmp_path, capsys):
    out = tmp_path / 'out.pth'
    assert error_of(capsys, 'convert', tmp_path / 'no.pth', out) == f'no such file: {tmp_path / "no.pth"}'
    assert error_of(capsys, 'convert', tmp_path, out) == f'{tmp_path} is a folder'
    line = error_of(capsys, 'convert', kcla, out, '--config', 'kcla-resnet20_digits', '--num-classes', '3')
    assert line == '--depth and --num-classes cannot be used with --config, which defines both'
    assert '--cfg-options needs --config' in error_of(capsys, 'convert', kcla, out, '--cfg-options', 'a=1')
    assert error_of(capsys, 'convert', kcla, out, '--num-classes', '0') == '--num-classes must be at least 1, got 0'
    (tmp_path / 'c.py').write_text('model = None\n')
    line = error_of(capsys, 'convert', kcla, out, '--config', tmp_path / 'c.py')
    assert line.endswith('c.py has no model with a backbone')
