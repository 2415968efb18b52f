"""Damaged images in the checks, and the memory of the sound ones."""
import io
import json

import numpy as np
import pytest
from PIL import Image

from mmkcla.datasets import image_files, sound_images
from mmkcla.datasets.image_files import read_images
from mmkcla.datasets.sound_images import remember, sound_digests


@pytest.fixture
def memory(tmp_path, monkeypatch):
    monkeypatch.setattr(sound_images, '_file', lambda: tmp_path / 'cache' / 'sound')
    return tmp_path / 'cache' / 'sound'


def write_photos(folder, count):
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(count):
        Image.fromarray(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(folder / f'{number:03}.jpg')
    return sorted(folder.iterdir())


def halve(path):
    """Half of the file, with an end marker: libjpeg makes a picture of it, half grey."""
    data = path.read_bytes()
    path.write_bytes(data[:len(data) * 3 // 4] + b'\xff\xd9')


def test_sound_files_are_decoded_once(tmp_path, memory, monkeypatch) -> None:
    paths = write_photos(tmp_path / 'photos', 210)
    halve(paths[5])
    decoded = []
    problem = image_files.image_problem
    monkeypatch.setattr(image_files, 'image_problem',
                        lambda data, decode: decoded.append(decode) or problem(data, decode))
    first = read_images(paths)
    assert [image.path for image in first if image.problem] == [paths[5]] and sum(decoded) == 210
    assert memory.stat().st_size == 209 * 32 and len(sound_digests()) == 209
    decoded.clear()
    halve(paths[7])
    again = read_images(paths)
    assert [image.path for image in again if image.problem] == [paths[5], paths[7]] and sum(decoded) == 2
    decoded.clear()
    assert [image.path for image in read_images(paths, decode=True) if image.problem] == [paths[5], paths[7]]
    assert sum(decoded) == 210


def test_a_memory_that_was_cut_or_cannot_be_written(memory) -> None:
    digests = [f'{number:064x}' for number in range(300)]
    remember(digests[:10])
    assert not memory.exists() and sound_digests() == set()
    memory.parent.mkdir()
    memory.write_bytes(bytes(32) + b'half')
    remember(digests)
    assert memory.stat().st_size == 301 * 32 and sound_digests() == set(digests)
    memory.unlink()
    memory.mkdir()
    remember(digests)
    assert sound_digests() == set()


def test_coco_check_and_verify_find_damaged_pixels(tmp_path, memory) -> None:
    from mmkcla.datasets.detection.coco.report import image_faults
    from mmkcla.datasets.detection.coco.table import read_table
    paths = write_photos(tmp_path / 'photos', 3)
    file = tmp_path / 'ann.json'
    file.write_text(json.dumps(dict(categories=[dict(id=1, name='a')], annotations=[], images=[
        dict(id=number, file_name=path.name, width=32, height=32) for number, path in enumerate(paths)])))
    table, loader = read_table(file), [dict(type='LoadImageFromFile')]
    assert image_faults(table, paths[0].parent, loader) == []
    halve(paths[1])
    for most in (None, 3):
        fault, = image_faults(table, paths[0].parent, loader, most)
        assert str(fault).startswith('images with damaged data: 1')
        assert '001.jpg: the JPEG data are damaged' in str(fault)
        assert fault.severity == 'refused'
    assert image_faults(table, paths[0].parent, loader, 2) == []  # headers only, of a part of the data set


def test_picture_that_decoders_accept_is_half_grey(tmp_path) -> None:
    """Why it matters: both decoders return a picture."""
    import cv2
    path, = write_photos(tmp_path / 'photos', 1)

    def both(data):
        return (cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR),
                np.asarray(Image.open(io.BytesIO(data)).convert('RGB'))[..., ::-1])

    before = both(path.read_bytes())
    halve(path)
    for whole, pixels in zip(before, both(path.read_bytes()), strict=True):
        assert pixels.shape == whole.shape and np.abs(pixels[:8].astype(int) - whole[:8]).mean() < 8
        assert np.ptp(pixels[-8:].astype(int)) < np.ptp(whole[-8:].astype(int)) / 2
