"""The bytes that autograd keeps, the peak, and configs measured in turns."""
import csv
import json

import pytest
import torch
from tiny import error_of
from torch import nn

from mmkcla.analysis import loading, model_cost, model_table
from mmkcla.analysis.batches import random_batch
from mmkcla.analysis.memory import PeakCounter, saved_storages
from mmkcla.analysis.model_cost import ModelCost
from mmkcla.analysis.subject import seeded_model
from mmkcla.cli import main
from mmkcla.errors import UserError
from mmkcla.runtime.config import load_config
from mmkcla.runtime.hosts import prepare_hosts

PLAIN, KCLA = 'demo/resnet20_digits.py', 'demo/kcla-resnet20_digits.py'
DETECTOR, UNET = 'demo/mask-rcnn_r18-kcla_fpn_coins.py', 'demo/unet-kcla-small_coins.py'


class Net(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.body = nn.Sequential(*(layer for _ in range(depth) for layer in (nn.Conv2d(3, 3, 1), nn.Tanh())))

    def extract_feat(self, x):
        return (self.body(x), )


def test_counts_each_kept_map_once():
    """A convolution keeps its input, tanh its output, which the next convolution, or the square, keeps too."""
    x = torch.randn(2, 3, 4, 5)
    net = Net(3)
    with saved_storages(net) as saved:
        net.extract_feat(x)[0].square().mean()
    assert sum(saved.values()) == (1 + 3) * x.numel() * 4


def test_peak_counts_what_lives_at_one_time():
    """Three maps of 400 bytes in a row, of which two live at a time; views and inputs are not counted."""
    x = torch.zeros(100)
    with PeakCounter() as counter:
        y = x.view(10, 10) + 1
        z = y * 2
        del y
        z = z.flatten() - 1
    assert counter.peak == 800
    kept = []
    with PeakCounter() as counter:
        for _ in range(5):
            kept.append(x + 1)
    assert counter.peak == 2000


def test_peak_of_a_step_holds_kept_maps_and_gradients():
    net, x = Net(3), torch.randn(2, 3, 4, 5)
    with PeakCounter() as counter:
        net.extract_feat(x)[0].sum().backward()
    maps = x.numel() * 4
    assert 3 * maps < counter.peak < 12 * maps + 4 * sum(p.numel() for p in net.parameters()) + 100


def test_ratios_are_within_a_round(tmp_path):
    """The machine slowed down tenfold in the second round, for both."""
    one = ModelCost('one', 'eager', 10, 2 * 10**9, 2**20, 2**21, 2**22, 4, 2**20, 2, training=[1., 10., 2.],
                    inference=[1., 1., 1.])
    two = ModelCost('two', 'eager', 20, 10**9, 3 * 2**20, 2**21, 2**22, 6, 2**20, 3, training=[2., 20., 4.],
                    inference=[.5, .5, .5])
    deployed = ModelCost('two', 'deployed', 20, inference=[.25, .25, .25])
    facts = model_table.conditions((2, 3, 8, 8), 3, 'features', 'cpu')
    files = model_table.write(tmp_path, [one, two, deployed], facts)
    text = (tmp_path / 'model.md').read_text()
    for row in ('| one | 10 | 2.000 | 1.0 (1.00) | 2.0 (1.00) | 4.0 (1.00) | 4 (1.00) | 2000.0 (1.00, 1.00 to 1.00) |',
                '| two | 20 | 1.000 | 3.0 (3.00) | 2.0 (1.00) | 4.0 (1.00) | 6 (1.50) | 4000.0 (2.00, 2.00 to 2.00) |'):
        assert row in text
    assert '| two, deployed | 20 | - | - | - | - | - | - | - | - | 250.0 (1.00, 1.00 to 1.00) |' in text
    with open(tmp_path / 'model.csv', encoding='utf-8', newline='') as file:
        assert [row['inference_ratio'] for row in csv.DictReader(file)] == ['1.0', '0.5', '1.0']
    assert json.loads((tmp_path / 'machine.json').read_text())['threads'] == torch.get_num_threads()
    assert all(path.stat().st_size for path in files)


def test_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(['benchmark', 'model', PLAIN, KCLA, '--forms', 'eager', 'deployed', 'amp', 'channels-last',
                 '--shape', '16', '--batch', '2', '--rounds', '2', '--out-dir', 'out']) == 0
    shown = capsys.readouterr().out
    assert '| resnet20_digits | 220,378 |' in shown and '| kcla-resnet20_digits | 234,808 |' in shown
    assert shown.count('features differ from eager by ') == 6
    with open('out/model.csv', encoding='utf-8', newline='') as file:
        rows = {(row['config'], row['form']): row for row in csv.DictReader(file)}
    assert len(rows) == 8
    plain, kcla = rows['resnet20_digits', 'eager'], rows['kcla-resnet20_digits', 'eager']
    assert int(plain['calls']) < int(kcla['calls']) and int(plain['saved_bytes']) < int(plain['peak_bytes'])
    assert 1 < int(kcla['traffic_bytes']) / int(plain['traffic_bytes']) < 2.3
    deployed = rows['resnet20_digits', 'deployed']
    assert not deployed['training_seconds'] and int(deployed['inference_calls']) < int(plain['inference_calls'])
    assert float(rows['kcla-resnet20_digits', 'amp']['difference']) > 1e-4
    assert {path.name for path in (tmp_path / 'out').iterdir()} == {'model.csv', 'model.md', 'model.png',
                                                                    'machine.json'}


@pytest.mark.parametrize('name', [DETECTOR, UNET])
def test_complete_models_of_the_hosts(name):
    """A training step gives every parameter a gradient, and predictions run; with losses of random labels."""
    config = load_config(name, [])
    prepare_hosts(config)
    model = seeded_model(config).train()
    images, samples = random_batch(model, config.default_scope, (2, 3, 64, 64), 'cpu')
    loss = model.parse_losses(model(images, samples, mode='loss'))[0]
    loss.backward()
    assert torch.isfinite(loss) and all(p.grad is not None for p in model.parameters() if p.requires_grad)
    again = random_batch(model, config.default_scope, (2, 3, 64, 64), 'cpu')[0]
    assert torch.equal(images, again)


def test_a_form_that_computes_something_else_is_not_timed(monkeypatch):
    config = load_config(PLAIN, [])
    prepare_hosts(config)
    fold = model_cost.switch_to_deploy

    def wrong(model):
        with torch.no_grad():
            model.backbone.conv1.weight.mul_(1.01)
        return fold(model)

    monkeypatch.setattr(model_cost, 'switch_to_deploy', wrong)
    with pytest.raises(UserError, match=r'r20, deployed differs from the eager form by .* \(limit 1e-05\)'):
        model_cost.measure({'r20': config}, ['deployed'], (1, 3, 16, 16), 1)


def test_loading_needs_the_data(tmp_path):
    config = load_config(DETECTOR, [f'data_root={tmp_path}/nothing/'])
    prepare_hosts(config)
    with pytest.raises(UserError, match=r'the training data of .* cannot be loaded'):
        loading.loading_seconds(config, 2)
    digits = load_config(PLAIN, ['train_dataloader.num_workers=0', 'train_dataloader.persistent_workers=False'])
    prepare_hosts(digits)
    assert 0 < loading.loading_seconds(digits, 2) < 30


def test_bad_input(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert error_of(capsys, 'benchmark', 'model', PLAIN, PLAIN) == 'two configs are named resnet20_digits; rename one'
    assert error_of(capsys, 'benchmark', 'model', PLAIN, '--batch', 0) == '--batch must be positive, got 0'
    assert error_of(capsys, 'benchmark', 'positions', '--sides', 4, '--memory-limit', 'nan') == \
        '--memory-limit must be positive, got nan'
    assert error_of(capsys, 'benchmark', 'positions', '--sides', 8, 0) == '--sides must be positive, got [8, 0]'
    assert error_of(capsys, 'benchmark', 'model', PLAIN, '--shape', 1, '--batch', 1, '--part', 'features').endswith(
        'choose a larger --shape or --batch')
    assert error_of(capsys, 'benchmark', 'model', PLAIN, '--cfg-options',
                    'model.backbone.layer_attention.fused=False').endswith('SoftmaxLayerAttention')  # no other advice
    assert 'EAPSMNet has no extract_feat' in error_of(capsys, 'benchmark', 'model', 'demo/psmnet_motorcycle.py')
