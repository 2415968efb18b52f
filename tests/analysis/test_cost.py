"""Cost against depth, and the counting under it."""
import csv

import pytest
import torch
import torch.nn.functional as F
from tiny import error_of
from torch.utils.flop_counter import flop_registry, register_flop_formula

from mmkcla.analysis import cost
from mmkcla.analysis.cost import VARIANTS, Point, conclusions, default_methods, exponent, known_methods, measure
from mmkcla.analysis.count import MacCounter
from mmkcla.cli import main
from mmkcla.errors import UserError
from mmkcla.layers import LayerAttention

CHANNELS, SIZE, MAP = 16, 4, 16 * 4 * 4  # numbers in a map


def points(name, depths=(2, 4, 6), **options):
    return list(measure(depths, [name], CHANNELS, SIZE, repeats=1, **options))


# -- counting ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('mode', [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_counter_by_hand(mode) -> None:
    net = torch.nn.Sequential(torch.nn.Conv2d(4, 6, 3, groups=2), torch.nn.BatchNorm2d(6), torch.nn.Flatten(),
                              torch.nn.Linear(6 * 36, 5)).eval()
    x = torch.randn(1, 4, 8, 8)
    with mode(), MacCounter(net) as counter:
        (net(x) * 2 + 1).relu().sum()
    conv, linear = 36 * 6 * 2 * 9, 6 * 36 * 5
    assert counter.macs == conv + linear and counter.elementwise == 6 * 36 + 5
    assert counter.by_module == {'0': conv, '3': linear} and counter.part('3') == linear
    assert {name: counter.elements[name] for name in ('add', 'relu', 'sum', 'mul')} == dict(add=5, relu=5, sum=1, mul=5)
    assert not {'view', 't', 'reshape', 'convolution', 'conv2d', 'addmm'} & counter.calls.keys()


def test_counter_sums_parts_that_are_called_by_themselves() -> None:
    class Host(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Sequential(torch.nn.Linear(4, 5)))

        def forward(self, x):
            return self.head.forward(x)  # not through __call__, as mmdet calls its heads

    host = Host()
    with torch.no_grad(), MacCounter(host) as counter:
        host(torch.randn(2, 3))
    assert counter.part('head') == 2 * (3 * 4 + 4 * 5) == counter.macs and counter.part('head.1') == 2 * 4 * 5


@pytest.fixture
def custom_operator():
    """``mmkcla_test::twice``, an operator that torch has no FLOP rule for; unregistered afterwards."""
    library = torch.library.Library('mmkcla_test', 'DEF')
    library.define('twice(Tensor x) -> Tensor')
    library.impl('twice', lambda x: x + x, 'CPU')
    yield torch.ops.mmkcla_test.twice
    flop_registry.pop(torch.ops.mmkcla_test.twice, None)
    library._destroy()


@pytest.mark.parametrize(('run', 'expected'), [
    (lambda x: (x.exp() + 1).relu().sum(1).softmax(0).topk(2), set()),
    (lambda x: F.elu(x).mean().sigmoid() - x.amax(), set()), (lambda x: F.avg_pool2d(x[None], 2), set()),
    (lambda x: torch.fft.fft(x), {'_fft_r2c'}), (lambda x: torch.linalg.inv(x), {'linalg_inv_ex'}),
    (lambda x: F.layer_norm(x, (4, )), {'native_layer_norm'})], ids=lambda value: '' if callable(value) else str(value))
def test_operators_without_a_rule(run, expected) -> None:
    x = torch.rand(4, 4, 4)
    with torch.no_grad(), MacCounter() as counter:
        run(x)
    assert counter.without_rule == expected


def test_a_registered_rule_counts(custom_operator) -> None:
    with torch.no_grad(), MacCounter() as counter:
        custom_operator(torch.ones(3, 5))
    assert counter.without_rule == {'mmkcla_test::twice'} and counter.macs == 0
    register_flop_formula(custom_operator)(lambda shape, **_: 2 * shape[0] * shape[1])
    with torch.no_grad(), MacCounter() as counter:
        custom_operator(torch.ones(3, 5))
    assert counter.without_rule == set() and counter.macs == 15 and not counter.calls


# -- measuring ---------------------------------------------------------------------------------------------------------

class _Square(LayerAttention):
    """retrieved = x², which keeps x for backward once; its state is x and a view of it."""

    def __init__(self, channels, drop_path):
        super().__init__()

    def attend(self, x, state, shortcut=None):
        return x * x, (x, x[:, :1])


def test_bytes_by_hand(monkeypatch) -> None:
    monkeypatch.setitem(VARIANTS, 'square', dict(type=_Square))
    for point in points('square', depths=(3, 5)):
        assert point.status == 'done' and point.parameters == point.matrix_macs == 0
        assert point.saved_bytes == point.depth * MAP * 4 and point.state_bytes == MAP * 4
        assert point.macs == point.depth * MAP
        assert point.inference_seconds > 0 and point.training_seconds > 0


@pytest.mark.parametrize(('name', 'state'), [
    ('KCLA', lambda depth: MAP + 1), ('SoftmaxLayerAttention', lambda depth: depth * (MAP + CHANNELS)),
    ('LinearLayerAttention', lambda depth: 16 * MAP + CHANNELS), ('MRLALight', lambda depth: 0),
    ('MRLABase', lambda depth: depth * (MAP + CHANNELS)), ('DLALight', lambda depth: 2 * CHANNELS),
    ('DLABase', lambda depth: depth * (MAP + CHANNELS) + 2 * CHANNELS)])
def test_live_state(name, state) -> None:
    found = points(name, depths=(2, 4), options=dict(head_channels=16, **(
        {'reduction': 4} if name.startswith('DLA') else {})))
    assert [point.state_bytes for point in found] == [4 * state(2), 4 * state(4)]


def test_macs_by_hand() -> None:
    small = 3 * CHANNELS  # a query or a key
    own = 9 * MAP + 2 * small + CHANNELS + 1  # f_V, Q and K, ⟨Q, K⟩, Φ
    kcla = points('KCLA', options=dict(head_channels=16))
    assert [point.matrix_macs for point in kcla] == [own * depth for depth in (2, 4, 6)]
    mixing = [point.macs for point in kcla]
    assert mixing[2] - mixing[1] == mixing[1] - mixing[0]  # linear in the depth
    literal = points('SoftmaxLayerAttention, literal')
    assert [point.matrix_macs for point in literal] == [
        (9 * MAP + small) * depth * (depth + 1) // 2 + small * depth for depth in (2, 4, 6)]
    softmax = points('SoftmaxLayerAttention')
    assert [point.matrix_macs for point in softmax] == [
        9 * MAP * depth + small * depth * (depth + 1) // 2 + small * depth for depth in (2, 4, 6)]
    totals = [point.macs for point in softmax]
    # two layers more: 2 d² of mixing, each with the maps and the keys' products, so the second difference is 4 of them
    assert totals[2] - 2 * totals[1] + totals[0] == 4 * (MAP + CHANNELS * 3 + CHANNELS + 1)


def test_saved_is_linear_for_kcla_and_quadratic_for_literal_softmax() -> None:
    kcla = [point.saved_bytes for point in points('KCLA', options=dict(head_channels=16))]
    assert kcla[2] - kcla[1] == kcla[1] - kcla[0] > 2 * 4 * MAP
    literal = [point.saved_bytes for point in points('SoftmaxLayerAttention, literal')]
    assert literal[2] - 2 * literal[1] + literal[0] > 4 * 4 * MAP


def test_limits(monkeypatch) -> None:
    monkeypatch.setitem(VARIANTS, 'square', dict(type=_Square))
    first, second, third = points('square', memory_limit=3 * MAP * 4 / 2**30)
    assert first.done and second.status.startswith('stopped: keeps more than') and second.macs is None
    assert third.status.startswith('skipped: depth 4 keeps more than')
    first, second, third = points('square', limit=1e-9)
    assert first.status == 'stopped: takes longer than the limit'
    assert second.status == third.status == 'skipped: depth 2 takes longer than the limit'
    monkeypatch.setattr(cost, '_measure', lambda name, depth, *rest: (Point(name, depth, 'done'), 70.))
    assert [point.status for point in points('square')] == ['done'] + [
        'skipped: depth 2 took 70 s, the limit is 60 s'] * 2


def test_exponents_and_conclusions() -> None:
    found = [Point('a', depth, 'done', 1, 7 * depth ** 2, 0, 5 * depth, 12, 1. * depth, 0.1 * depth)
             for depth in (8, 16, 32, 64)] + [Point('a', 128, 'skipped: why')]
    assert exponent(found, 'macs') == pytest.approx(2) and exponent(found, 'state_bytes') == pytest.approx(0)
    bent = [Point('a', depth, 'done', macs=macs) for depth, macs in ((8, 1), (16, 1), (32, 10), (64, 40))]
    assert exponent(bent, 'macs') == pytest.approx(2)  # the larger half alone
    assert exponent(found[:1], 'macs') is None
    assert conclusions(found) == [
        'a: MACs ∝ D^2.00, kept for backward ∝ D^1.00, live state ∝ D^0.00, inference time ∝ D^1.00, training time ∝ '
        'D^1.00 (fitted over D = 32 to 64); depth 128 skipped: why']
    assert conclusions(found[:1]) == ['a: too few depths for an exponent']


def test_unknown_method_and_depth() -> None:
    with pytest.raises(UserError, match=r"unknown method 'KLCA'; known are: .*DLABase; .*; KCLA; .*; "
                                        r"SoftmaxLayerAttention, literal \(did you mean 'KCLA'\?\)"):
        points('KLCA')
    with pytest.raises(UserError, match='depths are positive numbers of layers, got 0'):
        points('KCLA', depths=(0, ))


def test_default_methods() -> None:
    assert default_methods() == ['KCLA', 'DLABase', 'DLALight', 'LinearLayerAttention', 'MRLABase', 'MRLALight',
                                 'SoftmaxLayerAttention', 'SoftmaxLayerAttention, literal']
    assert set(known_methods()) >= {*default_methods(), 'EfficientLayerAttention'}


def test_methods_of_others(capsys, tmp_path) -> None:
    class Cube(LayerAttention):
        def __init__(self, channels):  # neither drop_path nor head_channels
            super().__init__()

        def attend(self, x, state, shortcut=None):
            return x ** 3, ()

    try:
        assert 'Cube' in known_methods() and 'Cube' not in default_methods()
        assert main(['analyse', 'cost', '--methods', 'Cube', 'EfficientLayerAttention', '--depths', '2', '--channels',
                     '16', '--size', '4', '--head-channels', '8', '--repeats', '1', '--out-dir', str(tmp_path)]) == 0
    finally:
        del LayerAttention._known['Cube']
    assert 'note: --head-channels is ignored for Cube, EfficientLayerAttention' in capsys.readouterr().err
    with open(tmp_path / 'cost.csv', encoding='utf-8') as file:
        rows = {row['method']: row for row in csv.DictReader(file)}
    assert rows['Cube']['parameters'] == '0' and rows['Cube']['status'] == 'done'
    assert int(rows['EfficientLayerAttention']['parameters']) == 2 * (3 * (16 * 8 + 8) + 8 * 16 + 16)


def test_methods_without_a_flop_rule(capsys, tmp_path) -> None:
    class Spectrum(LayerAttention):
        def __init__(self, channels):
            super().__init__()

        def attend(self, x, state, shortcut=None):
            return torch.fft.ifft2(torch.fft.fft2(x)).real.exp(), ()

    try:
        assert main(['analyse', 'cost', '--methods', 'Spectrum', 'KCLA', '--depths', '2', '4', '--channels', '16',
                     '--size', '4', '--repeats', '1', '--out-dir', str(tmp_path)]) == 0
    finally:
        del LayerAttention._known['Spectrum']
    shown = capsys.readouterr()
    assert 'note: the MACs of Spectrum are not known: torch has no FLOP rule for _fft_c2c; register one ' \
        'with torch.utils.flop_counter.register_flop_formula in the module of the class' in shown.err
    assert 'of KCLA are not known' not in shown.err
    spectrum, kcla = shown.out.splitlines()[1:3]
    assert spectrum.startswith('Spectrum: MACs not known (no rule for _fft_c2c), kept for backward ∝')
    assert spectrum.endswith('not in the MACs: _fft_c2c, exp, add')
    assert kcla.startswith('KCLA: MACs ∝ D^') and '; not in the MACs: mean, linalg_vector_norm, ' in kcla
    with open(tmp_path / 'cost.csv', encoding='utf-8') as file:
        first = next(csv.DictReader(file))
    assert first['without_rule'] == '_fft_c2c' and first['uncounted'].endswith('exp 512; add 512')
    with open(tmp_path / 'exponents.csv', encoding='utf-8') as file:
        powers = list(csv.DictReader(file))
    assert powers[0]['macs'] == '' and powers[1]['macs'] != ''


def test_own_methods_have_all_rules() -> None:
    assert not any(point.without_rule for name in known_methods() if not name.startswith(('_', 'EMA'))
                   for point in points(name, depths=(2, )))


def test_command(tmp_path, capsys) -> None:
    assert main(['analyse', 'cost', '--depths', '2', '4', '--methods', 'KCLA', 'MRLALight', '--channels', '16',
                 '--size', '4', '--head-channels', '16', '--repeats', '1', '--out-dir', str(tmp_path / 'out')]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith('settings: 16 channels, d=16, maps 4×4, batch 1, cpu, 1 thread')
    assert shown[1].startswith('KCLA: MACs ∝ D^') and 'live state none' in shown[2]
    with open(tmp_path / 'out' / 'cost.csv', encoding='utf-8') as file:
        rows = list(csv.DictReader(file))
    assert [(row['method'], row['depth'], row['status']) for row in rows] == [
        (method, depth, 'done') for method in ('KCLA', 'MRLALight') for depth in '24']
    assert float(rows[1]['training_seconds_per_layer']) == pytest.approx(float(rows[1]['training_seconds']) / 4, 1e-4)
    assert (tmp_path / 'out' / 'cost.png').read_bytes()[:4] == b'\x89PNG'
    assert (tmp_path / 'out' / 'exponents.csv').read_text().startswith('method,macs,saved_bytes,state_bytes')
    start = ('analyse', 'cost', '--out-dir', tmp_path)
    assert error_of(capsys, *start, '--size', '0') == '--size must be at least 1, got 0'
    assert error_of(capsys, *start, '--limit', '0') == '--limit must be positive and finite, got 0'
    assert error_of(capsys, *start, '--memory-limit', 'nan') == '--memory-limit must be positive and finite, got nan'
    assert error_of(capsys, *start, '--depths', '2', '--head-channels', '7') == \
        '64 channels are not divisible by head_channels=7; choose a divisor of 64'
