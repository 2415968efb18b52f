"""The checkpoint that --resume takes: the newest one that is intact from the first byte to the last."""
import io

import numpy as np
import pytest
import torch

from mmkcla.errors import UserError
from mmkcla.runtime.resume import first_usable, read_intact
from mmkcla.weights.checksum import write_sealed


def find_resumable(folder):
    return (first_usable(folder, read_intact) or [None])[0]


@pytest.fixture
def folder(tmp_path):
    """Three checkpoints, the last of them named in last_checkpoint."""
    for number in (1, 2, 3):
        weights = dict(a=torch.full((50, ), float(number)))
        torch.save(dict(state_dict=weights, meta=dict(iter=number)), buffer := io.BytesIO())
        with open(tmp_path / f'iter_{number}.pth', 'wb') as file:
            write_sealed(file, buffer.getvalue())
    (tmp_path / 'last_checkpoint').write_text(str(tmp_path / 'iter_3.pth'))
    return tmp_path


def flip(path, share):
    data = bytearray(path.read_bytes())
    data[int(share * (len(data) - 1))] ^= 0x10
    path.write_bytes(data)


@pytest.mark.filterwarnings('ignore:Detected pickle protocol')
@pytest.mark.parametrize('share', np.linspace(0, 0.9, 12).round(2).tolist())
def test_a_file_damaged_anywhere_is_reported_and_skipped(folder, capsys, share):
    flip(folder / 'iter_3.pth', share)
    assert find_resumable(folder) == folder / 'iter_2.pth'
    line = capsys.readouterr().err
    assert line.startswith(f'note: --resume: checkpoint {folder / "iter_3.pth"} ') and line.endswith('; skipped\n')
    assert line.count('\n') == 1


def test_intact(folder, capsys):
    assert find_resumable(folder) == folder / 'iter_3.pth' and capsys.readouterr().err == ''


@pytest.mark.parametrize('damage', [lambda path: path.write_bytes(b''), lambda path: path.write_text('text'),
                                    lambda path: path.write_bytes(path.read_bytes()[:-300]),
                                    lambda path: torch.save(dict(a=torch.tensor([float('nan')])), path)])
def test_other_damage(folder, damage):
    damage(folder / 'iter_3.pth')
    flip(folder / 'iter_2.pth', 0.5)
    assert find_resumable(folder) == folder / 'iter_1.pth'


def test_all_damaged_stops(folder):
    for number in (1, 2, 3):
        flip(folder / f'iter_{number}.pth', 0.4)
    with pytest.raises(UserError, match=r'can be used \(iter_3.pth, iter_2.pth, iter_1.pth\); restore one, or choose'):
        find_resumable(folder)


def test_nothing_to_resume(tmp_path):
    assert find_resumable(tmp_path) is None
    (tmp_path / 'last_checkpoint').write_text(str(tmp_path / 'gone.pth'))
    assert find_resumable(tmp_path) is None
