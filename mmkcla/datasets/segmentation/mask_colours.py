"""Compare the palettes of mask files: the same index should have the same colour in all of them."""
from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from ...utils.parallel import run_parallel
from ...utils.text import plural
from ..findings import Finding

MOST_READ = 50  # masks of the training set that the others are compared with

Palette = Mapping[int, tuple[int, int, int]]  # colours of the indices that a mask contains


def palette_of(picture: Image.Image, used: Iterable[int]) -> Palette:
    """Colours of the indices ``used`` of a palette image; empty for other images."""
    if picture.mode != 'P':
        return {}
    colours = picture.getpalette() or []
    return {index: tuple(colours[3 * index:3 * index + 3]) for index in used if 3 * index + 2 < len(colours)}


def read_palettes(paths: Sequence[str]) -> list[Palette]:
    """Read the palettes of at most :data:`MOST_READ` masks, evenly spread; empty for damaged files."""
    if not paths:
        return []
    places = np.unique(np.linspace(0, len(paths) - 1, MOST_READ).round().astype(int)).tolist()
    return run_parallel(_read, [paths[place] for place in places], None, False)


def _read(path: str) -> Palette:
    try:
        with Image.open(io.BytesIO(Path(path).read_bytes())) as picture:
            return palette_of(picture, np.unique(np.asarray(picture)).tolist()) if picture.mode == 'P' else {}
    except Exception:  # damaged: the check of its own set reports it
        return {}


def usual_colours(palettes: Iterable[Palette]) -> dict[int, tuple[int, int, int]]:
    """The most frequent colour of each index."""
    counts: dict[int, Counter] = {}
    for palette in palettes:
        for index, colour in palette.items():
            counts.setdefault(index, Counter())[colour] += 1
    return {index: found.most_common(1)[0][0] for index, found in counts.items()}


def palette_findings(masks: Sequence[tuple[str, Palette]], usual: Palette, where: str, classes: Sequence[str] | None,
                     ignored: set[int]) -> list[Finding]:
    """Find masks in which an index has another colour than usual.

    Args:
        masks: path and palette of each mask.
        usual: colours to compare with.
        where: whose colours these are, for the message.
        classes: names of the classes; None: unknown.
        ignored: labels that are left out.
    """
    places = []
    for path, palette in masks:
        other = [index for index, colour in palette.items()
                 if index not in ignored and usual.get(index, colour) != colour]
        if other:
            name = f' ({classes[other[0]]})' if classes and other[0] < len(classes) else ''
            places.append(f'{path} (label {other[0]}{name}: {_hex(palette[other[0]])} instead of '
                          f'{_hex(usual[other[0]])})')
    if not places:
        return []
    return [Finding(f'{len(places)} of {plural(len(masks), "mask")} whose palette has another colour for a label than '
                    f'{where}, so that the label may be another class', False, len(places), places)]


def _hex(colour: tuple[int, int, int]) -> str:
    return '#' + ''.join(f'{part:02x}' for part in colour)
