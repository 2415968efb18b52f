"""The picture sheet: samples with their labels drawn, so that one sees whether the labels fit."""
from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from ..utils.files import whole_file
from ..utils.images import as_loaded

SAMPLES = 12
CROWD = -1  # label of a box that stands for many objects; drawn grey
UNKNOWN = -2  # label of a box without a known class; drawn white
_UNLABELLED = {CROWD: 'crowd (ignored)', UNKNOWN: 'unknown category'}
_COLUMNS, _CELL, _CAPTION, _GAP = 4, 320, 24, 8
_COLOURS = [(255, 160, 0), (0, 170, 255), (240, 60, 90), (60, 200, 90), (190, 110, 255), (0, 200, 190), (255, 225, 60),
            (255, 120, 200), (150, 190, 60), (120, 140, 255)]


@dataclass
class Sample:
    """One picture of the sheet.

    Attributes:
        path: the image.
        caption: below it.
        boxes: ``(x, y, width, height, label)`` in pixels of the upright image.
        polygons: ``([x, y, x, y, …], label)``, likewise.
        mask: ``(H, W)`` labels, 0 for what is not painted.
    """

    path: Path
    caption: str
    boxes: list[tuple[float, float, float, float, int]] = field(default_factory=list)
    polygons: list[tuple[list[float], int]] = field(default_factory=list)
    mask: np.ndarray | None = None


def spread_out(groups: Sequence[Sequence[int]], most: int = SAMPLES) -> list[int]:
    """Choose at most ``most`` items, from the groups in turn and evenly over the order within each.

    Args:
        groups: items of each class, in an order such as that of size; an item may be in several groups.
        most: how many to choose.
    """
    count = max(1, -(-most // max(1, len(groups))))
    queues = []
    for group in groups:
        places = np.linspace(0, len(group) - 1, min(len(group), max(count, 2))).round().astype(int)
        evenly = [group[place] for place in dict.fromkeys(places.tolist())]
        queues.append(evenly + [item for item in group if item not in set(evenly)])
    chosen: dict[int, None] = {}
    while len(chosen) < most and any(queues):
        for queue in queues:
            while queue and queue[0] in chosen:
                queue.pop(0)
            if queue and len(chosen) < most:
                chosen[queue.pop(0)] = None
    return list(chosen)


def draw_sheet(path: Path | BinaryIO, samples: Sequence[Sample], classes: Sequence[str], foreground: int = 0) -> None:
    """Draw the samples in rows of four and write them as PNG, with a legend of the classes that occur.

    Args:
        path: file to write, or an open binary file.
        samples: at most a dozen is readable.
        classes: names by label.
        foreground: the first label that is drawn: 1 where label 0 is the background.
    """
    columns = max(1, min(_COLUMNS, len(samples)))
    rows = -(-len(samples) // columns)
    labels = sorted({box[4] for sample in samples for box in sample.boxes}
                    | {label for sample in samples for _, label in sample.polygons}
                    | {int(label) for sample in samples if sample.mask is not None for label in np.unique(sample.mask)
                       if label >= foreground})
    width = columns * (_CELL + _GAP) + _GAP
    legend = _legend(labels, classes, width)
    sheet = Image.new('RGB', (width, rows * (_CELL + _CAPTION + _GAP) + _GAP + legend.height), 'white')
    for number, sample in enumerate(samples):
        left = _GAP + number % columns * (_CELL + _GAP)
        top = _GAP + number // columns * (_CELL + _CAPTION + _GAP)
        sheet.paste(_cell(sample, classes, foreground), (left, top))
    sheet.paste(legend, (0, sheet.height - legend.height))
    with whole_file(path) if isinstance(path, Path) else contextlib.nullcontext(path) as file:
        sheet.save(file, format='PNG')


def _cell(sample: Sample, classes: Sequence[str], foreground: int) -> Image.Image:
    picture = as_loaded(sample.path, stretch=True)
    scale = _CELL / max(picture.size)
    size = tuple(max(1, round(side * scale)) for side in picture.size)
    picture = picture.resize(size, Image.Resampling.LANCZOS if scale < 1 else Image.Resampling.NEAREST)
    if sample.mask is not None:
        picture = _painted(picture, sample.mask, foreground)
    picture = _outlined(picture, sample, scale)
    cell = Image.new('RGB', (_CELL, _CELL + _CAPTION), (235, 235, 235))
    corner = ((_CELL - size[0]) // 2, (_CELL - size[1]) // 2)
    cell.paste(picture, corner)
    draw = ImageDraw.Draw(cell)
    _tags(draw, sample, classes, scale, corner)
    draw.rectangle((0, _CELL, _CELL, _CELL + _CAPTION), fill='white')
    draw.text((2, _CELL + 4), _fitted(draw, sample.caption, _CELL - 4), fill=(40, 40, 40), font=font(13))
    return cell


def _outlined(picture: Image.Image, sample: Sample, scale: float) -> Image.Image:
    """Polygons filled lightly, boxes as lines: dark below, so that they show on any ground."""
    layer = Image.new('RGBA', picture.size, (0, 0, 0, 0))
    draw = ImageDraw.Draw(layer)
    for points, label in sample.polygons:
        if len(points) >= 6:
            scaled = [value * scale for value in points]
            draw.polygon(scaled, fill=(*colour(label), 90), outline=(*colour(label), 255), width=2)
    for x, y, width, height, label in sample.boxes:
        corners = [x * scale, y * scale, max(x + width, x) * scale, max(y + height, y) * scale]
        draw.rectangle(corners, outline=(0, 0, 0, 160), width=4)
        draw.rectangle([corners[0] + 1, corners[1] + 1, *(max(low + 1, high - 1) for low, high in zip(
            corners[:2], corners[2:], strict=True))], outline=(*colour(label), 255), width=2)
    return Image.alpha_composite(picture.convert('RGBA'), layer).convert('RGB')


def _painted(picture: Image.Image, mask: np.ndarray, foreground: int) -> Image.Image:
    """The mask over the picture, each label in its colour, with an outline."""
    labels = np.asarray(Image.fromarray(mask.astype(np.uint8)).resize(picture.size, Image.Resampling.NEAREST))
    pixels = np.asarray(picture).astype(np.float64)
    edge = np.zeros(labels.shape, bool)
    edge[1:] |= labels[1:] != labels[:-1]
    edge[:, 1:] |= labels[:, 1:] != labels[:, :-1]
    edge[:-1] |= edge[1:]
    edge[:, :-1] |= edge[:, 1:]
    for label in np.unique(labels):
        if label >= foreground and label != 255:
            inside = labels == label
            pixels[inside] = 0.65 * pixels[inside] + 0.35 * np.array(colour(int(label)))
            pixels[inside & edge] = colour(int(label))
    return Image.fromarray(pixels.round().astype(np.uint8))


def _tags(draw: ImageDraw.ImageDraw, sample: Sample, classes: Sequence[str], scale: float,
          corner: tuple[int, int]) -> None:
    """Class names at the boxes, where there are few and several classes; else the legend's colours suffice."""
    if len(sample.boxes) > 12 or len(classes) < 2:
        return
    for x, y, _, _, label in sample.boxes:
        if label < 0:
            continue
        text = _fitted(draw, classes[label], 110, 11)
        left, top = corner[0] + x * scale, max(0, corner[1] + y * scale - 14)
        draw.rectangle((left, top, left + draw.textlength(text, font(11)) + 4, top + 14), fill=colour(label))
        draw.text((left + 2, top), text, fill='black', font=font(11))


def _legend(labels: Sequence[int], classes: Sequence[str], width: int) -> Image.Image:
    places, x, y = [], _GAP, 2
    probe = ImageDraw.Draw(Image.new('RGB', (1, 1)))
    for label in labels[:30]:
        if label >= len(classes):
            continue
        name = _UNLABELLED.get(label) or _fitted(probe, classes[label], 200)
        step = 22 + int(probe.textlength(name, font(13))) + 14
        if x + step > width and x > _GAP:
            x, y = _GAP, y + 22
        places.append((x, y, label, name))
        x += step
    legend = Image.new('RGB', (width, y + 26 if places else 0), 'white')
    draw = ImageDraw.Draw(legend)
    for x, y, label, name in places:
        draw.rectangle((x, y + 2, x + 14, y + 16), fill=colour(label), outline='black')
        draw.text((x + 20, y + 1), name, fill=(40, 40, 40), font=font(13))
    return legend


def colour(label: int) -> tuple[int, int, int]:
    """The colour of a class; grey for :data:`CROWD`, white for :data:`UNKNOWN`."""
    if label < 0:
        return (150, 150, 150) if label == CROWD else (255, 255, 255)
    return _COLOURS[label % len(_COLOURS)]


def font(size: int) -> ImageFont.FreeTypeFont:
    """Matplotlib's DejaVu Sans, which has Latin, Greek and Cyrillic."""
    import matplotlib
    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / 'fonts' / 'ttf' / 'DejaVuSans.ttf'), size)


def _fitted(draw: ImageDraw.ImageDraw, text: str, width: int, size: int = 13) -> str:
    """The text, its middle left out where it is too long."""
    if draw.textlength(text, font(size)) <= width:
        return text
    for kept in range(len(text) - 1, 2, -1):
        short = text[:kept // 2] + '…' + text[-(kept - kept // 2):]
        if draw.textlength(short, font(size)) <= width:
            return short
    return text[:1]
