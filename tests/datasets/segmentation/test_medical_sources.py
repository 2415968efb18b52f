"""What is read of a download: changed files are noticed, second copies and renamed zip files are named."""
import hashlib
import os
import shutil

import pytest
from medical_files import DISC, IMAGES, MASKS, encode, hashes, isic, manifest, picture, write_zip

from mmkcla.datasets.segmentation.converters import writing
from mmkcla.datasets.segmentation.converters.isic import convert_isic2017
from mmkcla.datasets.segmentation.converters.kvasir import convert_kvasir_seg
from mmkcla.errors import UserError

NAMES = 'abcdefghij'


def kvasir(folder: str = 'Kvasir-SEG', start: int = 0) -> dict[str, bytes]:
    """The members of a small ``kvasir-seg.zip``."""
    return {f'{folder}/{kind}/{name}.jpg': content for number, name in enumerate(NAMES, start) for kind, content in (
        ('images', picture(number)), ('masks', encode(DISC * 255, 'JPEG', quality=100)))}


def one_bit(content: bytes) -> bytes:
    """Other pixels of equal size: the last byte of a JPEG's data changed."""
    return content[:-3] + bytes([content[-3] ^ 1]) + content[-2:]


# --- a source that changed


def test_a_zip_file_that_changed_at_equal_size(tmp_path):
    members = kvasir()
    path = write_zip(tmp_path / 'raw' / 'kvasir-seg.zip', members)
    convert_kvasir_seg(path, tmp_path / 'out')
    before = path.stat()
    assert convert_kvasir_seg(path, tmp_path / 'out').text.endswith('out: already there')
    write_zip(path, {**members, 'Kvasir-SEG/images/d.jpg': one_bit(members['Kvasir-SEG/images/d.jpg'])})
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    with pytest.raises(UserError, match=r'out was written with other files in the source; choose another folder'):
        convert_kvasir_seg(path, tmp_path / 'out')
    convert_kvasir_seg(path, tmp_path / 'out', overwrite=True)
    assert convert_kvasir_seg(path, tmp_path / 'out').text.endswith('out: already there')


@pytest.mark.parametrize('changed', [f'{IMAGES}/b.jpg', f'{MASKS}/b_segmentation.png', f'{MASKS}/bad_segmentation.png'])
def test_a_folder_that_changed_at_equal_size_and_time(tmp_path, changed):
    masks = dict.fromkeys(['a', 'b', 'bad'], encode(DISC * 255))
    raw = isic(tmp_path / 'raw', {'a': picture(), 'b': picture(1), 'bad': b'no image'}, masks)
    convert_isic2017(raw, tmp_path / 'out')
    before, content = (raw / changed).stat(), (raw / changed).read_bytes()
    digest = manifest(tmp_path / 'out')['parameters']['source']
    (raw / changed).write_bytes(one_bit(content))
    os.utime(raw / changed, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(UserError, match='out was written with other files in the source'):
        convert_isic2017(raw, tmp_path / 'out')
    (raw / changed).write_bytes(content)  # another time, the same content: that is no change
    assert convert_isic2017(raw, tmp_path / 'out').text.endswith('out: already there')
    convert_isic2017(raw, tmp_path / 'other')
    assert manifest(tmp_path / 'other')['parameters']['source'] == digest


def test_a_killed_run_is_not_taken_up_with_files_that_changed(tmp_path, monkeypatch):
    raw = isic(tmp_path / 'raw', {'a': picture(), 'b': picture(1)}, dict.fromkeys('ab', encode(DISC * 255)))
    for change, reused in ((lambda: None, 2), (lambda: (raw / IMAGES / 'b.jpg').write_bytes(picture(2)), 0)):
        out = tmp_path / f'out{reused}'
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(writing, 'write_manifest', lambda *a: (_ for _ in ()).throw(KeyboardInterrupt))
            convert_isic2017(raw, out)
        change()
        assert convert_isic2017(raw, out).reused == reused
        assert hashes(out / 'images')['train/b.jpg'] == hashlib.sha256(picture(1 if reused else 2)).hexdigest()


# --- second copies


def test_two_copies_in_one_zip_file(tmp_path):
    write_zip(tmp_path / 'kvasir-seg.zip', {**kvasir(), **kvasir('copy')})
    with pytest.raises(UserError) as caught:
        convert_kvasir_seg(tmp_path, tmp_path / 'out')
    assert str(caught.value) == (f'{tmp_path}: every name is there more than once, in kvasir-seg/Kvasir-SEG/images and '
                                 'in kvasir-seg/copy/images; leave one copy')


def test_a_copy_with_a_file_less_and_a_few_names_twice(tmp_path):
    members = {**kvasir(), **kvasir('copy')}
    del members['copy/images/j.jpg'], members['copy/masks/j.jpg']
    raw = write_zip(tmp_path / 'kvasir-seg.zip', members)
    with pytest.raises(UserError, match=r'9 of 10 names are there more than once, in kvasir-seg/Kvasir-SEG/images and '
                                        r'in kvasir-seg/copy/images; leave one copy$'):
        convert_kvasir_seg(raw, tmp_path / 'out')
    few = {**kvasir(), 'more/images/a.jpg': picture(77), 'more/masks/a.jpg': encode(DISC * 255, 'JPEG')}
    outcome = convert_kvasir_seg(write_zip(raw, few), tmp_path / 'out')
    assert [str(problem) for problem in outcome.problems] == [
        'name twice: images/a.jpg (2 files of this name)'] * 2 + ['name twice: masks/a.jpg (2 files of this name)'] * 2
    assert outcome.text.endswith(': 7 train, 1 val, 1 test images with masks (8:1:1 drawn by seed 0)')


# --- names of zip files


def test_zip_files_that_a_browser_renamed(tmp_path):
    whole = write_zip(tmp_path / 'raw' / 'kvasir-seg.zip', kvasir())
    convert_kvasir_seg(whole, tmp_path / 'whole')
    for number, name in enumerate(('kvasir-seg (1).zip', 'Kvasir-SEG(12).ZIP')):
        folder = tmp_path / f'renamed{number}'
        folder.mkdir()
        shutil.copy(whole, folder / name)
        convert_kvasir_seg(folder, tmp_path / f'out{number}')
        assert convert_kvasir_seg(folder / name, tmp_path / f'out{number}').text.endswith('already there')
        assert hashes(tmp_path / f'out{number}') == hashes(tmp_path / 'whole')


def test_zip_files_of_isic_that_a_browser_renamed(tmp_path):
    image, mask = {f'{IMAGES}/a.jpg': picture()}, {f'{MASKS}/a_segmentation.png': encode(DISC * 255)}
    write_zip(tmp_path / 'raw' / f'{IMAGES} (1).zip', image)
    write_zip(tmp_path / 'raw' / f'{MASKS} (3).zip', mask)
    assert convert_isic2017(tmp_path / 'raw', tmp_path / 'out').text.endswith(': 1 train images with masks (official)')
    write_zip(tmp_path / 'raw' / f'{IMAGES}.zip', image)
    with pytest.raises(UserError, match=rf'two zip files of one name: \S+{IMAGES} \(1\).zip and \S+{IMAGES}.zip; le'):
        convert_isic2017(tmp_path / 'raw', tmp_path / 'out')


def test_zip_files_that_were_not_read_are_named(tmp_path):
    write_zip(tmp_path / 'raw' / 'kvasir-seg - Copy.zip', kvasir())
    write_zip(tmp_path / 'raw' / 'other.zip', {'a': b''})
    with pytest.raises(UserError) as caught:
        convert_kvasir_seg(tmp_path / 'raw', tmp_path / 'out')
    assert str(caught.value) == (
        f'no folder images and no folder masks in {tmp_path / "raw"}; Kvasir-SEG needs both of folder images and '
        'folder masks (zip files not read, for their names: kvasir-seg - Copy.zip, other.zip; those read are called '
        'kvasir-seg.zip)')
