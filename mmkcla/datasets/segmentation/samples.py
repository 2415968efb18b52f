"""Small sample files in the layout of ISIC 2017, ISIC 2018 and Kvasir-SEG, made from photographs of scikit-image.

With them the converters can be tried and tested without the real data. The zip files, folders and file names are as
published, including files that a converter must skip; some images are stored rotated, with an EXIF orientation. The
images, except ``ihc``, are not medical: they are for demos and tests, not for benchmarks.

* ``coins``: 24 coins on a table, grey; the foreground is the coins. Train and val are crops of the left part, test of
  the right part (:func:`mmkcla.datasets.detection.coins.train_part`): test shares no pixel and no coin with train and
  val.
* ``ihc``: colon tissue under the microscope, in colour, glands stained brown; the foreground is the stain, smoothed and
  thresholded with Otsu's method (not annotated by an expert). Left and right part as above.

Crops of one part overlap each other, also between train and val.
"""
from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from mmkcla.datasets.detection import coins
from mmkcla.datasets.segmentation.converters.isic import ISIC2017, ISIC2018
from mmkcla.datasets.segmentation.converters.splits import SPLITS
from mmkcla.errors import UserError
from mmkcla.utils.files import already_there, parse_json, whole_folder
from mmkcla.utils.images import ORIENTATION, UPRIGHT

DATASETS = ('isic2017', 'isic2018', 'kvasir_seg')
PHOTOGRAPHS = ('coins', 'ihc')
SAMPLE = 'sample.json'
KVASIR_SPLIT = 'kvasir_split.json'
VERSION = 1  # stored with the sample; increment when the output for the same arguments changes
SIDES = (112, 192)  # of the crops, in pixels
TURNED_EVERY = 8  # one in this many images is stored rotated
_LICENCE = ('This is a sample in the layout of a published data set. Its pictures are crops of a photograph that ships '
            'with scikit-image, not the data set.\n')


def make_samples(out: str | os.PathLike, dataset: str = 'isic2017', count: Sequence[int] = (48, 8, 16),
                 photograph: str = 'coins', seed: int = 0, overwrite: bool = False) -> str:
    """Write sample files to ``out`` atomically; the same arguments give the same bytes.

    Kvasir-SEG has no published splits: ``kvasir_split.json`` for ``--split-file`` is written next to its zip file,
    since a random split would put overlapping crops into train and test.

    Args:
        out: output folder of the zip files.
        dataset: one of ``isic2017``, ``isic2018``, ``kvasir_seg``.
        count: number of images for train, val and test; val and test may be 0 (their zip files are then not written).
        photograph: ``coins`` or ``ihc``.
        seed: random seed of the crops, 0 or more.
        overwrite: replace a sample of this generator (nothing else is replaced).

    Returns:
        One line that says what was written.

    Raises:
        UserError: an argument is out of range; ``out`` contains other files; scikit-image is missing.
    """
    for value, known, what in ((dataset, DATASETS, 'data set'), (photograph, PHOTOGRAPHS, 'photograph')):
        if value not in known:
            raise UserError(f'{what} {value!r}: must be one of {", ".join(known)}')
    counts = dict(zip(SPLITS, count, strict=False))
    if len(count) != 3 or counts['train'] < 1 or min(count) < 0 or max(count) > 2000:
        raise UserError(f'count {" ".join(map(str, count))}: must be three numbers up to 2000 (train, val, test), the '
                        'first at least 1')
    if seed < 0:
        raise UserError(f'seed {seed}: must be 0 or more')
    folder = Path(out)
    parameters = {'generator': f'mmkcla samples {VERSION}', 'dataset': dataset, 'count': list(count),
                  'photograph': photograph, 'seed': seed}
    try:
        if already_there(folder, 'sample', _record, parameters, overwrite):
            return f'{folder}: already there'
        crops = _crops(photograph, counts, seed)
        with whole_folder(folder, replace=overwrite) as new:
            _WRITERS[dataset](new, crops)
            names = sorted(path.name for path in new.iterdir())
            (new / SAMPLE).write_text(json.dumps({**parameters, 'files': names}) + '\n', encoding='utf-8')
    except OSError as error:
        raise UserError(f'cannot write {folder}: {error.strerror or error}') from None
    numbers = ', '.join(f'{number} {split}' for split, number in counts.items() if number)
    zips = ', '.join(name for name in names if name.endswith('.zip'))
    listed = f'; the names of its splits for --split-file: {folder / KVASIR_SPLIT}' if KVASIR_SPLIT in names else ''
    return f'{folder}: {numbers} images in {zips}{listed}'


class _Crop:
    """A crop ``pixels`` (H, W, 3) uint8 with its ``mask`` (H, W) bool, and its ``number`` in the whole sample."""

    def __init__(self, number: int, pixels: np.ndarray, mask: np.ndarray) -> None:
        self.number, self.pixels, self.mask = number, pixels, mask

    def jpeg(self) -> bytes:
        """The picture as JPEG; every eighth is stored rotated, cycling through the EXIF orientations."""
        picture, options = Image.fromarray(self.pixels), {}
        if self.number % TURNED_EVERY == 3:
            tag = 2 + self.number // TURNED_EVERY % 7
            back = {6: UPRIGHT[8], 8: UPRIGHT[6]}.get(tag, UPRIGHT[tag])
            exif = Image.Exif()
            exif[ORIENTATION] = tag
            picture, options = picture.transpose(back), {'exif': exif.tobytes()}
        return _encode(picture, 'JPEG', quality=92, **options)

    def mask_png(self) -> bytes:
        """The mask as 8-bit PNG, 0 and 255, as ISIC's."""
        return _encode(Image.fromarray(self.mask.astype(np.uint8) * 255), 'PNG')

    def mask_jpeg(self) -> bytes:
        """The mask as JPEG of three channels with grey edges, as Kvasir-SEG's."""
        smooth = coins._demo_module('scipy.ndimage').gaussian_filter(self.mask * 255., 0.6)
        return _encode(Image.fromarray(np.rint(smooth).astype(np.uint8)).convert('RGB'), 'JPEG', quality=90)

    def superpixels(self) -> bytes:
        """A PNG that encodes block numbers as colours, in place of ISIC's superpixels; not a mask."""
        height, width = self.mask.shape
        block = np.arange(height)[:, None] // 16 * 64 + np.arange(width) // 16
        return _encode(Image.fromarray(np.dstack([block % 256, block // 256, block * 0]).astype(np.uint8)), 'PNG')


def _crops(photograph: str, counts: dict[str, int], seed: int) -> dict[str, list[_Crop]]:
    """The crops of each split, all at different places."""
    picture, foreground, left = {'coins': _coins, 'ihc': _ihc}[photograph]()
    result, number = {}, 0
    for split, count in counts.items():
        # One random stream per split, so that their counts are independent.
        random, seen, result[split] = np.random.default_rng([seed, SPLITS.index(split)]), set(), []
        inside = ~left if split == 'test' else left
        sums = np.pad(inside, ((1, 0), (1, 0))).cumsum(0).cumsum(1)
        while len(result[split]) < count:
            height, width = random.integers(SIDES[0], SIDES[1] + 1, 2).tolist()
            y, x = (int(random.integers(0, size - side + 1)) for size, side in
                    zip(inside.shape, (height, width), strict=True))
            within = sums[y + height, x + width] - sums[y, x + width] - sums[y + height, x] + sums[y, x]
            if within != height * width or (y, x, height, width) in seen:
                continue
            seen.add((y, x, height, width))
            window = np.s_[y:y + height, x:x + width]
            result[split].append(_Crop(number, picture[window], foreground[window]))
            number += 1
    return result


def _coins() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The coins: picture, foreground, and the part for train and val."""
    photo = coins.photograph()
    return np.repeat(photo[..., None], 3, axis=2), coins.segment_coins(photo) > 0, coins.train_part()


def _ihc() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The stained tissue: picture, foreground, and the part for train and val."""
    picture = coins._demo_module('skimage.data').immunohistochemistry()
    stain = coins._demo_module('skimage.color').rgb2hed(picture)[..., 2]
    smooth = coins._demo_module('scipy.ndimage').gaussian_filter(stain, 5)
    foreground = smooth > coins._demo_module('skimage.filters').threshold_otsu(smooth)
    return picture, foreground, np.broadcast_to(np.arange(picture.shape[1]) < 300, foreground.shape)


def _write_isic2017(folder: Path, crops: dict[str, list[_Crop]]) -> None:
    for part in ISIC2017.parts:
        _write_isic(folder, part.images, part.masks, crops[part.name], superpixels=True, extra={
            f'{part.images}_metadata.csv': lambda names: 'image_id,age_approximate,sex\n' + ''.join(
                f'{name},unknown,unknown\n' for name in names)})


def _write_isic2018(folder: Path, crops: dict[str, list[_Crop]]) -> None:
    extra = {'LICENSE.txt': lambda names: _LICENCE, 'ATTRIBUTION.txt': lambda names: _LICENCE}
    for part in ISIC2018.parts:
        _write_isic(folder, part.images, part.masks, crops[part.name], superpixels=False, extra=extra)


def _write_isic(folder: Path, images: str, masks: str, crops: list[_Crop], superpixels: bool,
                extra: dict[str, Callable[[list[str]], str]]) -> None:
    """The two zip files of one part."""
    if not crops:
        return
    names = [f'ISIC_{crop.number * 7:07d}' for crop in crops]  # as published: with gaps
    with _Zip(folder / f'{images}.zip') as archive:
        for name, text in extra.items():
            archive.add(f'{images}/{name}', text(names).encode())
        for name, crop in zip(names, crops, strict=True):
            archive.add(f'{images}/{name}.jpg', crop.jpeg())
            if superpixels:
                archive.add(f'{images}/{name}_superpixels.png', crop.superpixels())
    with _Zip(folder / f'{masks}.zip') as archive:
        for name, crop in zip(names, crops, strict=True):
            archive.add(f'{masks}/{name}_segmentation.png', crop.mask_png())


def _write_kvasir(folder: Path, crops: dict[str, list[_Crop]]) -> None:
    """The zip file of Kvasir-SEG, and the names of each split."""
    names = {split: [f'cju{_base36(crop.number)}' for crop in listed] for split, listed in crops.items()}
    boxes = {}
    with _Zip(folder / 'kvasir-seg.zip') as archive:
        for split, listed in crops.items():
            for name, crop in zip(names[split], listed, strict=True):
                archive.add(f'Kvasir-SEG/images/{name}.jpg', crop.jpeg())
                archive.add(f'Kvasir-SEG/masks/{name}.jpg', crop.mask_jpeg())
                boxes[name] = {'height': crop.mask.shape[0], 'width': crop.mask.shape[1], 'bbox': _box(crop.mask)}
        archive.add('Kvasir-SEG/kavsir_bboxes.json', json.dumps(boxes).encode())  # spelt so there
    (folder / KVASIR_SPLIT).write_text(json.dumps(names, indent=1) + '\n', encoding='utf-8')


def _box(mask: np.ndarray) -> list[dict]:
    rows, columns = np.flatnonzero(mask.any(axis=1)).tolist(), np.flatnonzero(mask.any(axis=0)).tolist()
    return [{'label': 'polyp', 'xmin': columns[0], 'ymin': rows[0], 'xmax': columns[-1] + 1,
             'ymax': rows[-1] + 1}] if rows else []


def _base36(number: int) -> str:
    """22 letters and digits that look like Kvasir-SEG's names."""
    value = int.from_bytes(hashlib.sha256(f'sample {number}'.encode()).digest(), 'big')
    letters = []
    for _ in range(22):
        value, digit = divmod(value, 36)
        letters.append('0123456789abcdefghijklmnopqrstuvwxyz'[digit])
    return ''.join(letters)


_WRITERS = {'isic2017': _write_isic2017, 'isic2018': _write_isic2018, 'kvasir_seg': _write_kvasir}


class _Zip:
    """A zip file of fixed dates: the same content gives the same bytes."""

    def __init__(self, path: Path) -> None:
        self._archive = zipfile.ZipFile(path, 'w')

    def __enter__(self) -> _Zip:
        return self

    def __exit__(self, *error: object) -> None:
        self._archive.close()

    def add(self, name: str, content: bytes) -> None:
        """Add a file, compressed if that can help."""
        member = zipfile.ZipInfo(name, (2017, 1, 1, 0, 0, 0))
        member.create_system, member.external_attr = 3, 0o644 << 16
        member.compress_type = zipfile.ZIP_STORED if name.endswith('.jpg') else zipfile.ZIP_DEFLATED
        self._archive.writestr(member, content)


def _encode(picture: Image.Image, image_format: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, image_format, **options)
    return buffer.getvalue()


def _record(folder: Path) -> tuple[dict, dict[str, None]]:
    """The parameters that a folder was written with, and its files."""
    written = parse_json((folder / SAMPLE).read_text(encoding='utf-8'))
    if not written['generator'].startswith('mmkcla samples'):
        raise ValueError
    return written, dict.fromkeys([SAMPLE, *written.pop('files')])
