"""Check the images and masks of any mmseg data set against its pipeline, classes and ignored label."""
from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ...utils.images import IMAGE_SUFFIXES, image_problem, orientation_of
from ...utils.parallel import run_parallel
from ...utils.text import listed, one_line, plural
from ..findings import Finding, turned_unseen
from ..image_files import ImageFile
from .mask_colours import Palette, palette_of

MOST_PIXELS = 400_000_000  # of the masks that are decoded before a run: a few seconds
_HEADERS = 16
_MOST_CLASSES = 20  # up to this number, a last class that never occurs is no coincidence


@dataclass
class Pair:
    """One image with its mask, and what the pipeline makes of the mask.

    Attributes:
        image, mask: paths.
        stored: values of the mask file and their numbers of pixels; empty for colours.
        labels: values of ``gt_seg_map`` and their numbers of pixels.
        size: width and height of the mask as loaded; None where it cannot be loaded.
        problem: why it cannot be loaded.
        orientation: EXIF orientation that the loader has not applied to the mask, 1 to 8; 1 is upright.
        tagged: whether the mask has an EXIF orientation.
        kind: what the mask file is: ``'grey'``, ``'coloured'``, ``'channels'`` (grey, in several channels), ``'deep'``
            (values above 255) or ``'not integer'``.
        palette: colours of the labels, where the file has a palette.
    """

    image: str
    mask: str
    stored: Counter[int] = field(default_factory=Counter)
    labels: Counter[int] = field(default_factory=Counter)
    size: tuple[int, int] | None = None
    problem: str | None = None
    orientation: int = 1
    tagged: bool = False
    kind: str = 'grey'
    palette: Palette = field(default_factory=dict)


def pairing_findings(data: Sequence[dict], image_folder: Path | None, mask_folder: Path | None, image_suffix: str,
                     mask_suffix: str, source: str) -> list[Finding]:
    """Missing files and wrong suffixes.

    Args:
        data: ``img_path`` and ``seg_map_path`` of each pair, as mmseg lists them.
        image_folder, mask_folder: the folders of the config.
        image_suffix, mask_suffix: the suffixes of the data set.
        source: the annotation list; '' if the folder is listed.
    """
    if not data:
        there = _suffixes(image_folder)
        hint = f'; it has: {there}' if there else ''
        return [Finding(f'no images in {source or image_folder} with img_suffix={image_suffix!r}{hint}', True)]
    findings = []
    images = [part['img_path'] for part in data if not os.path.isfile(part['img_path'])]
    masks = [part['seg_map_path'] for part in data
             if part.get('seg_map_path') and not os.path.isfile(part['seg_map_path'])]
    if images:
        listed_in = f' that {source} names' if source else ''
        findings.append(Finding(f'{plural(len(images), "image")}{listed_in} not found', True, len(images), images))
    if masks:
        every = len(masks) == len(data)
        there = _suffixes(mask_folder) if every else ''
        hint = f' (seg_map_suffix={mask_suffix!r}; {mask_folder} has: {there})' if there else ''
        findings.append(Finding(f'{len(masks)} of {plural(len(data), "image")} have no mask{hint}', True, len(masks),
                                masks))
    elif mask_folder is not None and mask_folder.is_dir() and not source:
        expected = {part.get('seg_map_path') for part in data}
        extra = [path for path in _files(mask_folder) if path.endswith(mask_suffix) and path not in expected]
        if extra:
            findings.append(Finding(f'{plural(len(extra), "mask")} without an image, not used', False, len(extra),
                                    extra))
    return findings


def inspect_pairs(data: Sequence[dict], loader: Any, whole: bool = False, workers: int | None = None) -> list[Pair]:
    """Load the masks as the pipeline does.

    Args:
        data: entries with ``img_path`` and ``seg_map_path``.
        loader: the transform of the pipeline that loads masks.
        whole: all masks; else at most about :data:`MOST_PIXELS`, evenly spread.
        workers: number of threads.
    """
    chosen = list(data)
    if not whole and data:
        heads = [data[i] for i in np.unique(np.linspace(0, len(data) - 1, _HEADERS).astype(int)).tolist()]
        pixels = max(1.0, float(np.mean([_pixels(part['seg_map_path']) for part in heads])))
        count = max(1, min(len(data), int(MOST_PIXELS / pixels)))
        chosen = [data[i] for i in np.unique(np.linspace(0, len(data) - 1, count).round().astype(int)).tolist()]
    return run_parallel(partial(_inspect, loader), chosen, workers, None if whole else False, 'masks')


def _inspect(loader: Any, part: dict) -> Pair:
    pair = Pair(str(part['img_path']), str(part['seg_map_path']))
    try:
        data = Path(pair.mask).read_bytes()
        pair.problem = image_problem(data)
        if pair.problem is None:
            thresholded = 'LoadBinaryMask' in type(loader).__name__
            with Image.open(io.BytesIO(data)) as picture:
                stored, orientation = np.asarray(picture), orientation_of(picture)
                pair.tagged, pair.orientation = orientation != 1, 1 if thresholded else orientation
                _look_at_stored(pair, stored, thresholded)
                pair.palette = palette_of(picture, pair.stored)
    except Exception as error:  # each format's reader has its own
        pair.problem = 'it is not an image' if isinstance(error, Image.UnidentifiedImageError) else one_line(error, 120)
    if pair.problem is not None:
        return pair
    try:
        results = loader(dict(part, seg_fields=[]))
        labels = np.asarray(results['gt_seg_map'])
        if labels.ndim < 2:  # mmseg's loader squeezes the array
            pair.problem = 'mmseg cannot load masks of one row or one column'
        elif labels.ndim > 2:
            pair.kind = 'channels' if _is_grey(labels) else 'coloured'
        else:
            pair.labels, pair.size = _counts(labels), (labels.shape[1], labels.shape[0])
    except Exception as error:  # what the loader of the pipeline raises would end the run
        pair.problem = one_line(error, 300)
    return pair


def _is_grey(labels: np.ndarray) -> bool:
    """Whether the colour channels of ``(H, W, C)`` are equal; the second or fourth is opacity."""
    colours = labels[..., :3] if labels.shape[-1] >= 3 else labels[..., :1]
    return bool((colours == colours[..., :1]).all())


def _look_at_stored(pair: Pair, stored: np.ndarray, thresholded: bool) -> None:
    if stored.ndim != 2:  # the loader may reduce it to one channel
        return
    if stored.dtype.kind in 'biu':
        pair.stored = _counts(stored)
    if not thresholded:  # mmseg's loader converts to uint8, whatever the values
        pair.kind = ('not integer' if stored.dtype.kind not in 'biu' else
                     'deep' if max(pair.stored, default=0) > 255 else 'grey')


def _counts(values: np.ndarray) -> Counter[int]:
    if values.dtype in (np.uint8, bool):
        counts = np.bincount(values.ravel().astype(np.uint8), minlength=256)
        return Counter({int(value): int(counts[value]) for value in np.flatnonzero(counts)})
    found, counts = np.unique(values, return_counts=True)
    return Counter(dict(zip(found.tolist(), counts.tolist(), strict=True)))


def size_findings(pairs: Iterable[Pair], images: Sequence[ImageFile], upright: bool) -> list[Finding]:
    """Masks whose size or orientation is not that of their image as loaded.

    Args:
        pairs: the masks.
        images: the images that were read.
        upright: whether the pipeline applies the EXIF orientation.
    """
    by_path = {str(image.path): image for image in images if image.problem is None}
    wrong, turned, other, unseen = [], [], [], []
    for pair in pairs:
        image = by_path.get(pair.image)
        if image is None or pair.size is None:
            continue
        loaded = (image.width, image.height) if upright else image.stored
        if pair.size != loaded:
            if upright and image.stored == pair.size and image.stored != (image.width, image.height):
                turned.append(pair.mask)
            else:
                wrong.append(f'{pair.mask} ({pair.size[0]}×{pair.size[1]}, image {loaded[0]}×{loaded[1]})')
        elif pair.tagged and pair.orientation != (1 if upright else image.orientation):
            other.append(pair.mask)
        elif upright and image.turned_unseen and not pair.tagged:
            unseen.append(pair.image)
    findings = []
    if wrong:
        findings.append(Finding(f'{plural(len(wrong), "mask")} of another size than the image', True, len(wrong),
                                wrong))
    if turned:
        findings.append(Finding(f'{plural(len(turned), "mask")} of the stored image, which is turned by its EXIF '
                                'orientation when it is loaded; save the images upright', True, len(turned), turned))
    if other:
        findings.append(Finding(f'{plural(len(other), "mask")} with an EXIF orientation that is not applied as that of '
                                'the image; save images and masks upright', True, len(other), other))
    if unseen:
        findings.append(turned_unseen(unseen))
    return findings


def label_findings(pairs: Sequence[Pair], classes: Sequence[str] | None, number: int | None, ignored: set[int],
                   reduce_zero: bool, trained_on: bool, thresholded: bool) -> list[Finding]:
    """Labels that are no class, and classes that are lost.

    Args:
        pairs: the masks.
        classes: names of the classes; None: unknown.
        number: number of classes; None: unknown.
        ignored: labels that the loss or the metric leaves out.
        reduce_zero: ``reduce_zero_label`` of the data set.
        trained_on: whether the set is the training set.
        thresholded: whether the pipeline makes two classes of the values.
    """
    findings = _file_findings(pairs)
    good = [pair for pair in pairs if pair.problem is None and pair.kind == 'grey' and pair.labels]
    stored, labels = _total(pair.stored for pair in good), _total(pair.labels for pair in good)
    if not good or any(finding.refuse for finding in findings):
        return findings
    if not thresholded and number is not None and set(stored) == {0, 255} and 255 in ignored:
        remedy = ("load them with type='mmkcla.LoadBinaryMask', threshold=127" if number == 2 else
                  'if 255 is foreground, prepare them with mmkcla data binary-seg, or replace 255 by its label')
        return [*findings, Finding('all masks have only the values 0 and 255, and 255 is ignored, so nothing but '
                                   f'class 0 is learned; {remedy}', True, len(good), [pair.mask for pair in good])]
    if number is not None:
        findings += _outside(good, number, ignored, reduce_zero)
        if not any(finding.refuse for finding in findings):
            findings += _lost_classes(good, stored, labels, classes, number, ignored, reduce_zero, trained_on)
    return findings


def _file_findings(pairs: Sequence[Pair]) -> list[Finding]:
    kinds = {'coloured': 'coloured: a label is one grey value; convert them with mmkcla data binary-seg --palette',
             'channels': 'grey, but stored in several channels (RGB or with opacity); save them with one channel',
             'deep': 'of more than 8 bits with values above 255, which wrap around when loaded; save them with 8 bits',
             'not integer': 'of floating-point values; save them as 8-bit labels'}
    findings = []
    broken = [f'{pair.mask} ({pair.problem})' for pair in pairs if pair.problem]
    if broken:
        findings.append(Finding(f'{len(broken)} of {plural(len(pairs), "mask")} cannot be loaded', True, len(broken),
                                broken))
    for kind, text in kinds.items():
        found = [pair.mask for pair in pairs if pair.kind == kind and pair.problem is None]
        if found:
            findings.append(Finding(f'{len(found)} of {plural(len(pairs), "mask")} are {text}', True, len(found),
                                    found))
    return findings


def _outside(pairs: Sequence[Pair], number: int, ignored: set[int], reduce_zero: bool) -> list[Finding]:
    outside = []
    values: set[int] = set()
    for pair in pairs:
        wrong = [value for value in sorted(pair.labels) if value >= number and value not in ignored]
        if wrong:
            values.update(wrong)
            outside.append(f'{pair.mask} ({listed(wrong)})')
    if not outside:
        return []
    hint = ''
    if values == {number} and not reduce_zero:
        hint = '; if the labels start at 1 and 0 means unlabelled, set reduce_zero_label=True'
    elif any(pair.mask.lower().endswith(('.jpg', '.jpeg')) for pair in pairs):
        hint = '; JPEG changes labels, use PNG'
    elif number == 2:
        hint = "; two classes by a threshold: type='mmkcla.LoadBinaryMask', threshold=127"
    elif 255 in values and 255 not in ignored:
        hint = '; set ignore_index=255'
    return [Finding(f'{len(outside)} of {plural(len(pairs), "mask")} have labels outside the {plural(number, "class")} '
                    f'0 to {number - 1} that are not ignored ({listed(sorted(ignored))}){hint}', True, len(outside),
                    outside)]


def _lost_classes(pairs: Sequence[Pair], stored: Counter[int], labels: Counter[int], classes: Sequence[str] | None,
                  number: int, ignored: set[int], reduce_zero: bool, trained_on: bool) -> list[Finding]:
    findings = []
    seen = {value for value in labels if value not in ignored}
    if reduce_zero and set(stored) - ignored == set(range(number)) and 0 in stored:
        findings.append(Finding(f'reduce_zero_label=True, but the masks have the labels 0 to {number - 1}: class 0 is '
                                f'ignored and class {number - 1} never occurs; set reduce_zero_label=False',
                                number <= _MOST_CLASSES))
    elif not seen:
        findings.append(Finding('every pixel of the masks is ignored', True, len(pairs), [p.mask for p in pairs]))
    elif number > 1 and len(seen) == 1:
        only = min(seen)
        name = f' ({classes[only]})' if classes and only < len(classes) else ''
        findings.append(Finding(f'all masks have only class {only}{name}: there is nothing to '
                                + ('learn' if trained_on else 'measure'), trained_on, len(pairs),
                                [pair.mask for pair in pairs]))
    elif trained_on and len(seen) < number:
        absent = [classes[value] if classes else str(value) for value in range(number) if value not in seen]
        findings.append(Finding(f'{plural(len(absent), "class")} without a pixel in the masks', False, len(absent),
                                absent))
    blank = [pair.mask for pair in pairs if set(pair.labels) <= ignored]
    if blank and seen:
        findings.append(Finding(f'{plural(len(blank), "mask")} with every pixel ignored', False, len(blank), blank))
    dropped = sum(count for value, count in labels.items() if value in ignored)
    kept_before = sum(count for value, count in stored.items() if value in ignored)
    if seen and dropped > kept_before:  # by reduce_zero_label, or by classes that the config leaves out
        findings.append(Finding(f'{dropped / max(1, sum(labels.values())):.1%} of the pixels become ignored'))
    return findings


def _total(counts: Iterable[Counter[int]]) -> Counter[int]:
    total: Counter[int] = Counter()
    for part in counts:
        total.update(part)
    return total


def _pixels(path: str) -> int:
    try:
        with Image.open(path) as picture:
            return picture.width * picture.height
    except Exception:  # reported when the mask is loaded
        return 1


def _files(folder: Path) -> list[str]:
    return [os.path.join(place, name) for place, _, names in os.walk(folder) for name in sorted(names)]


def _suffixes(folder: Path | None) -> str:
    """The image suffixes in a folder, with numbers of files."""
    if folder is None or not folder.is_dir():
        return ''
    counts = Counter(Path(path).suffix for path in _files(folder) if Path(path).suffix.lower() in IMAGE_SUFFIXES)
    return listed([f'{suffix} ({count})' for suffix, count in sorted(counts.items())], 5)
