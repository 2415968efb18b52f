"""The classes of a data set, from names, a number, or a palette of colours."""
from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from mmkcla.datasets.segmentation.converters.mask_rules import IGNORE, BinaryMasks, LabelMasks, MaskRule
from mmkcla.errors import UserError
from mmkcla.utils.files import parse_json
from mmkcla.utils.text import is_printable, listed, one_line

IGNORED = 'ignore'  # a palette's name for pixels that do not count
Palette = Mapping[str, str | Sequence[int]] | Iterable[tuple[str, str | Sequence[int]]]


def choose_rule(threshold: int | None = None, classes: str | Sequence[str] | None = None,
                palette: str | os.PathLike | Palette | None = None, num_classes: int | None = None) -> MaskRule:
    """How masks are read: with two classes (the default), or with labels if ``palette``, ``num_classes`` or more than
    two ``classes`` are given.

    Raises:
        UserError: the arguments contradict each other or are out of range.
    """
    if threshold is not None and not 0 <= threshold <= 254:
        raise UserError(f'threshold {threshold}: must be from 0 to 254; foreground is what is above')
    names = None if classes is None else _names(classes)
    if palette is not None:
        if names is not None:
            raise UserError('give classes or a palette, not both: a palette names the classes')
        names, colours = _palette(palette)
    else:
        colours = None
    if num_classes is not None:
        if not 2 <= num_classes <= IGNORE:
            raise UserError(f'num_classes {num_classes}: must be from 2 to {IGNORE}')
        names = names or tuple(f'class_{number}' for number in range(num_classes))
        if len(names) != num_classes:
            raise UserError(f'num_classes {num_classes}, but {len(names)} classes are named: {listed(names, 10)}')
    if colours is None and num_classes is None and (names is None or len(names) == 2):
        return BinaryMasks(threshold, names or BinaryMasks.classes)
    if threshold is not None:
        raise UserError(f'threshold {threshold} is for masks of two classes; labels of {len(names)} classes are read '
                        'as they are')
    return LabelMasks(names, colours)


def _names(classes: str | Sequence[str]) -> tuple[str, ...]:
    names = tuple(name.strip() for name in (classes.split(',') if isinstance(classes, str) else classes))
    return _checked(names, 'classes')


def _checked(names: tuple[str, ...], what: str) -> tuple[str, ...]:
    if not all(names):
        raise UserError(f'{what}: a name is empty')
    if odd := [repr(name) for name in names if not is_printable(name)]:
        raise UserError(f'{what}: {listed(odd)} has control characters; rename the class')
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(f'{what}: {listed(repeated)} is named more than once')
    if not 2 <= len(names) <= IGNORE:
        raise UserError(f'{what}: {len(names)} named ({listed(names)}); there must be from 2 to {IGNORE}, and the '
                        'background is one of them')
    return names


def _palette(palette: str | os.PathLike | Palette) -> tuple[tuple[str, ...], dict[int, int]]:
    """The names of the classes in order, and the label of each colour."""
    if isinstance(palette, (str, os.PathLike)):
        where = str(palette)
        entries = _read_palette(Path(palette))
    else:
        where, entries = 'palette', list(palette.items() if isinstance(palette, Mapping) else palette)
    names = _checked(tuple(name for name, _ in entries if name != IGNORED), where)
    labels = {**{name: number for number, name in enumerate(names)}, IGNORED: IGNORE}
    colours: dict[int, int] = {}
    for name, text in entries:
        colour = _colour(text, f'{where}: {name}')
        if colour in colours:
            raise UserError(f'{where}: the colour #{colour:06x} is there twice')
        colours[colour] = labels[name]
    return names, colours


def _read_palette(path: Path) -> list[tuple[str, object]]:
    try:
        text = path.read_text(encoding='utf-8-sig')
    except (OSError, ValueError) as error:
        reason = getattr(error, 'strerror', None) or one_line(error)
        raise UserError(f'cannot read the palette {path}: {reason}') from None
    if path.suffix.lower() == '.json':
        try:
            content = parse_json(text)
        except ValueError as error:
            raise UserError(f'cannot read the palette {path}: {one_line(error)}') from None
        if not isinstance(content, dict):
            raise UserError(f'{path}: must be {{"name": "#rrggbb", ...}}')
        return list(content.items())
    entries = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith('#'):
            continue
        name, comma, colour = line.rpartition(',')
        if not comma or not name.strip():
            raise UserError(f'{path}, line {number}: {line[:80]!r} is not "name,#rrggbb"')
        entries.append((name.strip(), colour.strip()))
    return entries


def _colour(value: object, where: str) -> int:
    """``'#rrggbb'`` or ``[r, g, b]`` as ``0xrrggbb``."""
    if isinstance(value, str) and (found := re.fullmatch('#?([0-9a-fA-F]{6})', value.strip())):
        return int(found[1], 16)
    if (isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 3
            and all(isinstance(part, int) and 0 <= part <= 255 for part in value)):
        return value[0] << 16 | value[1] << 8 | value[2]
    raise UserError(f'{where}: {value!r} is not a colour (#rrggbb, or three numbers from 0 to 255)')
