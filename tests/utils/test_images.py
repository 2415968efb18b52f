"""EXIF orientation and truncated image files."""
import io

import numpy as np
import pytest
from PIL import Image, ImageOps

from mmkcla.utils.images import (
    FORMATS,
    IMAGE_SUFFIXES,
    ORIENTATION,
    UPRIGHT,
    image_problem,
    stored_turn,
    turn,
    turn_array,
    upright,
    upright_size,
)

PIXELS = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
PHOTO = Image.fromarray(PIXELS)


def encoded(image_format: str, picture: Image.Image = PHOTO, **options: object) -> bytes:
    file = io.BytesIO()
    picture.save(file, image_format, **options)
    return file.getvalue()


def oriented(value: int, image_format: str) -> Image.Image:
    exif = Image.Exif()
    exif[ORIENTATION] = value
    return Image.open(io.BytesIO(encoded(image_format, exif=exif)))


@pytest.mark.parametrize('shape', [(5, 7), (5, 7, 3), (1, 4, 4)])
@pytest.mark.parametrize('method', list(Image.Transpose), ids=lambda method: method.name)
def test_turn_array_is_pillows_transpose(method, shape) -> None:
    pixels = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    turned = turn_array(pixels, method)
    assert np.array_equal(turned, np.asarray(Image.fromarray(pixels).transpose(method)))
    assert turned.flags.c_contiguous and turned.dtype == np.uint8


def test_seven_values_of_the_tag_turn_and_all_differently() -> None:
    assert sorted(UPRIGHT) == list(range(2, 9)) and set(UPRIGHT.values()) == set(Image.Transpose)


@pytest.mark.parametrize('image_format', ['JPEG', 'PNG', 'WEBP'])
@pytest.mark.parametrize('value', range(1, 10))
def test_upright_as_pillow_reads_the_tag(value, image_format) -> None:
    picture = oriented(value, image_format)
    expected = ImageOps.exif_transpose(picture)
    assert upright_size(picture) == expected.size == ((20, 30) if 5 <= value <= 8 else (30, 20))
    turned = upright(picture)
    assert turned.format == image_format and np.array_equal(np.asarray(turned), np.asarray(expected))
    assert turn(picture) is stored_turn(picture) is UPRIGHT.get(value)
    if value in (1, 9):
        assert turned is picture


@pytest.mark.parametrize('value', range(1, 9))
def test_tiff_is_turned_by_pillow_itself(value) -> None:
    picture = oriented(value, 'TIFF')
    assert turn(picture) is None and upright(picture) is picture
    assert stored_turn(oriented(value, 'TIFF')) is UPRIGHT.get(value)
    expected = turn_array(PIXELS, UPRIGHT[value]) if value > 1 else PIXELS
    assert np.array_equal(np.asarray(picture), expected)


def test_pictures_without_a_tag_or_with_damaged_exif_stay(monkeypatch) -> None:
    picture = Image.open(io.BytesIO(encoded('PNG')))
    assert stored_turn(picture) is None and upright(picture) is picture

    def damaged(self):
        raise SyntaxError('not a TIFF file')

    monkeypatch.setattr(Image.Image, 'getexif', damaged)
    assert stored_turn(picture) is None and upright_size(picture) == (30, 20)


def test_suffixes_and_formats_are_pillows() -> None:
    registered = Image.registered_extensions()
    assert {registered[suffix] for suffix in IMAGE_SUFFIXES} == set(FORMATS)


# What bytes say by themselves


@pytest.mark.parametrize('content', [
    encoded('JPEG'), encoded('JPEG', progressive=True), encoded('JPEG') + b'\0' * 50, encoded('PNG'),
    encoded('PNG') + b'more', encoded('WEBP'), encoded('WEBP', lossless=True), encoded('WEBP') + b'more',
    encoded('BMP'), encoded('TIFF'), b'not an image at all', b'<svg xmlns="http://www.w3.org/2000/svg"/>',
    b'<svg><html></html></svg>',
], ids=['jpeg', 'progressive', 'jpeg padded', 'png', 'png padded', 'webp', 'lossless', 'webp padded', 'bmp', 'tiff',
        'text', 'svg', 'svg with html'])
def test_no_problem(content) -> None:
    assert image_problem(content) is None
    assert image_problem(memoryview(content)) is None


@pytest.mark.parametrize('options', [{}, {'progressive': True}], ids=['baseline', 'progressive'])
def test_every_cut_of_a_jpeg_is_found(options) -> None:
    data = encoded('JPEG', **options)
    for length in range(3, len(data)):  # from the first bytes on that say JPEG
        assert image_problem(data[:length]) == f'the JPEG is truncated (no end marker in its {length} bytes)'


def test_the_end_of_a_thumbnail_is_not_the_end_of_the_jpeg() -> None:
    whole, inner = encoded('JPEG'), encoded('JPEG', PHOTO.resize((8, 8)))
    data = whole[:2] + b'\xff\xe1' + (len(inner) + 2).to_bytes(2, 'big') + inner + whole[2:]
    assert image_problem(data) is None
    for length in range(len(inner) + 6, len(data)):
        assert image_problem(data[:length]) == f'the JPEG is truncated (no end marker in its {length} bytes)'


def test_every_cut_of_a_png_is_found() -> None:
    data = encoded('PNG')
    for length in range(8, len(data)):
        assert image_problem(data[:length]) == f'the PNG is truncated (no end chunk in its {length} bytes)'


@pytest.mark.parametrize('lossless', [False, True])
def test_every_cut_of_a_webp_is_found(lossless) -> None:
    data = encoded('WEBP', lossless=lossless)
    for length in range(12, len(data)):
        assert image_problem(data[:length]) == f'the WebP is truncated ({length} of {len(data)} bytes)'


@pytest.mark.parametrize(('content', 'problem'), [
    (b'', 'the file is empty'),
    (b'version https://git-lfs.github.com/spec/v1\noid sha256:0',
     'it is a git-lfs pointer, not the image (run: git lfs pull)'),
    (b'<!DOCTYPE html><html>404</html>', 'it is a web page, not an image'),
    (b'\n <HTML>', 'it is a web page, not an image'),
])
def test_what_is_no_image(content, problem) -> None:
    assert image_problem(content) == problem
