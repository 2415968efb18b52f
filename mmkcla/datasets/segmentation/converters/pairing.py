"""Which mask belongs to which image, for two folders of any names: by the names of the files."""
from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from mmkcla.datasets.segmentation.converters.layout import Pair, Problem
from mmkcla.datasets.segmentation.converters.sources import SourceFile, list_files
from mmkcla.errors import UserError
from mmkcla.utils.images import IMAGE_SUFFIXES
from mmkcla.utils.text import listed, plural

SPLIT_FOLDERS = {'train': 'train', 'training': 'train', 'val': 'val', 'valid': 'val', 'validation': 'val',
                 'test': 'test', 'testing': 'test'}
SEPARATOR = '__'  # in place of "/" in the name of an image in a sub-folder
_DEPTH = 32
_NUMBERED = re.compile(r'[ _.-]\(?\d+\)?|\(\d+\)')


@dataclass
class Pairing:
    """What :func:`pair_folders` found: ``given`` is whether the folders are split already (``Pair.part`` is then the
    split, else ``all``)."""

    pairs: list[Pair]
    given: bool
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Affix:
    """What the names of images and of masks have before and after the part that they share."""

    image: tuple[str, str] = ('', '')
    mask: tuple[str, str] = ('', '')

    def __str__(self) -> str:
        return (f'{self.image[0]}NAME{self.image[1]} is the image of {self.mask[0]}NAME{self.mask[1]}')


@dataclass(frozen=True)
class _Item:
    """A file: its split or '', its folders below that, and its name without suffix."""

    file: SourceFile
    split: str
    folders: tuple[str, ...]
    stem: str


def pair_folders(images: Path, masks: Path, skip: Collection[Path] = (), given: bool | None = None) -> Pairing:
    """Pair the files of two folders by their names without suffix, sub-folders included.

    The name of an image in a sub-folder is its path with ``__`` for ``/``: ``p1/a.jpg`` is ``p1__a``. Names of masks
    may have something before or after the image's (``a_mask.png``): what pairs most is taken, and noted.

    Args:
        images, masks: the folders.
        skip: folders not to search.
        given: whether the first sub-folders are splits (train, val, test); None: if they are, on both sides.

    Raises:
        UserError: a folder is not there or holds no images; nothing pairs; two files would get one name.
    """
    if os.path.realpath(images) == os.path.realpath(masks):
        raise UserError(f'images and masks are both in {images}; put the masks into a folder of their own')
    notes: list[str] = []
    sides = [_list(folder, other, kind, skip, notes) for folder, other, kind in
             ((images, masks, 'images'), (masks, images, 'masks'))]
    split_here = all(_split_already(files) for files in sides)
    if given and not split_here:
        raise UserError(f"split 'given' needs the sub-folders train, val or test in {images} and in {masks}, and no "
                        'images beside them')
    given = split_here if given is None else given
    left, right = ([_item(file, given) for file in files] for files in sides)
    affix, by_path = _how_to_pair(left, right, images, masks)
    if affix != Affix():
        notes.append(f'paired by name: {affix}')
    if not by_path:
        notes.append('paired by name alone: the sub-folders of images and masks differ')
    pairing = Pairing([], given, notes=notes)
    _pair(pairing, left, right, affix, by_path)
    return pairing


def label(file: SourceFile) -> str:
    """The path of a file from the folder that was given, with that folder's name."""
    return '/'.join(file.parts)


def _list(folder: Path, other: Path, kind: str, skip: Collection[Path], notes: list[str]) -> list[SourceFile]:
    if not folder.is_dir():
        raise UserError(f'no folder {folder}: it is to hold the {kind}')
    found = list_files(folder, (), (other, *skip), _DEPTH)
    files = [replace(file, parts=(Path(os.path.realpath(folder)).name, *file.parts)) for file in found
             if PurePosixPath(file.name).suffix.lower() in IMAGE_SUFFIXES]
    if not files:
        others = f'; it has {listed(file.name for file in found)}' if found else ''
        raise UserError(f'no {kind} ({" ".join(IMAGE_SUFFIXES)}) in {folder}{others}')
    if len(files) < len(found):
        others = plural(len(found) - len(files), 'file')
        notes.append(f'{others} in {folder} skipped: not of {" ".join(IMAGE_SUFFIXES)}')
    return files


def _split_already(files: Iterable[SourceFile]) -> bool:
    return all(len(file.parts) > 2 and file.parts[1].casefold() in SPLIT_FOLDERS for file in files)


def _item(file: SourceFile, given: bool) -> _Item:
    below = file.parts[1:-1]
    split = SPLIT_FOLDERS[below[0].casefold()] if given else ''
    return _Item(file, split, below[1:] if given else below, PurePosixPath(file.name).stem)


def _how_to_pair(left: Sequence[_Item], right: Sequence[_Item], images: Path, masks: Path) -> tuple[Affix, bool]:
    """What is beside the shared part of the names, and whether sub-folders count, too."""
    affix = find_affix([item.stem for item in left], [item.stem for item in right])
    by_path, by_name = (len(_unique(left, affix.image, path).keys() & _unique(right, affix.mask, path).keys())
                        for path in (True, False))
    if not max(by_path, by_name):
        guess = f' (tried: {affix})' if affix != Affix() else ''
        raise UserError(f'no image of {images} has a mask of its name in {masks}: images '
                        f'{listed(item.file.name for item in left)}; masks {listed(item.file.name for item in right)}'
                        f'{guess}. Names must be equal, or differ by one text before or after them (a.jpg, a_mask.png)')
    return affix, by_path >= by_name


def find_affix(images: Sequence[str], masks: Sequence[str]) -> Affix:
    """What to take off the names so that most pair: nothing, a text of the masks, or of both sides.

    Such a text has a letter (``_mask``; not ``_1``).

    Args:
        images, masks: names without suffix.
    """
    known, votes = set(images), Counter()
    votes['', ''] = len(known & set(masks))
    for name in set(masks):
        for cut in range(1, len(name)):
            start, end = name[:cut], name[cut:]
            if start in known and re.search(r'[^\W\d_]', end):
                votes['', end] += 1
            if end in known and re.search(r'[^\W\d_]', start):
                votes[start, ''] += 1
    best = min(votes, key=lambda affix: (-votes[affix], len(affix[0] + affix[1]), affix))
    if votes[best]:
        return Affix(mask=best)
    common = Affix(_common(images), _common(masks))
    left, right = ({_strip(name, affix) for name in names} for names, affix in
                   ((images, common.image), (masks, common.mask)))
    # A guess of both sides must explain one of them completely.
    return common if None not in left | right and (left <= right or right <= left) else Affix()


def _common(names: Sequence[str]) -> tuple[str, str]:
    """The text before and after the part of the names that differs, without digits at its inner ends."""
    before = os.path.commonprefix(list(names)).rstrip('0123456789')
    rest = [name[len(before):] for name in names]
    after = os.path.commonprefix([name[::-1] for name in rest])[::-1].lstrip('0123456789')
    return before, after


def _strip(name: str, affix: tuple[str, str]) -> str | None:
    """The name without the affix; None if it has not that, or nothing is left."""
    before, after = affix
    if len(name) <= len(before) + len(after) or not (name.startswith(before) and name.endswith(after)):
        return None
    return name[len(before):len(name) - len(after)]


def _key(item: _Item, affix: tuple[str, str], by_path: bool) -> tuple[str, ...] | None:
    shared = _strip(item.stem, affix)
    return None if shared is None else (item.split, *(item.folders if by_path else ()), shared)


def _unique(items: Iterable[_Item], affix: tuple[str, str], by_path: bool) -> dict[tuple[str, ...], _Item]:
    groups = _by_key(items, affix, by_path)
    return {key: found[0] for key, found in groups.items() if key is not None and len(found) == 1}


def _by_key(items: Iterable[_Item], affix: tuple[str, str], by_path: bool) -> dict[tuple | None, list[_Item]]:
    groups = defaultdict(list)
    for item in items:
        groups[_key(item, affix, by_path)].append(item)
    return groups


def _pair(pairing: Pairing, left: Sequence[_Item], right: Sequence[_Item], affix: Affix, by_path: bool) -> None:
    """Fill in pairs and problems."""
    images, masks = _by_key(left, affix.image, by_path), _by_key(right, affix.mask, by_path)
    lone_masks = masks.pop(None, [])
    for item in images.pop(None, []):
        pairing.problems.append(Problem('image without mask', label(item.file)))
    further = _further_masks(lone_masks + [item for key in masks.keys() - images.keys() for item in masks[key]], affix,
                             by_path, images.keys() & masks.keys())
    for groups in (images, masks):
        for found in groups.values():
            if len(found) > 1:
                pairing.problems += [Problem('name twice', label(item.file), f'{len(found)} files of this name')
                                     for item in found]
    matched = []
    for key in sorted(images.keys() & masks.keys()):
        if len(images[key]) == len(masks[key]) == 1:
            if key in further:
                pairing.problems.append(Problem('several masks of one image', label(images[key][0].file),
                                                ', '.join(label(item.file) for item in further[key])))
            else:
                matched.append((images[key][0], masks[key][0]))
    used = {item.file for items in further.values() for item in items}
    lone_masks += [item for key in masks.keys() - images.keys() for item in masks[key]]
    pairing.problems += [Problem('image without mask', label(item.file))
                         for key in images.keys() - masks.keys() if len(images[key]) == 1 for item in images[key]]
    pairing.problems += [Problem('mask without image', label(item.file)) for item in lone_masks
                         if item.file not in used]
    pairing.pairs = _named(matched, pairing)


def _further_masks(lone: Iterable[_Item], affix: Affix, by_path: bool, paired: Collection[tuple[str, ...]]) -> dict[
        tuple[str, ...], list[_Item]]:
    """Masks that look like a second one of an image (``a_mask_1`` beside ``a_mask``), by that image's key."""
    result = defaultdict(list)
    for item in lone:
        for cut in range(1, len(item.stem)):
            key = _key(replace(item, stem=item.stem[:cut]), affix.mask, by_path)
            if key in paired and _NUMBERED.fullmatch(item.stem[cut:]):
                result[key].append(item)
                break
    return result


def _named(matched: Sequence[tuple[_Item, _Item]], pairing: Pairing) -> list[Pair]:
    """The pairs with their names, which are unique: with the split in front, where splits share names."""
    names = [SEPARATOR.join((*image.folders, image.stem)) for image, _ in matched]
    if any(image.folders for image, _ in matched):
        pairing.notes.append(f'images in sub-folders are named by their path, with {SEPARATOR} for /')
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated and pairing.given:
        pairing.notes.append(f'{plural(len(repeated), "name")} in more than one split (as {repeated[0]}): all names '
                             f'begin with their split ({matched[0][0].split}{SEPARATOR}{names[0]})')
        names = [f'{image.split}{SEPARATOR}{name}' for name, (image, _) in zip(names, matched, strict=True)]
    first: dict[str, _Item] = {}
    for name, (image, _) in zip(names, matched, strict=True):
        if (other := first.setdefault(name, image)) is not image:
            raise UserError(f'{label(other.file)} and {label(image.file)} would both be named {name}; rename one')
    return [Pair(name, image.split or 'all', image.file, mask.file)
            for name, (image, mask) in sorted(zip(names, matched, strict=True), key=lambda entry: entry[0])]
