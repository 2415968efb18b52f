"""Which image is for training, validation and testing: drawn by a seed, or read from a file."""
from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from itertools import accumulate
from pathlib import Path

from mmkcla.errors import UserError
from mmkcla.utils.files import parse_json
from mmkcla.utils.images import IMAGE_SUFFIXES

from ....utils.text import one_line

SPLITS = ('train', 'val', 'test')
# Sizes of the legacy 7:3 protocol where they are not the rounded ones: 70 % of 2,150 (ISIC 2017) are 1,505.
_LEGACY = {((7, 3), 2150): (1500, 650)}


def parse_ratio(text: str) -> tuple[int, ...]:
    """``'7:3'`` to ``(7, 3)`` (train, test), ``'8:1:1'`` to ``(8, 1, 1)`` (train, val, test).

    Raises:
        UserError: it is not of two or three positive whole numbers.
    """
    if not re.fullmatch(r'\d+:\d+(:\d+)?', text, re.ASCII) or 0 in (ratio := tuple(map(int, text.split(':')))):
        raise UserError(f"split {text!r}: must be like 7:3 (train and test) or 8:1:1 (train, val and test)")
    return ratio


def split_sizes(total: int, ratio: tuple[int, ...]) -> tuple[int, ...]:
    """How many images each part gets; 7:3 of 1000, 2150 and 2694 are the published 700/300, 1500/650 and 1886/808.

    Raises:
        UserError: a part would be empty.
    """
    if (ratio, total) in _LEGACY:
        return _LEGACY[ratio, total]
    ends = [(2 * total * share + sum(ratio)) // (2 * sum(ratio)) for share in accumulate(ratio)]  # halves round up
    sizes = tuple(end - start for start, end in zip([0, *ends], ends))  # noqa: B905 (one start too many)
    if 0 in sizes:
        raise UserError(f'{total} image{"s" * (total != 1)} cannot be split {":".join(map(str, ratio))}: a part would '
                        'be empty')
    return sizes


def draw_split(names: Collection[str], ratio: tuple[int, ...], seed: int) -> dict[str, str]:
    """Assign each name to a split by chance: two parts are train and test (no val), three train, val and test.

    The order is that of ``sha256('seed:name')``. It depends on nothing but the seed and the names: not on the order
    of a folder, nor on the version of a random generator, and a name left out does not move the others' places.

    Args:
        names: no name twice.
        ratio: of :func:`parse_ratio`.
        seed: 0 or more.

    Returns:
        The split of each name.
    """
    order = sorted(names, key=lambda name: hashlib.sha256(f'{seed}:{name}'.encode()).digest())
    result, start = {}, 0
    for split, size in zip(SPLITS if len(ratio) == 3 else ('train', 'test'), split_sizes(len(order), ratio),
                           strict=True):
        result.update(dict.fromkeys(order[start:start + size], split))
        start += size
    return result


def read_split_file(path: str | os.PathLike, folders: bool = False, train: bool = True) -> dict[str, str]:
    """Read which name is in which split. A name may have the suffix of an image (``a.jpg``), which is taken off.

    Args:
        path: lines of ``split``, white space and name (empty lines and ``#`` lines are left out); or a ``.json``
            file ``{"train": [...], "val": [...], "test": [...]}``; or a folder with ``train.txt``, ``val.txt``,
            ``test.txt``, a name a line. Val or test may be missing.
        folders: keep the folders of a name (``p1/a.jpg`` is ``p1/a``, else ``a``).
        train: whether there must be names for training.

    Raises:
        UserError: it cannot be read, an unknown split, a name or a split of JSON in two places, nothing for
            training; with the line.
    """
    path, result, places = Path(path), {}, {}
    for place, split, name in _entries(path):
        if split not in SPLITS:
            raise UserError(f'{place}: unknown split {split!r}; there are {", ".join(SPLITS)}')
        name = image_stem(name) if folders else image_stem(name).rpartition('/')[2]
        if name in result:
            raise UserError(f'{place}: {name} is there twice (before: {places[name]})')
        result[name], places[name] = split, place
    if train and 'train' not in result.values():
        raise UserError(f'{path} names no image for train')
    if not result:
        raise UserError(f'{path} names no image')
    return result


def names_digest(names: Iterable[str]) -> str:
    """Order-independent sha256 of a list of names, to compare splits."""
    return hashlib.sha256(''.join(f'{name}\n' for name in sorted(names)).encode()).hexdigest()


def _entries(path: Path) -> Iterator[tuple[str, str, str]]:
    """``(place, split, name)`` of all entries, as they stand there."""
    try:
        if path.is_dir():
            lists = [path / f'{split}.txt' for split in SPLITS]
            for file in filter(Path.is_file, lists):
                for number, line in _lines(file):
                    yield f'{file}, line {number}', file.stem, line
        elif path.suffix.lower() == '.json':
            content = parse_json(path.read_text(encoding='utf-8-sig'), object_pairs_hook=partial(_without_twins, path))
            if not isinstance(content, dict) or not all(
                    isinstance(names, list) and all(isinstance(name, str) for name in names)
                    for names in content.values()):
                raise UserError(f'{path}: must be {{"train": [names], "val": [names], "test": [names]}}')
            for split, names in content.items():
                for number, name in enumerate(names, start=1):
                    yield f'{path}, {split} {number}', split, name
        else:
            for number, line in _lines(path):
                fields = line.split(maxsplit=1)
                if len(fields) != 2:
                    raise UserError(f'{path}, line {number}: {line[:80]!r} is not a split and a name (train a)')
                yield f'{path}, line {number}', *fields
    except OSError as error:
        raise UserError(f'cannot read {path}: {error.strerror or error}') from None
    except ValueError as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f'cannot read {path}: {one_line(error)}') from None


def _without_twins(path: Path, pairs: list[tuple[str, object]]) -> dict[str, object]:
    """A JSON object; of a key that is there twice Python would take the last and say nothing."""
    for key, count in Counter(key for key, _ in pairs).items():
        if count > 1:
            raise UserError(f'{path}: "{key}" is there {"twice" if count == 2 else f"{count} times"}; put its names '
                            'into one list')
    return dict(pairs)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(path.read_text(encoding='utf-8-sig').splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith('#'):
            yield number, line.strip()


def image_stem(name: str) -> str:
    """``p1/a`` of ``p1/a.jpg`` or ``p1\\a.jpg``; other dots are part of the name."""
    name = name.replace('\\', '/')
    stem, dot, suffix = name.rpartition('.')
    return stem if f'{dot}{suffix}'.lower() in IMAGE_SUFFIXES else name
