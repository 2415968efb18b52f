"""Damage in the data of image files that decoders pass over: half grey JPEGs, PNGs with wrong checksums, cut scans."""
from __future__ import annotations

import io
import re
import warnings
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import simplejpeg  # type: ignore[import-untyped]
from PIL import Image

from .text import one_line

CHECK = 1  # count up when more damage is found: what was found sound is looked at again
JPEG, PNG, TIFF = b'\xff\xd8\xff', b'\x89PNG\r\n\x1a\n', (b'II*\0', b'MM\0*')
_NO_LENGTH = {0x01, *range(0xD0, 0xD8)}  # JPEG markers without a segment
_SOS, _EOI, _FRAMES = 0xDA, 0xD9, {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
_PROGRESSIVE = {0xC2, 0xC6, 0xCA, 0xCE}
_AFTER_SCAN = re.compile(rb'\xff[\x01-\xcf\xd8-\xfe]')
# libjpeg's words; a file of which it says nothing else is as its encoder wrote it
_DAMAGE = re.compile('remature end|bad Huffman|bad arithmetic|instead of RST|Unsupported marker|two SOI|two SOF|'
                     'SOS before SOF|No .* table|table .* was not defined|Bogus', re.IGNORECASE)
_UNSUPPORTED = re.compile('precision|color|colour|process|subsampl|arithmetic coding|not supported', re.IGNORECASE)
_EXTRA = re.compile(r'(\d+) extraneous bytes before marker 0x([0-9a-f]{2})')
_ALIGNED = 16  # bytes with which encoders fill a scan up to a whole number of words
_TIFF_CODECS = {1, 2, 3, 4, 5, 7, 8, 32773, 32946}  # that both OpenCV and Pillow read
_DEFLATE = (8, 32946)
_PIECE = 2 ** 22
_MOST_SOUND = 2 ** 20  # images that are remembered: some 100 MB
_sound: set[tuple[int, int]] = set()


def damage(data: bytes) -> str | None:
    """Describe damage in the data of an image file, as far as it can be known; None if there is none.

    JPEG: the entropy-coded data are decoded, and any complaint of libjpeg that means lost pixels counts; each component
    must be complete. PNG: checksums of all chunks, and that the pixels are complete. TIFF: the strips are decoded.
    Changed values of pixels that no checksum protects (BMP, PNM, WebP, many single bytes of a JPEG) cannot be found.
    Sound content is remembered in this process, by length and CRC-32, and is not decoded again.

    Args:
        data: the content of the file; other formats are not looked at.
    """
    look = (_jpeg if data.startswith(JPEG) else _png if data.startswith(PNG) else _tiff if data[:4] in TIFF
            else _uncompressed if data.startswith((b'BM', b'P4', b'P5', b'P6')) else None)
    if look is None:
        return None
    key = (len(data), zlib.crc32(data))
    if key in _sound:
        return None
    found = look(data)
    if found is None and len(_sound) < _MOST_SOUND:
        _sound.add(key)
    return found


# JPEG

def segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Marker, first byte and end of each segment of a JPEG up to its end marker; scans include their data."""
    at = 2
    while at + 1 < len(data):
        if data[at] != 0xFF:  # decoders skip bytes between segments
            at = data.find(b'\xff', at)
            if at < 0:
                return
            continue
        marker, start = data[at + 1], at
        if marker in (0, 0xFF):  # padding
            at += 1
            continue
        if marker == _EOI:
            yield marker, start, at + 2
            return
        at += 2 if marker in _NO_LENGTH else 2 + int.from_bytes(data[at + 2:at + 4], 'big')
        if marker == _SOS:
            following = _AFTER_SCAN.search(data, at)
            at = following.start() if following else len(data)
        yield marker, start, at


def _jpeg(data: bytes) -> str | None:
    said = _decoded(data)
    if said is not None and not _DAMAGE.search(said) and not _extra_bytes(data, said) and not _UNSUPPORTED.search(said):
        # libjpeg reports its first warning only: look again without what is harmless
        said = _decoded(_bare(data))
    if said is None or _UNSUPPORTED.search(said) and not _DAMAGE.search(said):
        return _incomplete(data)
    if _DAMAGE.search(said) or _extra_bytes(data, said):
        return f'the JPEG data are damaged ({said})'
    if _EXTRA.search(said):
        return None
    said = _undecodable(data, 'JPEG')
    return f'the JPEG is damaged ({said})' if said else None


def _decoded(data: bytes) -> str | None:
    """Decode all coefficients, but only an eighth of the size; the first warning or the error of libjpeg."""
    try:
        simplejpeg.decode_jpeg(data, 'GRAY', True, True, 1, 1, 8, strict=True)
    except ValueError as error:
        return one_line(error, 100).removeprefix('Corrupt JPEG data: ')
    return None


def _extra_bytes(data: bytes, said: str) -> bool:
    """Whether bytes are left of a scan that are no padding, so that the decoder lost its place in it."""
    found = _EXTRA.search(said)
    if not found or int(found[1]) <= _ALIGNED:
        return False
    count, after = int(found[1]), int(found[2], 16)
    ends = [end for marker, _, end in segments(data) if marker == _SOS]
    if 0xD0 <= after <= 0xD7:  # restart markers are inside of scans
        return bool(ends)
    return any(len(set(data[end - count:end])) > 1 for end in ends if data[end + 1:end + 2] == bytes([after]))


def _bare(data: bytes) -> bytes:
    """The JPEG without the segments of applications, bytes between segments, and odd values in sequential scans."""
    parts, progressive = [data[:2]], False
    for marker, start, end in segments(data):
        if 0xE0 <= marker <= 0xEF or marker == 0xFE:
            continue
        progressive |= marker in _PROGRESSIVE
        part = data[start:end]
        if marker == _SOS and not progressive:
            last = 2 + int.from_bytes(part[2:4], 'big')  # after spectral selection and bit positions
            part = part[:last - 3] + b'\0\x3f\0' + part[last:]
        parts.append(part)
    return b''.join(parts)


def _incomplete(data: bytes) -> str | None:
    """A JPEG of several scans that ends before the last of them: coarse, or of another colour, without a complaint."""
    components: list[int] = []
    missing: dict[int, list[int]] = {}
    progressive = False
    for marker, start, end in segments(data):
        part = data[start:end]
        if marker in _FRAMES and not components:
            progressive = marker in _PROGRESSIVE
            components = list(part[10::3])
            missing = {one: [14] * 64 for one in components}  # lowest bit known, by coefficient
        elif marker == _SOS and len(part) >= 8 + 2 * part[4]:
            count = part[4]
            first, last, bits = part[5 + 2 * count:8 + 2 * count] if progressive else (0, 63, 0)
            for one in part[5:5 + 2 * count:2]:
                if one in missing and last < 64:
                    missing[one][first:last + 1] = [bits & 15] * (last + 1 - first)
    lost = [one for one in components if any(missing[one])]
    if not lost:
        return None
    return f'the JPEG data are damaged (scans are missing for {len(lost)} of its {len(components)} components)'


# Other formats

def _png(data: bytes) -> str | None:
    at, pixels, complete = len(PNG), zlib.decompressobj(), False
    while at + 12 <= len(data):
        length, name = int.from_bytes(data[at:at + 4], 'big'), data[at + 4:at + 8]
        end = at + 12 + length
        if end > len(data):
            break
        if zlib.crc32(data[at + 4:end - 4]) != int.from_bytes(data[end - 4:end], 'big'):
            return f'the PNG is damaged (wrong checksum of its chunk {name.decode("latin-1")!r})'
        if name == b'IDAT' and not pixels.eof:
            try:
                rest = data[at + 8:end - 4]
                while rest and not pixels.eof:  # in pieces: a small chunk may unpack to gigabytes
                    pixels.decompress(rest, _PIECE)
                    rest = pixels.unconsumed_tail
            except zlib.error as error:
                return f'the PNG is damaged ({one_line(error, 80)})'
        if name == b'IEND':
            complete = True
            break
        at = end
    if not complete:
        return f'the PNG is truncated (no end chunk in its {len(data)} bytes)'
    return None if pixels.eof else 'the PNG is damaged (its pixels are incomplete)'


def _tiff(data: bytes) -> str | None:
    said = _undecodable(data, 'TIFF', lambda picture: picture.tag_v2.get(259, 1) in _TIFF_CODECS)
    return f'the TIFF is damaged ({said})' if said else None


def _uncompressed(data: bytes) -> str | None:
    kind = 'BMP' if data.startswith(b'BM') else 'PNM'
    return f'the {kind} is truncated ({len(data)} bytes)' if _undecodable(data, kind) else None


def _undecodable(data: bytes, kind: str, known: Callable[[Any], bool] = bool) -> str | None:
    """Why Pillow cannot decode an image whose header it can read; None if it can, or reads no such images."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            with Image.open(io.BytesIO(data), formats=[{'PNM': 'PPM'}.get(kind, kind)]) as picture:
                if known(picture):
                    _load(picture, data)
    except _Damaged as error:
        return one_line(error, 80)
    except Exception:  # a header that Pillow does not read; what OpenCV does not read either, the loader reports
        return None
    return None


def _load(picture: Any, data: bytes) -> None:
    try:
        picture.load()
        if picture.format == 'TIFF' and picture.tag_v2.get(259) in _DEFLATE:  # libtiff passes over wrong checksums
            tags = picture.tag_v2
            places = [tags.get(strip, tags.get(tile, ())) for strip, tile in ((273, 324), (279, 325))]
            for start, count in zip(*places, strict=False):
                zlib.decompress(data[start:start + count])
    except Exception as error:  # Pillow's plugins raise what they like
        raise _Damaged(str(error)) from error


class _Damaged(Exception):
    pass
