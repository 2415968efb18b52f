"""Check a prepared segmentation data set before training: all files, or a quick check.

It works on the output of the converters (``images/<split>``, ``masks/<split>``, ``manifest.json``) and on any folder
with that layout; without a manifest, file contents are not compared.
"""
from __future__ import annotations

import contextlib
import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from PIL import Image

from mmkcla.datasets.segmentation import masks as pixels
from mmkcla.datasets.segmentation.converters.folds import FOLDS, read_folds
from mmkcla.datasets.segmentation.converters.manifest import (
    MANIFEST,
    OS_FILES,
    STAMP,
    extra_files,
    label_values,
    read_manifest,
)
from mmkcla.datasets.segmentation.converters.splits import SPLITS, names_digest
from mmkcla.errors import UserError
from mmkcla.utils.files import whole_file
from mmkcla.utils.images import IMAGE_SUFFIXES, turn, upright, upright_size
from mmkcla.utils.parallel import run_parallel
from mmkcla.utils.ranks import rank

from ...utils.text import note, one_line
from ..findings import turned_unseen

SAMPLE = 16  # masks that a quick check reads
HASH_SIDE = 16
NEAR_BITS = 16  # of 256: further apart no near-duplicate; recompressing or resizing a picture moves a few bits


@dataclass
class Report:
    """The result of a check.

    Attributes:
        problems: one line each, sorted by file; empty if there are none.
        notes: other information.
        counts: number of pairs in each split.
        empty_masks: number of masks without foreground among those checked.
        turned: images whose EXIF orientation does not show in their size, unlike their masks.
        pairs: image and mask of each pair, as paths from the folder.
    """

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    empty_masks: int = 0
    turned: list[str] = field(default_factory=list)
    pairs: list[tuple[str, str]] = field(default_factory=list)


def verify(root: str | os.PathLike, quick: bool = False, near: bool = False, workers: int | None = None,
           progress: bool | None = None) -> list[str]:
    """Return the problems of a prepared data set, one line each; see :func:`check`."""
    return check(root, quick, near, workers, progress).problems


def verify_once(root: str | os.PathLike) -> list[str]:
    """Check a data set before a run: all files the first time and after changes, otherwise a quick check.

    After a check without problems, a digest of all names, sizes and modification times is stored in ``.verified`` in
    the folder of the data set. While it matches, the check is the quick one. In distributed training only rank 0 does
    the full check. If the folder is not writable, every run checks all files.

    Args:
        root: the folder with ``images`` and ``masks``.

    Raises:
        UserError: as :func:`check`.
    """
    root = Path(root)
    if rank() != 0:
        return check(root, quick=True).problems
    stamp, state, kept = root / STAMP, _fingerprint(root), b''
    with contextlib.suppress(OSError):
        kept = stamp.read_bytes()
    report = check(root, quick=kept == state)
    if report.turned:
        note(f'{root}: {turned_unseen(report.turned).line()}')
    if not report.problems and kept != state:
        with contextlib.suppress(OSError), whole_file(stamp) as file:
            file.write(state)
    return report.problems


def _fingerprint(root: Path) -> bytes:
    """Digest of the names, sizes and modification times of the files of a data set."""
    sizes = {**_list(root / 'images'), **_list(root / 'masks')}
    for name in (MANIFEST, FOLDS):
        sizes[name] = (root / name).stat().st_size if (root / name).exists() else -1
    digest = hashlib.sha256()
    for name, size in sizes.items():
        changed = (root / name).stat().st_mtime_ns if size >= 0 else 0
        digest.update(f'{name}\n{size} {changed}\n'.encode())
    return digest.hexdigest().encode()


def check(root: str | os.PathLike, quick: bool = False, near: bool = False, workers: int | None = None,
          progress: bool | None = None) -> Report:
    """Check a prepared data set.

    Always checked: images and masks are in train, val and test; each image has a mask and each mask an image; files and
    their sizes in bytes match the manifest; the counts of the manifest match its list of files, without duplicates; no
    image of the manifest is in two splits. For each pair: both files can be decoded completely, their sizes are equal,
    the mask is grey with the values 0 and 1, the sha256 matches the manifest, and no image is in two splits.

    Args:
        root: the folder with ``images`` and ``masks``.
        quick: read only 16 masks and the headers of their images, and hash nothing (well under a second).
        near: also compare images across splits with a difference hash of 256 bits, to find recompressed and resized
            copies. Not with ``quick``.
        workers: number of threads; None: one per processor.
        progress: show a progress bar on stderr; None: if stderr is a terminal.

    Raises:
        UserError: the folder does not exist, or does not contain ``images`` and ``masks``.
    """
    root, report = Path(root), Report()
    if quick and near:
        raise UserError('a quick check decodes no images: near-duplicates need a full one')
    if not root.is_dir():
        raise UserError(f'no folder {root}; create it with mmkcla data')
    if not (root / 'images').is_dir() or not (root / 'masks').is_dir():
        raise UserError(f'{root} is not a prepared data set: it needs the folders images and masks, and in them train, '
                        'val and test; a class folder needs <class>/<image>, or train/<class>/<image>')
    try:
        manifest = read_manifest(root)
        if manifest is None:
            report.notes.append(f'there is no {MANIFEST}: contents cannot be compared with what was converted')
    except UserError as error:
        manifest = None
        report.problems.append(f'{MANIFEST}: {str(error).split(": ", 1)[-1]}')
    present = {kind: _list(root / kind) for kind in ('images', 'masks')}
    report.pairs = pairs = _pair(present, report)
    entries = (manifest or {}).get('files', [])
    if manifest is not None:
        _compare_files(present, entries, report)
        _recount(manifest, report)
        _check_extra(root, manifest, report)
    values = label_values(manifest)
    listed = {entry[kind]: entry[f'{kind}_sha256'] for entry in entries for kind in ('image', 'mask')}
    if quick:
        spread = [pairs[i] for i in sorted({round(i) for i in np.linspace(0, len(pairs) - 1, SAMPLE)})] if pairs else []
        results = run_parallel(partial(_inspect, root, {}, values, True, False), spread, workers, False)
        digests = {entry['image']: entry['image_sha256'] for entry in entries}
    else:
        results = run_parallel(partial(_inspect, root, listed, values, False, near), pairs, workers, progress, 'verify')
        digests = {pair[0]: result['sha256'] for pair, result in zip(pairs, results, strict=True)}
    for result in results:
        report.problems += result['problems']
        report.empty_masks += result['empty']
        report.turned += result['turned']
    report.problems += pixels.one_value_everywhere(pairs, results)
    _duplicates(digests, report)
    if near:
        looks = {pair[0]: result['look'] for pair, result in zip(pairs, results, strict=True) if 'look' in result}
        _near_duplicates(looks, digests, report)
    report.counts = dict(Counter(_split(image) for image, _ in pairs))
    if report.empty_masks:
        report.notes.append(f'{report.empty_masks} of {len(results)} masks that were looked into '
                            f'{"has" if report.empty_masks == 1 else "have"} no foreground')
    if report.turned:
        report.notes.append(turned_unseen(report.turned).line())
    report.problems.sort()
    return report


def _list(folder: Path) -> dict[str, int]:
    """Sizes of the files below ``folder`` (``images`` or ``masks``), by their paths from the data set's root."""
    result = {}
    for place, folders, names in os.walk(folder, followlinks=True):
        folders.sort()
        for name in sorted(set(names) - OS_FILES):
            path = Path(place, name)
            result[f'{folder.name}/{path.relative_to(folder).as_posix()}'] = (
                path.stat().st_size if path.exists() else -1)  # a link to nowhere
    return result


def _pair(present: dict[str, dict[str, int]], report: Report) -> list[tuple[str, str]]:
    """Pair images and masks by name and split; report unpaired, empty and duplicate files."""
    images, masks = defaultdict(list), {}
    for kind, paths in present.items():
        for path in paths:
            if PurePosixPath(path).suffix.lower() not in (IMAGE_SUFFIXES if kind == 'images' else ('.png',)):
                continue
            if path.split('/')[1:-1] not in [[split] for split in SPLITS]:
                report.problems.append(f'{path}: lies in none of {", ".join(f"{kind}/{split}" for split in SPLITS)}')
            elif kind == 'images':
                images[_key(path)].append(path)
            else:
                masks[_key(path)] = path
    for key, paths in images.items():
        if len(paths) > 1:
            report.problems.append(f'{paths[0]}: the same name as {", ".join(paths[1:])}')
        if key not in masks:
            report.problems.append(f'{paths[0]}: no mask masks/{key}.png')
    report.problems += [f'{path}: no image images/{key}.*' for key, path in masks.items() if key not in images]
    if not images and not report.problems:
        report.problems.append(f'images: no images ({" ".join(IMAGE_SUFFIXES)}) in it')
    sizes = {**present['images'], **present['masks']}
    report.problems += [f'{path}: {"empty file" if size == 0 else "link to a file that is not there"}'
                        for path, size in sizes.items() if size <= 0]
    return [(path, masks[key]) for key, paths in images.items() if key in masks
            for path in paths if sizes[path] > 0 and sizes[masks[key]] > 0]


def _compare_files(present: dict[str, dict[str, int]], entries: list[dict], report: Report) -> None:
    """Compare the files and their sizes with the manifest."""
    sizes = {**present['images'], **present['masks']}
    expected = {entry[kind]: entry[f'{kind}_bytes'] for entry in entries for kind in ('image', 'mask')}
    report.problems += [f'{path}: is in the manifest, but not there' for path in expected.keys() - sizes.keys()]
    report.problems += [f'{path}: is not in the manifest' for path in sizes.keys() - expected.keys()]
    report.problems += [f'{path}: has {sizes[path]} bytes, {size} by the manifest' for path, size in expected.items()
                        if path in sizes and sizes[path] > 0 and sizes[path] != size]


def _recount(manifest: dict, report: Report) -> None:
    """Check that the counts and names in the manifest match its list of files, without duplicates."""
    entries, seen = manifest['files'], set()
    for entry in entries:
        own = {entry['name'], entry['image'], entry['mask']}
        if not seen.isdisjoint(own):
            report.problems.append(f'{MANIFEST}: {entry["name"]} is listed twice')
        seen |= own
    names = {split: [entry['name'] for entry in entries if entry['split'] == split] for split in SPLITS}
    listed = {'counts': {split: len(names[split]) for split in SPLITS},
              'names_sha256': {split: names_digest(names[split]) for split in SPLITS if names[split]},
              'empty_masks': {'all splits': sum(entry.get('foreground') == 0 for entry in entries)}}
    for key, right in listed.items():
        written = {'all splits': manifest.get(key)} if key == 'empty_masks' else manifest.get(key)
        written = written if isinstance(written, dict) else {}
        for split in sorted(written.keys() | right.keys()):
            if written.get(split) != right.get(split):
                report.problems.append(f'{MANIFEST}: {key} of {split}: {_shown(written.get(split))}, but '
                                       f'{_shown(right.get(split))} by the files it lists')


def _check_extra(root: Path, manifest: dict, report: Report) -> None:
    """Check the sizes of the additional files, and that the folds match the training images."""
    for name, size in extra_files(manifest).items():
        path = root / name
        if not path.is_file():
            report.problems.append(f'{name}: is in the manifest, but not there')
        elif path.stat().st_size != size:
            report.problems.append(f'{name}: has {path.stat().st_size} bytes, {size} by the manifest')
    if (root / FOLDS).is_file():
        try:
            folds = {name for fold in read_folds(root) for name in fold}
        except UserError as error:
            report.problems.append(f'{FOLDS}: {error}')
            return
        train = {entry['name'] for entry in manifest['files'] if entry['split'] == 'train'}
        report.problems += [f'{FOLDS}: {name} is not of train' for name in folds - train]
        report.problems += [f'{FOLDS}: lacks {name} of train' for name in train - folds]


def _inspect(root: Path, listed: dict[str, str], allowed: set[int], quick: bool, near: bool,
             pair: tuple[str, str]) -> dict[str, Any]:
    """Check one pair."""
    problems, result, size, image = [], {'sha256': None, 'empty': 0, 'turned': [], 'only': None}, None, None
    try:
        if quick:
            with Image.open(root / pair[0]) as image:
                size = upright_size(image)
        else:
            data = _read(root, pair[0], listed, problems)
            result['sha256'] = hashlib.sha256(data).hexdigest()
            image = pixels.decode(data, 'image')
            size = upright_size(image)
            if near:
                result['look'] = difference_hash(image)
    except pixels.PixelError as error:
        problems.append(f'{pair[0]}: {error.kind} ({error.detail})')
    except Exception as error:  # a missing file, or a head that is damaged: each format's reader has its own
        problems.append(f'{pair[0]}: cannot be read ({_line(error)})')
    try:
        mask = pixels.decode(_read(root, pair[1], listed, problems), 'mask')
        if size == mask.size and image is not None and turn(image) is not None and turn(mask) is None:
            result['turned'] = [pair[0]] * (image.size == size)
        if size is not None and upright_size(mask) != size:
            width, height = upright_size(mask)
            problems.append(f'{pair[1]}: size mismatch (mask {width}x{height}, image {size[0]}x{size[1]})')
        values = pixels.grey(mask)
        found = np.flatnonzero(np.bincount(values.ravel(), minlength=256)).tolist()
        result['only'] = found[0] if len(found) == 1 else None
        result['empty'] = int(allowed == {0, 1} and found == [0])
        if not allowed.issuperset(found):
            problems.append(f'{pair[1]}: {_wrong_values(found, allowed)}')
    except pixels.PixelError as error:
        problems.append(f'{pair[1]}: {error.kind} ({error.detail})')
    except OSError as error:
        problems.append(f'{pair[1]}: cannot be read ({_line(error)})')
    return {**result, 'problems': problems}


def _read(root: Path, name: str, listed: dict[str, str], problems: list[str]) -> bytes:
    data = (root / name).read_bytes()
    if name in listed and hashlib.sha256(data).hexdigest() != listed[name]:
        problems.append(f'{name}: its content is not that of the manifest (sha256)')
    return data


def _wrong_values(values: list[int], allowed: set[int]) -> str:
    shown = ', '.join(map(str, values[:6])) + (', ...' if len(values) > 6 else '')
    if allowed != {0, 1}:
        *labels, ignore = sorted(allowed)
        return f'the values {shown}, where 0 to {labels[-1]} and {ignore} ("ignore") are expected'
    if set(values) <= {0, 255}:
        return f'a 0/255 mask (values {shown}); 0 and 1 are expected, and 255 means "ignore" to mmseg'
    return f'the values {shown}, where 0 and 1 are expected'


def difference_hash(image: Image.Image) -> np.ndarray:
    """Perceptual hash of 256 bits: whether each of 16 x 16 cells is brighter than the cell to its left.

    Args:
        image: decoded; its EXIF orientation is applied.

    Returns:
        ``(256,)`` bool.
    """
    small = upright(image).convert('L').resize((HASH_SIDE + 1, HASH_SIDE), Image.Resampling.BOX)
    return np.diff(np.asarray(small).astype(np.int16), axis=1).ravel() > 0


def _duplicates(digests: dict[str, str | None], report: Report) -> None:
    """Report duplicates: in two splits as problems, within one split as a note."""
    same = defaultdict(list)
    for path, digest in digests.items():
        if digest is not None:
            same[digest].append(path)
    within = 0
    for paths in same.values():
        splits = {_split(path) for path in paths}
        if len(splits) > 1:
            report.problems.append(f'{paths[0]}: the same image as {", ".join(paths[1:])}, in another split')
        within += len(paths) - len(splits)
    if within:
        report.notes.append(f'{within} image{" is" if within == 1 else "s are"} there twice in one split')


def _near_duplicates(looks: dict[str, np.ndarray], digests: dict[str, str | None], report: Report) -> None:
    """Report images of different splits that look the same without being the same file."""
    groups = defaultdict(list)
    for path in sorted(looks):
        groups[_split(path)].append(path)
    order = sorted(groups, key=lambda split: (SPLITS.index(split) if split in SPLITS else len(SPLITS), split))
    signs = {split: np.array([looks[path] for path in groups[split]], np.float32) * 2 - 1 for split in order}
    for number, split in enumerate(order):
        for other in order[number + 1:]:
            # Bits that differ, from the scalar product of signs; a strip at a time keeps memory small.
            for start in range(0, len(groups[split]), 512):
                apart = (HASH_SIDE**2 - signs[split][start:start + 512] @ signs[other].T) / 2
                for i, j in np.argwhere(apart <= NEAR_BITS).tolist():
                    a, b = groups[split][start + i], groups[other][j]
                    if digests[a] != digests[b]:
                        report.problems.append(f'{a}: looks like {b}, in another split ({int(apart[i, j])} of '
                                               f'{HASH_SIDE**2} bits differ)')


def summary(report: Report) -> str:
    """Summarise a report in one line."""
    splits: Iterable[str] = sorted(report.counts, key=lambda name: (SPLITS.index(name) if name in SPLITS else 3, name))
    numbers = ', '.join(f'{report.counts[split]} {split}' for split in splits) or 'no'
    found = len(report.problems)
    return f'{numbers} pairs; {found or "no"} problem{"" if found == 1 else "s"}'


def _shown(value: object) -> str:
    return 'none' if value is None or value == '' else str(value)[:12]


def _split(path: str) -> str:
    return path.split('/')[1]


def _key(path: str) -> str:
    """``train/a`` of ``images/train/a.jpg``."""
    return str(PurePosixPath(path.split('/', 1)[1]).with_suffix(''))


def _line(error: BaseException) -> str:
    return (getattr(error, 'strerror', None) or one_line(error) or type(error).__name__)[:120]
