"""Figures without a display, written atomically."""
import os

import numpy as np
import pytest
from PIL import Image

from mmkcla.utils.figures import new_figure, sparse_ticks, write_figure


def test_a_figure_is_written_in_its_size(tmp_path) -> None:
    figure = new_figure(3, 2, facecolor='red')
    assert type(figure.get_layout_engine()).__name__ == 'ConstrainedLayoutEngine'
    write_figure(tmp_path / 'deep' / 'a.png', figure, dpi=50)
    with Image.open(tmp_path / 'deep' / 'a.png') as picture:
        assert (picture.format, picture.size) == ('PNG', (150, 100))
        assert np.unique(np.asarray(picture.convert('RGB')).reshape(-1, 3), axis=0).tolist() == [[255, 0, 0]]
    assert os.listdir(tmp_path / 'deep') == ['a.png']


def test_options_go_before_the_default() -> None:
    assert new_figure(1, 1, layout=None).get_layout_engine() is None


def test_pyplot_knows_nothing_of_it() -> None:
    pyplot = pytest.importorskip('matplotlib.pyplot')
    before = pyplot.get_fignums()
    new_figure(1, 1)
    assert pyplot.get_fignums() == before


def test_a_figure_that_fails_leaves_the_old_one(tmp_path, monkeypatch) -> None:
    figure = new_figure(1, 1)

    def fail(file, **_):
        file.write(b'half')
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr(figure, 'savefig', fail)
    (tmp_path / 'a.png').write_bytes(b'old')
    with pytest.raises(OSError, match='No space left'):
        write_figure(tmp_path / 'a.png', figure)
    assert (tmp_path / 'a.png').read_bytes() == b'old' and os.listdir(tmp_path) == ['a.png']


@pytest.mark.parametrize(('count', 'most', 'expected'), [
    (3, 12, [0, 1, 2]), (12, 12, list(range(12))), (13, 12, [0, 2, 4, 6, 8, 10, 12]), (10, 3, [0, 4, 8]), (1, 1, [0])])
def test_sparse_ticks(count, most, expected) -> None:
    assert sparse_ticks(count, most) == expected
