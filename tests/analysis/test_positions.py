"""What is measured against the number of positions, and what is said of it."""
import csv

import pytest

from mmkcla.analysis import positions
from mmkcla.analysis.positions import OUT_OF_MEMORY, Point, conclusions, exponent, measure


def points(power, sides=(8, 16, 32, 64)):
    return [Point('m', side, side ** 2, 'done', 1e-6 * side ** (2 * power), 1e-3 * side ** 2) for side in sides]


@pytest.mark.parametrize('power', [1., 1.5, 2.])
def test_exponent_of_a_power_law(power):
    assert exponent(points(power), 'seconds') == pytest.approx(power)
    assert exponent(points(power), 'megabytes') == pytest.approx(1.)
    assert exponent(points(power)[:1], 'seconds') is None


def test_exponent_is_of_the_larger_half():
    small = [Point('m', side, side ** 2, 'done', 1., 1.) for side in (1, 2, 4)]
    assert exponent(small + points(2.)[:3], 'seconds') == pytest.approx(2.)


def test_conclusions_say_where_it_ends():
    failed = [*points(2.), Point('m', 128, 128 ** 2, OUT_OF_MEMORY), Point('m', 256, 256 ** 2, 'skipped')]
    assert conclusions(failed) == ['m: time ∝ n^2.00, memory ∝ n^1.00, out of memory at 128²']
    assert conclusions([Point('m', 8, 64, OUT_OF_MEMORY)]) == ['m: out of memory at 8²']


def test_measures_until_memory_ends(tmp_path):
    """A quarter of a GiB holds no 96² × 96² matrix (0.3 GiB), but all that is linear in 96²."""
    names = ('EfficientAttention softmax', 'DotProductAttention2d softmax')
    found = [*measure((96,), 16, 8, 0.25, 1, names[:1]), *measure((16, 96, 128), 16, 8, 0.25, 1, names[1:])]
    assert [(point.module, point.status) for point in found] == [
        (names[0], 'done'), (names[1], 'done'), (names[1], OUT_OF_MEMORY), (names[1], 'skipped')]
    assert all(point.seconds > 0 for point in found if point.status == 'done')
    positions.write_points(tmp_path / 'points.csv', found)
    with open(tmp_path / 'points.csv', encoding='utf-8', newline='') as file:
        rows = list(csv.DictReader(file))
    assert [row['positions'] for row in rows] == ['9216', '256', '9216', '16384'] and rows[-1]['seconds'] == ''
    positions.draw_points(tmp_path / 'points.png', found)
    assert (tmp_path / 'points.png').read_bytes().startswith(b'\x89PNG')


def test_command(tmp_path, monkeypatch, capsys):
    from mmkcla.cli import main
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(positions, 'measure', lambda *args: iter(points(2.)))
    assert main(['benchmark', 'positions']) == 0
    shown = capsys.readouterr().out
    assert 'm, 8²: done 0.0041 s, 0.1 MiB\n' in shown and 'm: time ∝ n^2.00, memory ∝ n^1.00' in shown
    assert (tmp_path / 'work_dirs/benchmark/positions/positions.csv').is_file()
