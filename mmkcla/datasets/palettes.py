"""Colours of the classes: complete a palette that does not fit the classes, so that pictures can be drawn."""
from __future__ import annotations

import colorsys
from collections.abc import Sequence
from typing import Any

from ..utils.text import note, plural
from .check import datasets_of

COLOURS = ((220, 20, 60), (0, 130, 200), (60, 180, 75), (255, 225, 25), (145, 30, 180), (245, 130, 48),
           (70, 240, 240), (240, 50, 230), (128, 128, 0), (0, 0, 128))
_GOLDEN = 0.618033988749895  # steps of the hue by the golden ratio stay apart, however many there are


def filled(palette: Sequence[Sequence[int]], number: int) -> list[tuple[int, int, int]]:
    """The first ``number`` colours of a palette, completed with colours that are not in it; always the same ones."""
    colours = [tuple(map(int, colour)) for colour in palette[:number]] if all(map(_is_colour, palette)) else []
    used = set(colours)
    step = 0
    while len(colours) < number:
        if step < len(COLOURS):
            colour = COLOURS[step]
        else:
            turn = step * _GOLDEN % 1
            colour = tuple(round(255 * part) for part in colorsys.hsv_to_rgb(turn, 0.5 + step % 4 / 8, 0.95))
        if colour not in used or step > 10 * number + 1000:  # the colours of 8 bits are finite
            used.add(colour)
            colours.append(colour)
        step += 1
    return colours


def fit_palettes(config: Any, splits: Sequence[str] = ('train', 'val', 'test')) -> None:
    """Make the palette of each dataset in a config fit its classes, with a note; the hosts must be imported.

    mmseg refuses a palette of another length, and mmdet cannot draw with a shorter one or with colours that are lists.
    """
    said = set()
    for split in splits:
        for dataset in datasets_of(config, split):
            metainfo = dataset.config.get('metainfo') or {}
            classes = metainfo.get('classes') or dataset.default_classes
            stated = metainfo.get('palette')
            palette = stated or getattr(dataset.kind, 'METAINFO', {}).get('palette')
            if (not classes or isinstance(classes, str) or not palette or isinstance(palette, str)
                    or not all(_is_colour(colour) for colour in palette)):
                continue
            if stated is None and len(palette) >= len(classes):
                continue  # the host takes what it needs of the palette of the data set class
            new = filled(palette, len(classes))
            if len(palette) != len(classes) and (line := _difference(len(palette), len(classes))) not in said:
                said.add(line)
                note(f'{dataset.where}.metainfo.palette has {line}')
            if list(palette) != new:
                dataset.config['metainfo'] = dict(metainfo, palette=new)


def _difference(colours: int, classes: int) -> str:
    rest = 'the missing ones are added' if colours < classes else 'the last ones are not used'
    return f'{plural(colours, "colour")} for {plural(classes, "class")}; {rest}'


def _is_colour(colour: Any) -> bool:
    return isinstance(colour, (list, tuple)) and len(colour) == 3 and all(isinstance(part, (int, float))
                                                                          for part in colour)
