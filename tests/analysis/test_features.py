"""The bytes that autograd keeps, and configs measured in turns."""
import csv

import torch
from tiny import error_of
from torch import nn

from mmkcla.analysis.features import FeatureCost, feature_costs, saved_storages, write_features
from mmkcla.cli import main


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


def test_models_take_turns():
    nets = {'one': Net(1), 'three': Net(3)}
    costs = feature_costs(nets, (2, 3, 4, 5), 3)
    assert [cost.config for cost in costs] == ['one', 'three'] and [len(cost.seconds) for cost in costs] == [3, 3]
    assert [cost.parameters for cost in costs] == [12, 36] and costs[0].median > 0
    assert [cost.saved_bytes for cost in costs] == [2 * 480, 4 * 480]


def test_ratios_are_within_a_round(tmp_path):
    """The machine slowed down tenfold in the second round, for both."""
    costs = [FeatureCost('one', 10, 2**20, [1., 10., 2.]), FeatureCost('two', 20, 3 * 2**20, [2., 20., 4.])]
    text = write_features(tmp_path, costs, 'here')
    assert '| one | 10 | 1.0 | 1.00 | 2000.0 | 1.00 (1.00 to 1.00) |' in text
    assert '| two | 20 | 3.0 | 3.00 | 4000.0 | 2.00 (2.00 to 2.00) |' in text
    assert (tmp_path / 'features.md').read_text() == text + '\n'
    with open(tmp_path / 'features.csv', encoding='utf-8', newline='') as file:
        assert [row['ratio'] for row in csv.DictReader(file)] == ['1.0', '2.0']


def test_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(['benchmark', 'features', 'demo/faster-rcnn_r18_fpn_coins.py', 'demo/faster-rcnn_r18_kclafpn_coins.py',
                 '--shape', '64', '--batch', '1', '--rounds', '2']) == 0
    shown = capsys.readouterr().out
    assert '| faster-rcnn_r18_fpn_coins | 3,434,805 |' in shown
    assert '| faster-rcnn_r18_kclafpn_coins | 3,437,965 |' in shown
    assert '1 images of 64×64, cpu, ' in shown


def test_bad_input(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    config = 'demo/faster-rcnn_r18_fpn_coins.py'
    assert error_of(capsys, 'benchmark', 'features', config, config) == (
        'two configs are named faster-rcnn_r18_fpn_coins; rename one')
    assert error_of(capsys, 'benchmark', 'features', config, '--batch', 0) == '--batch must be positive, got 0'
    assert error_of(capsys, 'benchmark', 'positions', '--sides', 4, '--memory-limit', 'nan') == \
        '--memory-limit must be positive, got nan'
    assert error_of(capsys, 'benchmark', 'positions', '--sides', 8, 0) == '--sides must be positive, got [8, 0]'
    assert error_of(capsys, 'benchmark', 'features', config, '--shape', 1, '--batch', 1).endswith(
        'choose a larger --shape or --batch')
    assert 'EAPSMNet has no extract_feat' in error_of(capsys, 'benchmark', 'features', 'demo/psmnet_motorcycle.py')
