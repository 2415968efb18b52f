"""The layer attention of docs/own-layer-attention.md, from its formula to models and analyses."""
import csv
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from coins_data import small_coins
from PIL import Image
from tiny import error_of
from torch import nn

from mmkcla.analysis.record import recording, split_stages
from mmkcla.checkpoint import read_checkpoint
from mmkcla.cli import main
from mmkcla.errors import UserError
from mmkcla.layers import LayerAttention
from mmkcla.runtime.config import load_config
from mmkcla.runtime.hosts import prepare_hosts

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / 'examples' / 'ema_attention'
DIGITS, COINS = EXAMPLE / 'ema_digits.py', EXAMPLE / 'ema_coins.py'
DEPTH, CHANNELS = 3, 4


@pytest.fixture(scope='module', autouse=True)
def method():
    """The class, as a config finds it; afterwards nothing of it is left."""
    load_config(str(DIGITS), [])
    yield sys.modules['ema_attention'].EMAAttention
    sys.path.remove(str(EXAMPLE))
    del sys.modules['ema_attention'], LayerAttention._known['EMAAttention']


@pytest.fixture
def layers(method):
    """Two stages in float64 and evaluation, their weights and norms at random values."""
    built = nn.ModuleList([*method.build_stage(CHANNELS, DEPTH, drop_path=0.),
                           *method.build_stage(2 * CHANNELS, DEPTH, CHANNELS, 2, drop_path=0.)]).double().eval()
    for layer in built:
        layer.weight.data.normal_()
        layer.norm.running_mean.normal_()
        layer.norm.running_var.uniform_(0.5, 2)
    return built


def maps(batch=2):
    return [torch.randn(batch, channels, size, size + 1, dtype=torch.float64)
            for channels, size in ((CHANNELS, 4), (2 * CHANNELS, 2)) for _ in range(DEPTH)]


def run(layers, xs):
    state, outs = None, []
    for layer, x in zip(layers, xs, strict=True):
        out, state = layer(x, state)
        outs.append(out)
    return outs


def norm(layer, x):
    scale = (layer.norm.running_var + layer.norm.eps).rsqrt() * layer.norm.weight
    return (x - layer.norm.running_mean[:, None, None]) * scale[:, None, None] + layer.norm.bias[:, None, None]


@torch.no_grad()
def test_formula_written_out(layers) -> None:
    xs = maps()
    outs = run(layers, xs)
    for number, (layer, x, out) in enumerate(zip(layers, xs, outs, strict=True)):
        mean = torch.zeros_like(x) if number % DEPTH == 0 else mean  # noqa: F821
        share = 1 / (1 + torch.exp(-layer.weight))[:, None, None]
        mean = mean + share * (x - mean)
        torch.testing.assert_close(out, norm(layer, mean).clamp(min=0))


def test_gradients(layers) -> None:
    xs = [x.requires_grad_() for x in maps()]
    assert torch.autograd.gradcheck(lambda *xs: tuple(run(layers, xs)), xs)

    def of_weights(*weights):
        outs, state = [], None
        for layer, weight, x in zip(layers, weights, xs, strict=True):
            out, state = torch.func.functional_call(layer, {'weight': weight}, (x.detach(), state))
            outs.append(out)
        return tuple(outs)

    assert torch.autograd.gradcheck(of_weights, [layer.weight for layer in layers])


def test_every_parameter_gets_a_gradient(layers) -> None:
    sum(out.square().sum() for out in run(layers, maps())).backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in layers.parameters())


@torch.no_grad()
def test_samples_do_not_see_each_other(layers) -> None:
    xs = maps(3)
    for out, alone in zip(run(layers, xs), run(layers, [x[1:2] for x in xs]), strict=True):
        torch.testing.assert_close(out[1:2], alone)


def test_start_and_options(method) -> None:
    torch.testing.assert_close(method(CHANNELS, start=0.2).weight.sigmoid(), torch.full((CHANNELS, ), 0.2))
    assert method.options() == dict(start=0.5, drop_path=0.2, layer_scale_init=None, with_cp=False,
                                    norm_layer=nn.BatchNorm2d)
    with pytest.raises(UserError, match='start=1 must lie between 0 and 1'):
        method(CHANNELS, start=1)


@torch.no_grad()
def test_compiles_and_runs_in_half_precision(layers) -> None:
    layers, xs = layers.float(), [x.float() for x in maps()]
    compiled = torch.compile(lambda xs: run(layers, xs), fullgraph=True, backend='aot_eager')
    for out, theirs in zip(compiled(xs), run(layers, xs), strict=True):
        torch.testing.assert_close(out, theirs)
    with torch.autocast('cpu', torch.bfloat16):
        for out, theirs in zip(run(layers, [x.bfloat16() for x in xs]), run(layers, xs), strict=True):
            assert (out.float() - theirs).norm() < 0.03 * theirs.norm()


@torch.no_grad()
def test_shares_make_the_mean(layers) -> None:
    with recording(layers) as calls:
        run(layers, maps())
    for stage in split_stages(calls):
        for position in range(DEPTH):
            shares = stage.shares(position)
            assert shares.tokens == list(range(1, position + 2))
            mean = sum(weight[..., None, None] * call.x
                       for weight, call in zip(shares.weights, stage.calls, strict=False))
            torch.testing.assert_close(mean, stage.calls[position].new_state[0])
        assert torch.equal(stage.keys()[1, :, 0], stage.calls[1].x.mean((2, 3)))


def test_zero_layer_scale_is_the_plain_network() -> None:
    option = 'model.backbone.layer_attention.layer_scale_init=0.'
    ours, plain = load_config(str(DIGITS), [option]), load_config('resnet20_digits', [])
    prepare_hosts(ours)
    from mmpretrain.registry import MODELS
    ours, plain = (MODELS.build(config.model) for config in (ours, plain))
    ours.init_weights()
    report = plain.load_state_dict(ours.state_dict(), strict=False)
    assert not report.missing_keys and all('layer_attentions' in name for name in report.unexpected_keys)
    x = torch.randn(4, 3, 16, 16)
    assert torch.equal(ours.train()(x)[0], plain.train()(x)[0])


def test_options_of_the_base_are_refused_by_name(capsys, tmp_path) -> None:
    assert error_of(capsys, 'analyse', 'flops', DIGITS, '--out-dir', tmp_path, '--cfg-options',
                    'model.backbone.layer_attention.head_channels=16').startswith(
        "layer_attention EMAAttention does not take 'head_channels'; its options are start, drop_path, "
        'layer_scale_init, with_cp, norm_cfg (see ema_attention.EMAAttention)')


# Training and analyses ----------------------------------------------------------------------------------------------

@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    """Two epochs on the digits, from a copy of the example, in a process started elsewhere."""
    folder = tmp_path_factory.mktemp('ema')
    shutil.copytree(EXAMPLE, folder / 'mine', ignore=shutil.ignore_patterns('__pycache__'))
    (folder / 'elsewhere').mkdir()
    result = subprocess.run(
        [sys.executable, '-m', 'mmkcla', 'train', str(folder / 'mine' / 'ema_digits.py'), '--work-dir', 'out',
         '--cfg-options', 'train_cfg.max_epochs=2'], cwd=folder / 'elsewhere', capture_output=True, text=True,
        env=os.environ | {'PYTHONPATH': str(ROOT), 'OMP_NUM_THREADS': '1'}, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    return folder / 'elsewhere' / 'out'


def test_digits_are_learnt(trained) -> None:
    log = next(trained.glob('*/*.log')).read_text()
    accuracy = float(re.findall(r'Epoch\(val\) \[2\]\[3/3\] +accuracy/top1: ([\d.]+)', log)[-1])
    assert accuracy > 30  # chance is 10, measured 56
    state = read_checkpoint(trained / 'epoch_2.pth')['state_dict']
    learnt = [value for name, value in state.items() if re.search(r'layer_attentions\.\d\.\d\.weight', name)]
    assert len(learnt) == 6 and all(value.abs().max() > 1e-3 for value in learnt)  # they start at 0


@pytest.fixture
def images(tmp_path):
    (tmp_path / 'images').mkdir()
    for number in range(2):
        wave = np.sin(np.add.outer(np.arange(24) / (2 + number), np.arange(24) / 3))[..., None] * [90, 60, -80] + 128
        Image.fromarray(wave.astype(np.uint8)).save(tmp_path / 'images' / f'{number}.png')
    return tmp_path / 'images'


def test_analyses(trained, images, tmp_path, capsys) -> None:
    checkpoint = trained / 'epoch_2.pth'
    weight = read_checkpoint(checkpoint)['state_dict']['backbone.layer_attentions.1.1.weight'].sigmoid()
    for name in ('keys', 'decay', 'weights'):
        assert main(['analyse', name, str(DIGITS), '--images', str(images), '--checkpoint', str(checkpoint),
                     '--out-dir', str(tmp_path / 'out')]) == 0
    shown = capsys.readouterr().out
    assert 'ema_digits (EMAAttention, epoch_2.pth), stage 1: keys of neighbouring layers have mean cosine' in shown
    with open(tmp_path / 'out' / 'decay.csv', encoding='utf-8') as file:
        own = next(row for row in csv.DictReader(file)
                   if (row['stage'], row['layer'], row['from_layer']) == ('2', '2', '2'))
    assert float(own['share']) == pytest.approx(float(weight.mean()), rel=1e-5)
    with open(tmp_path / 'out' / 'layer_weights_ema_digits.csv', encoding='utf-8') as file:
        rows = [row for row in csv.DictReader(file)
                if (row['stage'], row['layer'], row['from_layer']) == ('2', '2', '2')]
    np.testing.assert_allclose([float(row['weight']) for row in rows], weight.numpy(), rtol=1e-5)
    assert not (tmp_path / 'out' / 'gates_ema_digits.csv').exists()


def test_cost_and_flops(tmp_path, capsys) -> None:
    out = ['--out-dir', str(tmp_path)]
    assert main(['analyse', 'cost', '--config', str(DIGITS), '--methods', 'EMAAttention', '--depths', '2',
                 '--channels', '8', '--size', '4', '--repeats', '1', *out]) == 0
    with open(tmp_path / 'cost.csv', encoding='utf-8') as file:
        row, = csv.DictReader(file)
    assert int(row['parameters']) == 2 * 3 * 8 and int(row['state_bytes']) == 4 * 8 * 4 * 4
    assert main(['analyse', 'flops', str(DIGITS), str(COINS), '--shape', '64', *out]) == 0
    with open(tmp_path / 'flops.csv', encoding='utf-8') as file:
        found = {(row['config'], row['part']): int(row['parameters']) for row in csv.DictReader(file)}
    # w, γ and β of two layers for each width
    assert found['ema_digits', 'backbone.layer_attentions'] == 2 * 3 * (64 + 128 + 256)
    assert found['ema_coins', 'backbone.layer_attentions'] == 2 * 3 * (32 + 64 + 128 + 256)


def test_detector_trains(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    small_coins('data/coins')
    assert main(['train', str(COINS), '--work-dir', 'out', '--cfg-options', 'train_cfg.max_iters=2',
                 'train_cfg.val_interval=5', 'train_dataloader.batch_size=2', 'default_hooks.logger.interval=1',
                 'default_hooks.checkpoint.interval=2']) == 0
    log = next(Path('out').glob('*/*.log')).read_text()
    losses = [float(loss) for loss in re.findall(r'Iter\(train\) .* loss: ([\d.]+)', log)]
    assert len(losses) == 2 and all(0 < loss < 100 for loss in losses)
    state = read_checkpoint('out/iter_2.pth')['state_dict']
    assert any(value.abs().max() > 0 for name, value in state.items()
               if re.search(r'layer_attentions\.\d\.\d\.weight', name))


def test_commands_of_several_seeds_are_planned(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(['seeds', str(DIGITS), '--seeds', '0', '--dry-run']) == 0
    assert f'-m mmkcla train {DIGITS} --seed 0' in capsys.readouterr().out


# The text -----------------------------------------------------------------------------------------------------------

def test_the_page_shows_the_files() -> None:
    page = (ROOT / 'docs' / 'own-layer-attention.md').read_text(encoding='utf-8')
    files = ''.join(path.read_text(encoding='utf-8') for path in sorted(EXAMPLE.glob('*.py')))
    blocks = re.findall(r'```python\n(.*?)```', page, re.DOTALL)
    assert len(blocks) == 4 and all(block in files for block in blocks)
    for link in re.findall(r'\]\((\.\./[^)#]+)\)', page):
        assert (ROOT / 'docs' / link).resolve().exists(), link


def test_the_page_names_the_whole_interface() -> None:
    page = (ROOT / 'docs' / 'own-layer-attention.md').read_text(encoding='utf-8')
    inherited = set(dir(nn.Module)) | {'forward', 'unknown_option', 'extra_repr'}
    own = {name for name in vars(LayerAttention) if not name.startswith('_')} - inherited
    assert {name for name in own - {'reset_parameters'} if name not in page} == set()
