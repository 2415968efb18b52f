"""Report of a binary evaluation: a table for the log, a CSV with one row per image, pictures of the worst images."""
from __future__ import annotations

import bisect
import logging
import math
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import cv2
import mmcv
import numpy as np
import torch
import torch.nn.functional as F
from mmengine import fileio
from mmengine.logging import print_log
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from ...utils.files import short_names, whole_file
from ...utils.tables import write_csv
from .counts import SCORES, Counts

TABLE, PICTURES = 'per_image.csv', 'worst'
PANEL = 512  # longer side of a panel in pixels, at most
_LEGIBLE = 256  # at least
_LINE, _GAP = 18, 4
_OUTCOMES = np.array([[0, 0, 0], [255, 255, 255], [230, 159, 0], [0, 114, 178], [110, 110, 110]], np.uint8)
_TRUTHS = _OUTCOMES[[0, 1, 0, 1, 4]]
LEGEND = 'white: TP, orange: FP, blue: FN, grey: ignored'


class Report:
    """Write a table with one row per image, and pictures of the worst images, to a folder.

    Args:
        folder: where to write :data:`TABLE` and :data:`PICTURES`.
        most: number of pictures.
    """

    def __init__(self, folder: Path, most: int = 20) -> None:
        self.folder, self.most = folder, most
        self.worst: list[dict] = []  # worst records of this process, in order

    def keep_if_bad(self, record: dict, prediction: Tensor, foreground: Tensor, valid: Tensor) -> None:
        """Store a small outcome map in ``record['codes']`` while the record is among the worst."""
        if not self.most or not record['IoU'] < 1 or any(_rank(record) == _rank(other) for other in self.worst):
            return
        if len(self.worst) < self.most or _rank(record) < _rank(self.worst[-1]):
            record['codes'] = outcome_map(prediction, foreground, valid)
            bisect.insort(self.worst, record, key=_rank)
            for better in self.worst[self.most:]:
                del better['codes']
            del self.worst[self.most:]

    def write(self, records: Sequence[dict], scores: Mapping[str, np.ndarray]) -> None:
        """Write the table and the pictures.

        Args:
            records: one per image, with path, counts, size, IoU and the optional scores.
            scores: one array per score name, with one value per image.
        """
        names = short_names([record['path'] for record in records])
        rows = [_row(record, name, {key: float(value[number]) for key, value in scores.items()})
                for number, (record, name) in enumerate(zip(records, names, strict=True))]
        write_table(self.folder / TABLE, rows)
        imperfect = [number for number, row in enumerate(rows) if row['IoU'] < 1]
        worst = sorted(imperfect, key=lambda number: _rank(records[number]))[:self.most]
        if not worst:
            if (self.folder / PICTURES).is_dir():
                write_pictures(self.folder / PICTURES, [])  # removes the pictures of an earlier evaluation
            return
        listed = '\n'.join(f'  {rows[number]["IoU"]:.4f} {names[number]}' for number in worst)
        print_log(f'the {len(worst)} worst images by IoU, shown in {self.folder / PICTURES} ({LEGEND}):\n{listed}',
                  'current')
        unread = write_pictures(self.folder / PICTURES, [
            dict(path=records[number]['path'], name=names[number] or f'image {number}', codes=records[number]['codes'],
                 caption=f'IoU {rows[number]["IoU"]:.4f}   DSC {rows[number]["DSC"]:.4f}')
            for number in worst if 'codes' in records[number]])
        if unread:
            print_log(f'cannot read {len(unread)} of the worst images; their panels are grey: {", ".join(unread[:3])}',
                      'current', logging.WARNING)


def _row(record: dict, name: str, scores: dict[str, float]) -> dict[str, Any]:
    """Return a row of the table."""
    height, width = record['size']
    row = dict(file=name) | scores
    row |= {key.upper(): value for key, value in Counts(*record['counts'])._asdict().items()}
    row |= dict(ignored=height * width - sum(record['counts']), height=height, width=width)
    row |= record.get('extra', {})
    if 'curves' in record:
        row |= {f'{key}_256': float(curve.mean()) for key, curve in zip(('Dice', 'IoU'), record['curves'], strict=True)}
    return row


def _rank(record: dict) -> tuple[float, str, str]:
    """Sort key, worst first. The paths make the order independent of the number of processes."""
    return record['IoU'], record['path'], record['mask']


def outcome_map(prediction: Tensor, foreground: Tensor, valid: Tensor) -> np.ndarray:
    """Encode truth and prediction in one small map, for a picture.

    Args:
        prediction, foreground, valid: ``(H, W)`` bool.

    Returns:
        uint8 map with a longer side of at most :data:`PANEL`: 0 TN, 1 TP, 2 FP, 3 FN, 4 ignored.
    """
    codes = torch.where(foreground, torch.where(prediction, 1, 3), torch.where(prediction, 2, 0))
    codes = torch.where(valid, codes, 4).to(torch.uint8)
    factor = PANEL / max(codes.shape)
    if factor < 1:
        size = [max(1, round(side * factor)) for side in codes.shape]
        codes = F.interpolate(codes[None, None].float(), size=size, mode='nearest-exact')[0, 0].to(torch.uint8)
    return codes.cpu().numpy()


def text_table(metrics: Mapping[str, float]) -> str:
    """Format the scores with both aggregations, and their bounds if ``metrics`` has them."""
    lines = [f'{"":6}{"pooled":24}mean over images']
    for score in SCORES:
        cells = []
        for key in (f'{score}_pooled', f'{score}_mean'):
            bounds = f' [{metrics[key + "_lo"]:.4f}, {metrics[key + "_hi"]:.4f}]' if f'{key}_lo' in metrics else ''
            cells.append(f'{metrics[key]:.4f}{bounds}')
        lines.append(f'{score:6}{cells[0]:24}{cells[1]}')
    return '\n'.join(lines)


def write_table(target: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write ``rows``, which all have the same keys, as CSV. NaN becomes an empty cell."""
    write_csv(target, ({key: _cell(value) for key, value in row.items()} for row in rows), list(rows[0]), digits=None)


def write_pictures(folder: Path, cases: Sequence[Mapping[str, Any]]) -> list[str]:
    """Write ``image | truth | prediction`` pictures, one PNG per case: ``01_<name>.png`` for the worst, and so on.

    Pictures of an earlier evaluation in ``folder`` are removed. Other files are unchanged.

    Args:
        folder: created if missing.
        cases: each with ``path`` (of the image), ``name``, ``codes`` (from :func:`outcome_map`) and ``caption``.

    Returns:
        names of the images that could not be read; their panel is grey.
    """
    folder.mkdir(parents=True, exist_ok=True)
    unread, written = [], set()
    for number, case in enumerate(cases, 1):
        picture, found = panels(case['path'], case['codes'], [case['name'], case['caption']])
        if not found:
            unread.append(case['name'])
        name = f'{number:02d}_{_stem(case["name"])}.png'
        with whole_file(folder / name) as file:
            picture.save(file, 'PNG')
        written.add(name)
    for path in folder.glob('*.png'):
        if re.match(r'\d\d+_', path.name) and path.name not in written:
            with suppress(OSError):
                path.unlink()
    return unread


def panels(path: str, codes: np.ndarray, lines: Sequence[str]) -> tuple[Image.Image, bool]:
    """Draw the picture of one case; see :func:`write_pictures`. Also returns whether its image could be read."""
    enlarge = math.ceil(_LEGIBLE / max(codes.shape))
    codes = codes.repeat(enlarge, 0).repeat(enlarge, 1)
    height, width = codes.shape
    image = read_image(path)
    found = image is not None
    first = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA) if found else np.full(
        (height, width, 3), 128, np.uint8)
    lines = [*lines, 'image | truth | prediction', LEGEND]
    font = ImageFont.load_default(13)
    top = _LINE * len(lines) + _GAP
    wide = max(3 * width + 2 * _GAP, *(math.ceil(font.getlength(line)) + 2 * _GAP for line in lines))
    canvas = Image.new('RGB', (wide, top + height), (40, 40, 40))
    for number, panel in enumerate((first, _TRUTHS[codes], _OUTCOMES[codes])):
        canvas.paste(Image.fromarray(panel), (number * (width + _GAP), top))
    draw = ImageDraw.Draw(canvas)
    for number, line in enumerate(lines):
        draw.text((_GAP, _GAP // 2 + number * _LINE), line, font=font, fill=(255, 255, 255))
    return canvas, found


def read_image(path: str) -> np.ndarray | None:
    """Read an image as RGB uint8 ``(H, W, 3)`` with its EXIF orientation applied; None if it cannot be read."""
    try:
        return mmcv.imfrombytes(fileio.get(path), flag='color', channel_order='rgb', backend='cv2')
    except Exception:  # pictures are optional: a failure must not stop the evaluation
        return None


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return '' if math.isnan(value) else f'{value:.6g}'
    return value


def _stem(name: str) -> str:
    return re.sub(r'[^\w.-]+', '_', os.path.splitext(name)[0])[-100:]
