"""Zip files that are built to harm: bombs of every kind, names, links, nested files, and the memory of many threads."""
import io
import struct
import threading
import time
import zipfile

import numpy as np
import pytest
from medical_files import DISC, encode, picture, write_zip

from mmkcla.cli import main
from mmkcla.datasets.segmentation.converters import sources
from mmkcla.datasets.segmentation.converters.isic import convert_isic2017
from mmkcla.datasets.segmentation.converters.kvasir import convert_kvasir_seg
from mmkcla.datasets.segmentation.converters.layout import Problem
from mmkcla.datasets.segmentation.converters.sources import Reader, list_files
from mmkcla.errors import UserError
from mmkcla.utils.parallel import MemoryBudget
from mmkcla.utils.text import printable

MASK = encode(DISC * 255)


def pairs(count=4):
    return {f'Kvasir-SEG/{kind}/{number}.{end}': (picture(number) if kind == 'images' else MASK)
            for number in range(count) for kind, end in (('images', 'jpg'), ('masks', 'png'))}


def packed(path, members, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, 'w', compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize('compression', [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_member_that_unpacks_to_far_more(tmp_path, compression):
    bomb = pairs() | {'Kvasir-SEG/images/0.jpg': bytes(20 * 2**20)}
    path = packed(tmp_path / 'kvasir-seg.zip', bomb, compression)
    with pytest.raises(UserError, match=r"kvasir-seg.zip: 'Kvasir-SEG/images/0.jpg' would unpack from \d+ to 20971520"):
        convert_kvasir_seg(path, tmp_path / 'out')
    assert not (tmp_path / 'out').exists()


@pytest.mark.parametrize('convert', [convert_kvasir_seg, convert_isic2017])
def test_limits_of_all_members_together(tmp_path, monkeypatch, convert):
    name = 'kvasir-seg' if convert is convert_kvasir_seg else 'ISIC-2017_Training_Data'
    path = packed(tmp_path / f'{name}.zip', {f'images/{number}.jpg': bytes(2**20) for number in range(20)})
    monkeypatch.setattr(sources, 'RATIO_FROM', 2**18)
    monkeypatch.setattr(sources, 'MAX_RATIO', 10**6)
    monkeypatch.setattr(sources, 'MAX_TOTAL', 19 * 2**20)
    with pytest.raises(UserError, match='would unpack to 20971520 bytes, more than 19922944; nothing was read'):
        convert(tmp_path, tmp_path / 'out')
    monkeypatch.undo()
    monkeypatch.setattr(sources, 'RATIO_FROM', 2**18)
    monkeypatch.setattr(sources, 'MAX_RATIO', 1030)  # each file has 2**20 bytes of ratio 1,020
    monkeypatch.setattr(sources, 'MAX_RATIO', 900)
    with pytest.raises(UserError, match=r'would unpack from \d+ to \d+ bytes'):
        list_files(path, (), ())


def test_many_small_bombs(tmp_path, monkeypatch):
    """None is large by itself."""
    monkeypatch.setattr(sources, 'RATIO_FROM', 2**16)
    path = packed(tmp_path / 'kvasir-seg.zip', {f'images/{number}.jpg': bytes(2**16) for number in range(80)})
    with pytest.raises(UserError, match=r'would unpack from \d+ to 5242880 bytes: not a file of the publisher'):
        list_files(path, (), ())


def test_overlapping_members(tmp_path):
    """All entries of the list point to the same packed bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, 'w') as archive:
        archive.writestr('images/0.jpg', picture(0, size=(64, 64)))
    data = buffer.getvalue()
    end = data.rindex(b'PK\5\6')
    start = struct.unpack('<I', data[end + 16:end + 20])[0]
    entry = data[start:end]
    many = b''.join(entry.replace(b'0.jpg', f'{number}.jpg'.encode()) for number in range(9))
    tail = struct.pack('<4sHHHHIIH', b'PK\5\6', 0, 0, 9, 9, len(many), start, 0)
    (tmp_path / 'kvasir-seg.zip').write_bytes(data[:start] + many + tail)
    with pytest.raises(UserError, match='has members that overlap'):
        list_files(tmp_path / 'kvasir-seg.zip', (), ())


def test_list_of_members_that_fills_the_memory(tmp_path, monkeypatch):
    path = packed(tmp_path / 'kvasir-seg.zip', {f'images/{number}.jpg': b'' for number in range(200)})
    monkeypatch.setattr(sources, 'MAX_DIRECTORY', 1000)
    with pytest.raises(UserError, match=r'lists members in \d+ bytes, more than 1000'):
        list_files(path, (), ())


def test_zip64_that_claims_a_huge_list(tmp_path):
    """A list of members larger than the file is damage, not memory."""
    path = packed(tmp_path / 'kvasir-seg.zip', pairs())
    data = path.read_bytes()
    end = data.rindex(b'PK\5\6')
    size, start = struct.unpack('<II', data[end + 12:end + 20])
    zip64 = struct.pack('<4sQHHIIQQQQ', b'PK\6\6', 44, 45, 45, 0, 0, 2**40, 2**40, 2**50, start)
    locator = struct.pack('<4sIQI', b'PK\6\7', 0, end, 1)
    tail = struct.pack('<4sHHHHIIH', b'PK\5\6', 0, 0, 2**16 - 1, 2**16 - 1, 2**32 - 1, 2**32 - 1, 0)
    path.write_bytes(data[:end] + zip64 + locator + tail)
    with pytest.raises(UserError, match='kvasir-seg.zip is damaged or cut off'):
        list_files(path, (), ())


def test_member_of_zip64_with_a_false_size(tmp_path):
    """The header claims 2**40 bytes, the content has few."""
    with zipfile.ZipFile(tmp_path / 'kvasir-seg.zip', 'w') as archive:
        for name, content in pairs().items():
            archive.writestr(name, content)
        archive.filelist[0].file_size = 2**40
    with pytest.raises(UserError, match='would unpack to|would unpack from'):
        list_files(tmp_path / 'kvasir-seg.zip', (), ())


@pytest.mark.parametrize('name', ['images/a\x1b[2Jb.jpg', 'images/a\nb.jpg', 'images/a\u202eb.jpg'])
def test_control_characters_in_names(tmp_path, capfd, name):
    path = write_zip(tmp_path / 'kvasir-seg.zip', pairs() | {f'Kvasir-SEG/{name}': picture(9)})
    assert main(['data', 'kvasir', str(path), '--out', str(tmp_path / 'out')]) == 2
    error = capfd.readouterr().err
    assert 'with control characters in its name: not a file of the publisher' in error
    assert name not in error and error.count('\n') == 1 and '\x1b' not in error and '\u202e' not in error


@pytest.mark.parametrize('name', ['a\x1b[2Jb', 'a\u202eb', 'a\udcffb'])
def test_control_characters_in_names_of_own_files(tmp_path, capfd, name):
    """Messages and problems escape them."""
    for kind, content in (('images', picture(1)), ('masks', MASK)):
        (tmp_path / kind).mkdir()
        for stem in ('good', 'more', 'third'):
            (tmp_path / kind / f'{stem}.png').write_bytes(content if kind == 'masks' else encode(np.ones((10, 12, 3))))
    (tmp_path / 'images' / f'{name}.png').write_bytes(b'damaged')
    (tmp_path / 'masks' / f'{name}.png').write_bytes(MASK)
    code = main(['data', 'binary-seg', str(tmp_path), '--out', str(tmp_path / 'out'), '--split', 'train'])
    assert code == (2 if '\udcff' in name else 0)  # a manifest in UTF-8 cannot hold that name
    text = ''.join(capfd.readouterr())
    assert printable(name) in text and name not in text and printable(name) != name


def test_names_in_messages():
    assert printable('a b ä/\u4e2d') == 'a b ä/\u4e2d' and printable('\x1b\n\u202e\udc80') == '\\x1b\\n\\u202e\\udc80'
    assert str(Problem('corrupt image', 'a\x1b.png')) == 'corrupt image: a\\x1b.png'


@pytest.mark.parametrize('name', ['/etc/images/a.jpg', '../images/a.jpg', 'images/../../a.jpg', 'C:\\images\\a.jpg',
                                  '\\\\host\\images\\a.jpg', '..\\images\\a.jpg'])
def test_names_that_point_outside(tmp_path, name):
    path = write_zip(tmp_path / 'kvasir-seg.zip', pairs() | {name: picture(9)})
    with pytest.raises(UserError, match='which points outside it'):
        convert_kvasir_seg(path, tmp_path / 'out')


def test_nested_zip_files_are_not_opened(tmp_path):
    inner = packed(tmp_path / 'inner.zip', {'images/bomb.jpg': bytes(2**24)}).read_bytes()
    path = write_zip(tmp_path / 'kvasir-seg.zip', pairs() | {'Kvasir-SEG/images/inner.zip': inner,
                                                             'Kvasir-SEG/images/zipped.jpg': inner,
                                                             'Kvasir-SEG/masks/zipped.png': MASK})
    outcome = convert_kvasir_seg(path, tmp_path / 'out', split='1:1')
    assert [str(problem).partition(' (')[0] for problem in outcome.problems] == ['corrupt image: images/zipped.jpg']


def test_duplicate_members_are_left_out_by_name(tmp_path):
    with zipfile.ZipFile(tmp_path / 'kvasir-seg.zip', 'w') as archive, pytest.warns(UserWarning, match='Duplicate'):
        for name, content in pairs(5).items():
            archive.writestr(name, content)
        archive.writestr('Kvasir-SEG/images/0.jpg', picture(7))
    outcome = convert_kvasir_seg(tmp_path / 'kvasir-seg.zip', tmp_path / 'out', split='1:1')
    assert {problem.kind for problem in outcome.problems} == {'name twice', 'mask without image'}


def test_memory_of_an_image_is_estimated_from_its_header(tmp_path):
    path = write_zip(tmp_path / 'kvasir-seg.zip', pairs(1))
    with Reader() as reader:
        sizes = [reader.memory(file) - file.size for file in list_files(path, (), ())]
    assert sizes == [8 * 12 * 10, 8 * 12 * 10]


def test_threads_share_a_budget():
    budget, lock, now, most = MemoryBudget(100), threading.Lock(), [0], [0]

    def work(size):
        with budget.reserve(size):
            with lock:
                now[0] += size
                most[0] = max(most[0], now[0])
            time.sleep(0.002)
            with lock:
                now[0] -= size

    threads = [threading.Thread(target=work, args=(size, )) for size in (40, 60, 30, 90, 10, 100) * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads) and 60 <= most[0] <= 100


def test_what_needs_more_than_the_budget_runs_alone():
    budget = MemoryBudget(10)
    with budget.reserve(10**9):
        pass
    with budget.reserve(10):
        assert True
