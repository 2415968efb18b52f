"""mmkcla.LoadImageFromFile: mmcv's results, and errors that name the file and the reason."""
import io

import cv2
import numpy as np
import pytest
from mmcv.transforms import LoadImageFromFile as McvLoadImageFromFile
from mmengine.registry import TRANSFORMS
from PIL import Image

from mmkcla.datasets.transforms import LoadImageFromFile
from mmkcla.errors import UserError


@pytest.fixture
def pixels() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)


def _jpeg(pixels: np.ndarray, **options) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, 'JPEG', **options)
    return file.getvalue()


def test_registered_under_our_scope() -> None:
    built = TRANSFORMS.build(dict(type='mmkcla.LoadImageFromFile', color_type='unchanged'))
    assert type(built) is LoadImageFromFile and built.color_type == 'unchanged'


@pytest.mark.parametrize('options', [{}, {'to_float32': True}, {'color_type': 'grayscale'},
                                     {'imdecode_backend': 'pillow'}, {'color_type': 'unchanged'}])
@pytest.mark.parametrize('suffix', ['.jpg', '.png', '.bmp', '.tif', '.webp'])
def test_equal_to_mmcv(tmp_path, pixels, suffix, options) -> None:
    path = str(tmp_path / f'a{suffix}')
    cv2.imwrite(path, pixels)
    ours, theirs = (kind(**options)({'img_path': path}) for kind in (LoadImageFromFile, McvLoadImageFromFile))
    assert ours.keys() == theirs.keys()
    assert ours['img'].dtype == theirs['img'].dtype and np.array_equal(ours['img'], theirs['img'])
    assert (ours['img_shape'], ours['ori_shape']) == (theirs['img_shape'], theirs['ori_shape'])


def test_turned_by_exif_as_mmcv_does(tmp_path, pixels) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn
    (tmp_path / 'a.jpg').write_bytes(_jpeg(pixels, exif=exif))
    ours, theirs = (kind()({'img_path': str(tmp_path / 'a.jpg')}) for kind in (LoadImageFromFile, McvLoadImageFromFile))
    assert ours['img'].shape == (30, 20, 3) and np.array_equal(ours['img'], theirs['img'])


def _png(pixels: np.ndarray) -> bytes:
    return cv2.imencode('.png', pixels)[1].tobytes()


def _with_thumbnail(pixels: np.ndarray) -> bytes:
    """A JPEG whose head holds another, whole JPEG (as cameras write), cut off in its own image data."""
    whole, inner = _jpeg(pixels), _jpeg(pixels[:8, :8])
    segment = b'\xff\xe1' + (len(inner) + 2).to_bytes(2, 'big') + inner
    return (whole[:2] + segment + whole[2:])[:-40]


@pytest.mark.parametrize(('content', 'reason'), [
    (lambda p: b'', 'the file is empty'),
    (lambda p: _jpeg(p)[:-100], 'the JPEG is truncated (no end marker'),
    (lambda p: _jpeg(p)[:-2], 'the JPEG is truncated (no end marker'),
    (lambda p: _jpeg(p)[:30], 'the JPEG is truncated (no end marker'),
    (_with_thumbnail, 'the JPEG is truncated (no end marker'),
    (lambda p: _png(p)[:-12], 'the PNG is truncated (no end chunk'),
    (lambda p: cv2.imencode('.webp', p)[1].tobytes()[:-20], 'the WebP is truncated'),
    (lambda p: b'not an image at all', 'cv2 cannot decode it'),
    (lambda p: b'version https://git-lfs.github.com/spec/v1\noid sha256:0', 'git-lfs pointer'),
    (lambda p: b'<!DOCTYPE html><html>404</html>', 'it is a web page'),
])
def test_damaged_images_are_named(tmp_path, pixels, content, reason) -> None:
    path = tmp_path / 'bad.jpg'
    path.write_bytes(content(pixels))
    with pytest.raises(UserError) as caught:
        LoadImageFromFile()({'img_path': str(path)})
    assert str(caught.value).startswith(f'cannot read the image {path}: ') and reason in str(caught.value)
    assert LoadImageFromFile(ignore_empty=True)({'img_path': str(path)}) is None


def test_missing_image(tmp_path) -> None:
    with pytest.raises(UserError, match=r'cannot read the image .*gone\.png: no such file or directory'):
        LoadImageFromFile()({'img_path': str(tmp_path / 'gone.png')})
