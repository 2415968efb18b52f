"""Groups of images that must stay together (patients, slides), splits that keep them so, and folds."""
from __future__ import annotations

import csv
import hashlib
import os
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from mmkcla.datasets.segmentation.converters.pairing import SEPARATOR
from mmkcla.datasets.segmentation.converters.splits import SPLITS, image_stem, split_sizes
from mmkcla.errors import UserError
from mmkcla.utils.text import listed, one_line, plural


class Names:
    """Find the name of a pair from user input: a path or a file name, with or without suffix."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = set(names)
        self._last = defaultdict(list)
        for name in names:
            self._last[name.rpartition(SEPARATOR)[2]].append(name)

    def find(self, text: str) -> str | None:
        """The name, or None if there is none or more than one."""
        parts = [part for part in image_stem(text).split('/') if part not in ('', '.')]
        for start in range(len(parts)):
            if (name := SEPARATOR.join(parts[start:])) in self._names:
                return name
        found = self._last.get(parts[-1], ()) if parts else ()
        return found[0] if len(found) == 1 else None


def find_groups(groups: str | os.PathLike, names: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The group of each name, and notes.

    Args:
        groups: a regular expression with one capturing group, searched in the names; or a file with a name and its
            group in each line, separated by a comma, a tab or blanks (a first line ``name,group`` is skipped).
        names: of the pairs.

    Raises:
        UserError: the expression or the file is wrong, or a name has no group.
    """
    path = Path(groups)
    if path.is_file():
        return _groups_of_file(path, names)
    if path.suffix.lower() in ('.csv', '.tsv', '.txt'):
        raise UserError(f'no file of groups {path}')
    try:
        pattern = re.compile(str(groups))
    except re.error as error:
        raise UserError(f'groups {str(groups)!r} is neither a file nor a regular expression: {error}') from None
    if pattern.groups != 1:
        raise UserError(f'groups {str(groups)!r} has {pattern.groups} capturing groups in place of one, as in '
                        r"'^(\d+)_'")
    found = {name: match[1] for name in names if (match := pattern.search(name)) and match[1]}
    if lost := [name for name in names if name not in found]:
        raise UserError(f'groups {str(groups)!r} does not match {len(lost)} of {len(names)} names: {listed(lost)}')
    return found, []


def _groups_of_file(path: Path, names: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    known, result, unused = Names(names), {}, 0
    for number, (written, group) in _rows(path):
        name = known.find(written)
        if name is None:
            unused += 1
        elif result.setdefault(name, group) != group:
            raise UserError(f'{path}, line {number}: {written} is in the groups {result[name]} and {group}')
    if lost := [name for name in names if name not in result]:
        raise UserError(f'{path} has no group for {len(lost)} of {len(names)} names: {listed(lost)}')
    return result, [f'{plural(unused, "line")} of {path.name} name no image here'] if unused else []


def _rows(path: Path) -> Iterable[tuple[int, tuple[str, str]]]:
    try:
        lines = path.read_text(encoding='utf-8-sig').splitlines()
    except (OSError, ValueError) as error:
        raise UserError(f'cannot read {path}: {getattr(error, "strerror", None) or one_line(error)}') from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        separator = next((mark for mark in (',', ';', '\t') if mark in line), None)
        fields = next(csv.reader([line], delimiter=separator)) if separator else line.split()
        fields = [entry.strip() for entry in fields]
        if number == 1 and [entry.casefold() for entry in fields] == ['name', 'group']:
            continue
        if len(fields) != 2 or not all(fields):
            raise UserError(f'{path}, line {number}: {line[:80]!r} is not a name and its group (a.jpg,patient1)')
        yield number, (fields[0], fields[1])


def draw_grouped(groups: Mapping[str, str], ratio: tuple[int, ...], seed: int) -> dict[str, str]:
    """Assign names to splits so that no group is in two, with numbers of images close to the ratio.

    Groups come in the order of ``sha256('seed:group')``; each goes to the split that lacks most images.

    Args:
        groups: the group of each name.
        ratio: of two parts (train, test) or three (train, val, test).
        seed: 0 or more.

    Returns:
        The split of each name.

    Raises:
        UserError: there are fewer groups than splits.
    """
    splits = SPLITS if len(ratio) == 3 else ('train', 'test')
    sizes = Counter(groups.values())
    if len(sizes) < len(splits):
        raise UserError(f'{plural(len(sizes), "group")} ({listed(sorted(sizes))}) cannot be split into '
                        f'{len(splits)} ({", ".join(splits)}) without dividing one')
    lacking = dict(zip(splits, split_sizes(len(groups), ratio), strict=True))
    chosen: dict[str, str] = {}
    order = _drawn(sizes, seed)
    for number, group in enumerate(order):
        empty = [split for split in splits if split not in chosen.values()]
        candidates = empty if len(order) - number <= len(empty) else splits
        split = max(candidates, key=lambda split: lacking[split])
        chosen[group] = split
        lacking[split] -= sizes[group]
    return {name: chosen[group] for name, group in groups.items()}


def refuse_crossing(groups: Mapping[str, str], splits: Mapping[str, str]) -> None:
    """Raise a :class:`UserError` if a group is in two splits."""
    first: dict[str, str] = {}
    for name, group in groups.items():
        if name in splits and (other := first.setdefault(group, splits[name])) != splits[name]:
            raise UserError(f'the group {group} is in {other} and in {splits[name]} (as {name})')


def draw_folds(names: Sequence[str], count: int, seed: int, groups: Mapping[str, str] | None = None,
               same: Iterable[Collection[str]] = ()) -> list[list[str]]:
    """Divide names into folds of about equal size; a group, and images that are the same, are in one fold.

    Groups (or names) come in the order of ``sha256('seed:group')``; each goes to the fold with the fewest images.

    Args:
        names: no name twice.
        count: how many folds, 2 or more.
        seed: 0 or more.
        groups: the group of each name; None: each name is one.
        same: sets of names that must not be separated, too.

    Returns:
        The names of each fold, sorted.

    Raises:
        UserError: there are fewer groups than folds.
    """
    merged = {name: groups[name] if groups else name for name in names}
    for together in same:
        first, *others = sorted({merged[name] for name in together})
        if others:
            merged = {name: first if group in others else group for name, group in merged.items()}
    sizes = Counter(merged.values())
    if count < 2 or len(sizes) < count:
        raise UserError(f'{count} folds: must be from 2 to the number of {"groups" if groups else "images"}, '
                        f'{len(sizes)}')
    chosen, filled = {}, [0] * count
    for group in _drawn(sizes, seed):
        fold = filled.index(min(filled))
        chosen[group] = fold
        filled[fold] += sizes[group]
    return [sorted(name for name in names if chosen[merged[name]] == fold) for fold in range(count)]


def _drawn(groups: Iterable[str], seed: int) -> list[str]:
    return sorted(groups, key=lambda group: hashlib.sha256(f'{seed}:{group}'.encode()).digest())
