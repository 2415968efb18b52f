"""Damage inside of image data: what is found, and what real files have that is none."""
import base64
import io
import random
import re

import cv2
import numpy as np
import pytest
import simplejpeg
from PIL import Image

from mmkcla.errors import UserError
from mmkcla.utils import image_damage
from mmkcla.utils.image_damage import damage, segments
from mmkcla.utils.images import image_problem

_y, _x = np.mgrid[:96, :128]
PIXELS = (np.stack([np.sin(_x / 9 + c) * 60 + np.cos(_y / (4 + c)) * 50 + 120 for c in range(3)], -1)
          + np.random.default_rng(0).normal(0, 6, (96, 128, 3))).clip(0, 255).astype(np.uint8)
PHOTO = Image.fromarray(PIXELS)
JPEG_12_BITS = base64.b64decode(  # 8×8, grey, by imagecodecs
    '/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAIBAQEBAQIBAQECAgICAgQDAgICAgUEBAMEBgUGBgYFBgYGBwkIBgcJBwYGCAsICQoKCgoKBggLDAsK'
    'DAkKCgr/wQALDAAIAAgBAREA/8QAFAABAAAAAAAAAAAAAAAAAAAADf/EAB0QAAIDAQEAAwAAAAAAAAAAAAQGAwUHAggAChL/2gAIAQEAAD8AQJFr7P'
    'O94t7qyP0kx+Qt0WlfJtMOWEvctCQ1hYYR6sXqmnlT4aD90TeHyWYPVEQSR2NiPwYzXM1h2QKMbH8//9k=')


def encoded(image_format: str, picture: Image.Image = PHOTO, **options: object) -> bytes:
    file = io.BytesIO()
    picture.save(file, image_format, **options)
    return file.getvalue()


JPEG, PROGRESSIVE, RESTARTS = (encoded('JPEG', quality=90, **options) for options in (
    {}, {'progressive': True}, {'restart_marker_rows': 1}))
PNG = encoded('PNG', Image.fromarray(np.random.default_rng(1).integers(0, 256, (200, 200, 3), dtype=np.uint8)))
EOI = b'\xff\xd9'


def scans(data: bytes) -> list[int]:
    return [start for marker, start, _ in segments(data) if marker == 0xDA]


def changed(data: bytes, at: int, part: bytes) -> bytes:
    return data[:at] + part + data[at + len(part):]


def chunks(data: bytes) -> list[tuple[bytes, int, int]]:
    at, found = 8, []
    while at < len(data):
        end = at + 12 + int.from_bytes(data[at:at + 4], 'big')
        found.append((data[at + 4:at + 8], at, end))
        at = end
    return found


PIXEL_CHUNKS = [(start, end) for name, start, end in chunks(PNG) if name == b'IDAT']
MIDDLE = (scans(JPEG)[0] + len(JPEG)) // 2
REVISION = JPEG.find(b'JFIF') + 5
DEFLATED = encoded('TIFF', compression='tiff_deflate')


@pytest.mark.parametrize(('content', 'words'), [
    (JPEG[:MIDDLE] + EOI, 'premature end of data segment'),
    (JPEG[:MIDDLE] + EOI + JPEG[MIDDLE:], 'premature end of data segment'),
    (JPEG[:MIDDLE] + JPEG, 'two SOI markers'),
    (changed(JPEG[:MIDDLE] + EOI, REVISION, b'\7'), 'premature end of data segment'),  # behind a harmless warning
    (changed(JPEG, MIDDLE, bytes(400)), 'premature end of data segment'),
    (JPEG[:-2] + bytes(range(100)) + EOI, 'extraneous bytes'),
    (RESTARTS[:len(RESTARTS) // 2] + EOI, 'premature end of data segment'),
    (RESTARTS.replace(b'\xff\xd2', b'\xff\xd5', 1), 'RST|extraneous|premature'),
    (changed(PROGRESSIVE, len(PROGRESSIVE) // 2, bytes(300)), 'Huffman|extraneous|premature'),
    *((PROGRESSIVE[:start] + EOI, 'scans are missing for [123] of its 3 components')
       for start in scans(PROGRESSIVE)[1:]),
    (encoded('JPEG', PHOTO.convert('L'))[:1500] + EOI, 'premature end'),
    (encoded('JPEG', PHOTO.convert('CMYK'))[:3000] + EOI, 'premature end'),
    (changed(PNG, PIXEL_CHUNKS[0][1] - 1, b'\0'), "wrong checksum of its chunk 'IDAT'"),
    (changed(PNG, PIXEL_CHUNKS[0][0] + 50, b'\1\2\3'), "wrong checksum of its chunk 'IDAT'"),
    (changed(PNG, 29, b'\0'), "wrong checksum of its chunk 'IHDR'"),
    (PNG[:PIXEL_CHUNKS[1][0]] + PNG[PIXEL_CHUNKS[1][1]:], 'the PNG is damaged'),
    (PNG[:PIXEL_CHUNKS[-1][0]] + PNG[PIXEL_CHUNKS[-1][1]:], 'its pixels are incomplete'),
    (encoded('TIFF')[:9000], 'the TIFF is damaged'),
    (changed(DEFLATED, len(DEFLATED) // 2, bytes(100)), 'the TIFF is damaged'),
    (encoded('BMP')[:9000], 'the BMP is truncated'),
    (encoded('WEBP')[:-9], 'the WebP is truncated'),
    (encoded('PPM')[:9000], 'the PNM is truncated'),
    (b'', 'empty'),
    (b'\0\0\0\x18ftypheic\0\0\0\0', 'HEIC'),
])
def test_damage_is_found(content, words) -> None:
    problem = image_problem(content)
    assert problem is not None and re.search(words, problem), problem
    assert '\n' not in problem and len(problem) < 200


def with_segment(marker: int, content: bytes) -> bytes:
    return JPEG[:2] + bytes([0xFF, marker]) + (len(content) + 2).to_bytes(2, 'big') + content + JPEG[2:]


SOS = scans(JPEG)[0] + 5 + 2 * 3  # spectral selection of its header
EXIF = Image.Exif()
EXIF[274], EXIF[271] = 6, 'Camera'


@pytest.mark.parametrize('content', [
    JPEG, PROGRESSIVE, RESTARTS, encoded('JPEG', optimize=True), encoded('JPEG', quality=1), encoded('JPEG',
    quality=100),
    *(encoded('JPEG', subsampling=kind) for kind in (0, 1, 2)), encoded('JPEG', restart_marker_blocks=1),
    encoded('JPEG', PHOTO.convert('L')), encoded('JPEG', PHOTO.convert('L'), progressive=True),
    encoded('JPEG', PHOTO.convert('CMYK')), encoded('JPEG', PHOTO.convert('CMYK'), progressive=True),
    encoded('JPEG', keep_rgb=True), encoded('JPEG', PHOTO.resize((1, 1))), encoded('JPEG', PHOTO.resize((1, 1)),
    progressive=True),
    encoded('JPEG', PHOTO.resize((3001, 2))), encoded('JPEG', exif=EXIF), encoded('JPEG',
    icc_profile=b'profile' * 20_000),
    JPEG + b'\0' * 50, JPEG + b'trailer of a camera' * 99, JPEG + EOI, JPEG + JPEG,
    encoded('MPO', save_all=True, append_images=[PHOTO]),
    with_segment(0xE1, b'Exif\0\0' + JPEG), with_segment(0xFE, EOI * 3), JPEG_12_BITS,
    changed(JPEG, REVISION, b'\7'),  # a later revision of JFIF
    changed(JPEG, SOS, b'\0\0\0'),  # as some phones write it
    JPEG[:scans(JPEG)[0]] + b'\0\0' + JPEG[scans(JPEG)[0]:],
    JPEG[:scans(JPEG)[0]] + b'\xff\xff' + JPEG[scans(JPEG)[0]:],
    *(JPEG[:-2] + bytes(count) + EOI for count in (1, 7, 20, 512)), JPEG[:-2] + b'\xff' * 9 + EOI,
    JPEG[:-2] + b'abcdefg' + EOI,  # up to a whole number of words
    PNG, encoded('PNG', PHOTO.convert('P')), encoded('PNG', PHOTO.convert('1')), encoded('PNG', exif=EXIF),
    PNG + b'more',
    encoded('PNG', Image.fromarray(PIXELS[..., 0].astype(np.uint16) * 200)),
    encoded('PNG', save_all=True, append_images=[PHOTO.rotate(9)]),
    *(encoded('TIFF', compression=name) for name in ('raw', 'tiff_lzw', 'tiff_deflate', 'packbits', 'jpeg')),
    encoded('TIFF', save_all=True, append_images=[PHOTO]), encoded('TIFF', Image.fromarray(PIXELS[...,
    0].astype(np.float32))),
    encoded('BMP'), encoded('BMP', PHOTO.convert('1')), encoded('BMP', PHOTO.convert('P')), encoded('BMP') + b'more',
    encoded('WEBP'), encoded('WEBP', lossless=True), encoded('GIF'), encoded('PPM'), encoded('PPM', PHOTO.convert('L')),
    encoded('PPM', PHOTO.convert('1')), b'P3 2 1 255 1 2 3 4 5 6', encoded('PPM') + b'more',
])
def test_no_false_alarm(content) -> None:
    assert image_problem(content) is None


def test_png_and_tiff_of_opencv_pass() -> None:
    deep = PIXELS.astype(np.uint16) * 200
    for suffix, pixels in (('.png', deep), ('.tiff', deep), ('.tiff', PIXELS.astype(np.float32)), ('.bmp', PIXELS),
                           ('.jpg', PIXELS), ('.webp', PIXELS), ('.ppm', deep), ('.pgm', deep[..., 0])):
        assert image_problem(cv2.imencode(suffix, pixels)[1].tobytes()) is None, suffix


def test_share_of_single_flipped_bytes_that_is_found() -> None:
    """Decoders recover at the next code, so that most leave no trace but a few wrong blocks."""
    rng, found = random.Random(0), {}
    for name, data in (('sequential', JPEG), ('progressive', PROGRESSIVE), ('png', PNG)):
        start = scans(data)[0] + 20 if name != 'png' else 8
        copies = [changed(data, at := rng.randrange(start, len(data) - 14), bytes([data[at] ^ rng.randrange(1, 256)]))
                  for _ in range(100)]
        found[name] = sum(image_problem(copy) is not None for copy in copies)
    assert found['png'] == 100 and found['sequential'] >= 8 and found['progressive'] >= 30, found


def test_every_cut_of_a_jpeg_with_a_forged_end_is_found() -> None:
    """The last bytes may be padding."""
    for data in (JPEG, PROGRESSIVE, RESTARTS):
        missed = [length for length in range(scans(data)[0] + 20, len(data) - 12, 7) if not damage(data[:length] + EOI)]
        assert not missed, missed


def test_sound_content_is_decoded_once(monkeypatch) -> None:
    calls = []
    decode = simplejpeg.decode_jpeg
    monkeypatch.setattr(image_damage, '_sound', set())
    monkeypatch.setattr(simplejpeg, 'decode_jpeg', lambda *args, **options: calls.append(1) or decode(*args, **options))
    assert [damage(JPEG), damage(JPEG), damage(RESTARTS)] == [None] * 3 and len(calls) == 2
    bad = JPEG[:MIDDLE] + EOI
    assert damage(bad) and damage(bad) and len(calls) == 4


def test_strange_bytes_end_in_a_message_or_none() -> None:
    rng = random.Random(1)
    for data in (JPEG, PROGRESSIVE, PNG, DEFLATED, encoded('BMP'), encoded('PPM'), encoded('WEBP')):
        for _ in range(60):
            at = rng.randrange(min(700, len(data)))
            content = changed(data, at, rng.randbytes(rng.choice((1, 4, 30))))[:rng.choice((len(data), at + 40))]
            assert isinstance(image_problem(content), (str, type(None)))


def test_loader_refuses_a_damaged_image(tmp_path) -> None:
    from mmkcla.datasets.transforms import LoadImageFromFile
    path = tmp_path / 'photo.jpg'
    path.write_bytes(JPEG[:MIDDLE] + EOI)
    with pytest.raises(UserError, match=f'cannot read the image {path}: the JPEG data are damaged'):
        LoadImageFromFile().transform({'img_path': str(path)})
    path.write_bytes(JPEG)
    loaded = LoadImageFromFile().transform({'img_path': str(path)})['img']
    assert np.array_equal(loaded, cv2.imdecode(np.frombuffer(JPEG, np.uint8), cv2.IMREAD_COLOR))
