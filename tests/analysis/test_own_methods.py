"""Every analysis on layer attentions from outside the package: what is not defined is said, and nothing is guessed."""
import csv
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tiny import error_of

from mmkcla.cli import main
from mmkcla.layers import KCLA, LayerAttention, MRLALight, known_layer_attentions, layer_attention_class
from mmkcla.layers.inspection import Shares

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / 'examples' / 'ema_attention'
HEAD_METHODS = 'head_gates(call), head_temperatures(call), head_mixing_matrix()'


@pytest.fixture(autouse=True)
def known(monkeypatch):
    """What a test registers is gone afterwards."""
    monkeypatch.setattr(LayerAttention, '_known', dict(LayerAttention._known))


@pytest.fixture
def bare():
    """A layer attention without any optional method."""
    class Bare(LayerAttention):
        def __init__(self, channels, **options):
            super().__init__(**options)
            self.build_output(channels)

        def attend(self, x, state, shortcut=None):
            return self.output(x), ()

    return Bare


@pytest.fixture(scope='module')
def image(tmp_path_factory):
    path = tmp_path_factory.mktemp('image') / '0.png'
    Image.fromarray(np.arange(16 * 16 * 3, dtype=np.uint8).reshape(16, 16, 3)).save(path)
    return path


def on_digits(name):
    return ['resnet20_digits', '--cfg-options', f'model.backbone.layer_attention.type={name}']


def analyse(kind, model, image, out):
    images = ['--images', str(image)] if kind in ('keys', 'decay', 'weights') else ['--shape', '16']
    return ['analyse', kind, *model, *images, '--out-dir', str(out)]


def rows_of(path):
    with open(path, encoding='utf-8', newline='') as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(('kind', 'method'), [('keys', 'stage_keys(calls)'), ('decay', 'layer_shares(calls, position)'),
                                              ('weights', 'layer_shares(calls, position)')])
def test_a_class_without_optional_methods(bare, image, tmp_path, capsys, kind, method):
    assert error_of(capsys, *analyse(kind, on_digits('Bare'), image, tmp_path)).startswith(
        f'Bare does not define {method}, which this analysis calls; add it to ')


def test_cost_of_a_class_without_optional_methods(bare, image, tmp_path, capsys):
    assert main(analyse('flops', on_digits('Bare'), image, tmp_path)) == 0
    assert main(['analyse', 'cost', '--methods', 'Bare', '--depths', '2', '--channels', '8', '--size', '4', '--repeats',
                 '1', '--out-dir', str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert 'FLOP rule' not in shown.err and '; not in the MACs: relu, add' in shown.out
    row, = rows_of(tmp_path / 'cost.csv')
    assert int(row['macs']) == 2 * 8 * 16 and row['matrix_macs'] == '0'  # the batch norm
    assert row['uncounted'] == f'relu {2 * 8 * 16}; add {2 * 8 * 16}' and row['without_rule'] == ''


@pytest.mark.parametrize('kind', ['keys', 'decay', 'weights', 'flops', 'cost'])
def test_the_example(image, tmp_path, capsys, kind):
    config = str(EXAMPLE / 'ema_digits.py')
    try:
        if kind == 'cost':
            assert main(['analyse', 'cost', '--config', config, '--methods', 'EMAAttention', '--depths', '2',
                         '--channels', '8', '--size', '4', '--repeats', '1', '--out-dir', str(tmp_path)]) == 0
        else:
            assert main(analyse(kind, [config], image, tmp_path)) == 0
    finally:
        if str(EXAMPLE) in sys.path:
            sys.path.remove(str(EXAMPLE))
        sys.modules.pop('ema_attention', None)
    shown = capsys.readouterr()
    line = f'not known for EMAAttention: define {HEAD_METHODS} in the class (return None where it has none)'
    assert shown.out.splitlines().count(line) == (kind == 'weights') and 'nan' not in shown.out
    assert not shown.err.count('note:')
    if kind == 'cost':
        row, = rows_of(tmp_path / 'cost.csv')
        assert row['uncounted'] == f'sigmoid 16; relu {2 * 8 * 16}; add {2 * 8 * 16}' and row['without_rule'] == ''


def test_what_is_known_of_heads(bare, monkeypatch):
    class Gated(bare):
        def head_gates(self, call):
            return None

    class Faster(MRLALight):  # the computation of the package, so its answers hold
        pass

    class Other(KCLA):
        def attend(self, x, state, shortcut=None):
            return x, ()

    class Unknown(MRLALight):
        def attend(self, x, state, shortcut=None):
            return x, ()

    methods = HEAD_METHODS.split(', ')
    assert bare(4).not_known_of_heads() == methods
    assert Gated(4).not_known_of_heads() == methods[1:]
    assert Faster(32).not_known_of_heads() == Other(32).not_known_of_heads() == []
    assert Unknown(32).not_known_of_heads() == methods[1:]


def test_own_methods_are_all_known():
    kinds = map(layer_attention_class, known_layer_attentions())
    own = [kind for kind in kinds if kind.__module__.startswith('mmkcla.')]
    assert len(own) >= 8
    for kind in own:
        assert kind.build_stage(32, 1)[0].not_known_of_heads() == [], kind


ONES = torch.ones
TOKENS = 'tokens must be distinct numbers from 1 to 1, or 0 for the carry; got '
FAULTS = {  # what layer_shares returns for the first layer of two heads -> the message after the place
    'none': (lambda: None, 'expected Shares, got NoneType'),
    'weights': (lambda: Shares([1], None), 'expected a tensor, got NoneType'),
    'no token': (lambda: Shares([], ONES(0, 1, 2)), TOKENS + 'none'),
    'future': (lambda: Shares([2], ONES(1, 1, 2)), TOKENS + '2'),
    'twice': (lambda: Shares([1, 1], ONES(2, 1, 2)), TOKENS + '1, 1'),
    'rows': (lambda: Shares([1], ONES(2, 1, 2)), 'expected the shape (T = 1, B = 1, N), got (2, 1, 2)'),
    'axes': (lambda: Shares([1], ONES(1, 1)), 'expected the shape (T = 1, B = 1, N), got (1, 1)'),
    'nan': (lambda: Shares([1], ONES(1, 1, 2) * torch.nan), 'the values are not all finite; check the method and the '
                                                            'weights'),
    'norm': (lambda: Shares([1], ONES(1, 1, 2), ONES(1, 1, 2) / 0), 'the values are not all finite; check the method '
                                                                    'and the weights'),
}


@pytest.mark.parametrize('fault', FAULTS)
@pytest.mark.parametrize('kind', ['decay', 'weights'])
def test_wrong_shares(bare, image, tmp_path, capsys, monkeypatch, kind, fault):
    returned, message = FAULTS[fault]
    monkeypatch.setattr(bare, 'layer_shares', lambda self, calls, position: returned())
    assert error_of(capsys, *analyse(kind, on_digits('Bare'), image, tmp_path)) == \
        f'Bare.layer_shares, stage 1, layer 1: {message}'


@pytest.mark.parametrize(('method', 'returned', 'message'), [
    ('head_gates', [1.], 'expected a tensor, got list'),
    ('head_gates', ONES(1, 2, 1), 'expected the shape (B = 1, G), got (1, 2, 1)'),
    ('head_temperatures', ONES(3, 2), 'expected the shape (B = 1, G), got (3, 2)'),
    ('head_temperatures', ONES(1, 2) / 0, 'the values are not all finite; check the method and the weights')])
def test_wrong_heads(bare, image, tmp_path, capsys, monkeypatch, method, returned, message):
    monkeypatch.setattr(bare, 'layer_shares', lambda self, calls, position: Shares([position + 1], ONES(1, 1, 2)))
    monkeypatch.setattr(bare, method, lambda self, call: returned)
    assert error_of(capsys, *analyse('weights', on_digits('Bare'), image, tmp_path)) == \
        f'Bare.{method}, stage 1, layer 1: {message}'


def test_wrong_keys(bare, image, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(bare, 'stage_keys', lambda self, calls: ONES(len(calls), 1, 4))
    assert error_of(capsys, *analyse('keys', on_digits('Bare'), image, tmp_path)) == \
        'Bare.stage_keys, stage 1: expected the shape (D = 2, B = 1, G, d), got (2, 1, 4)'


def test_zero_shares_have_no_ratio(bare, image, tmp_path, capsys, monkeypatch):
    """Of two heads, the second has no share in any layer; in the second layer neither has the first."""
    def layer_shares(self, calls, position):
        weights = torch.tensor([[[1., 0.]], [[3., 0.]]])
        return Shares([1], weights[:1]) if position == 0 else Shares([1, 2], weights * 0)

    monkeypatch.setattr(bare, 'layer_shares', layer_shares)
    for kind in ('decay', 'weights'):
        assert main(analyse(kind, on_digits('Bare'), image, tmp_path)) == 0
    shown = capsys.readouterr()
    start = 'note: resnet20_digits (Bare, random weights, seed 0), stage 1, layer '
    end = 'of the heads or channels of 1 image; relative shares are without them'
    assert f'{start}1: all shares are 0 in 1 {end}' in shown.err
    assert f'{start}2: all shares are 0 in 2 {end}' in shown.err and 'nan' not in shown.out
    rows = [row for row in rows_of(tmp_path / 'decay.csv') if row['stage'] == '1']
    assert [(row['share'], row['relative']) for row in rows] == [('0.5', '1'), ('0', ''), ('0', '')]


def test_no_share_of_its_own_map(bare, image, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(bare, 'layer_shares', lambda self, calls, position: Shares([1], ONES(1, 1, 2)))
    assert main(analyse('decay', on_digits('Bare'), image, tmp_path)) == 0
    assert 'output of layer 2: no share of its own map, of layer 1 1.000' in capsys.readouterr().out


def test_zero_keys_are_counted(bare, image, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(bare, 'stage_keys', lambda self, calls: torch.eye(2)[:, None, None] * torch.tensor([1., 0.]))
    assert main(analyse('keys', on_digits('Bare'), image, tmp_path)) == 0
    line = 'stage 1: keys that are zero: 1 in 1 image; they have no angle, and their cosines count as 0'
    assert line in capsys.readouterr().err
