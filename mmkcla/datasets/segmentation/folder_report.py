"""The report of ``mmkcla data verify`` on a prepared segmentation folder, for JSON, the page and the pictures."""
from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from ...errors import UserError
from ...utils.images import upright
from ..findings import PLACES
from ..report import NOTE, REFUSED, Fault, Report
from ..sheet import SAMPLES, Sample, spread_out
from . import masks
from .converters.manifest import read_manifest
from .verify import Report as Checked

_LOOKED_AT = 200  # masks whose labels are read to choose the pictures
_DEFAULT = ('background', 'foreground')


def folder_report(root: Path, checked: Checked) -> Report:
    """The result of a check as a report with pictures.

    Args:
        root: the folder with ``images`` and ``masks``.
        checked: from :func:`mmkcla.datasets.segmentation.verify.check`.
    """
    manifest = None
    with contextlib.suppress(UserError):  # the check has reported it
        manifest = read_manifest(root)
    classes = tuple((manifest or {}).get('classes') or _DEFAULT)
    faults = _grouped(checked.problems) + [Fault(line, NOTE, 1, []) for line in checked.notes]
    return Report(str(root), {'pairs': dict(checked.counts), 'masks without foreground': checked.empty_masks}, faults,
                  classes, foreground=1, draw=lambda: _samples(root, checked, len(classes)))


def _grouped(problems: Sequence[str]) -> list[Fault]:
    """Problems of the same kind as one fault: ``<file>: <kind> (<detail>)`` without the names of other files."""
    kinds: dict[str, list[str]] = {}
    for line in problems:
        file, _, text = line.partition(': ')
        kind = re.sub(r'\s\S*/\S*', '', text.partition(' (')[0]).strip()
        kinds.setdefault(kind, []).append(f'{file}: {text}' if kind != text else file)
    return [Fault(kind, REFUSED, len(places), places[:PLACES]) for kind, places in kinds.items()]


def _samples(root: Path, checked: Checked, classes: int) -> list[Sample]:
    """A dozen pairs: up to half with faults, the others from the labels in turn."""
    named = {name: pair for pair in checked.pairs for name in pair}
    faulty: dict[tuple[str, str], str] = {}
    for line in checked.problems:
        file, _, text = line.partition(': ')
        if file in named:
            faulty.setdefault(named[file], f'refused: {text}')
    chosen: dict[tuple[str, str], Sample] = {}
    for pair, text in faulty.items():
        sample, _ = _sample(root, pair, text, classes)
        if sample is not None and len(chosen) < SAMPLES // 2:
            chosen[pair] = sample
    rest = [pair for pair in checked.pairs if pair not in faulty]
    rest = [rest[i] for i in np.unique(np.linspace(0, len(rest) - 1, _LOOKED_AT).round().astype(int))] if rest else []
    groups: dict[int, list[int]] = {}
    for number, pair in enumerate(rest):
        sample, labels = _sample(root, pair, '', classes)
        for label in (labels or [0]) if sample is not None else []:
            groups.setdefault(label, []).append(number)
    shown = [rest[i] for i in spread_out(list(groups.values()), SAMPLES - len(chosen))]
    others = [_sample(root, pair, pair[0].partition('/')[2], classes)[0] for pair in shown]
    return [*chosen.values(), *filter(None, others)]


def _sample(root: Path, pair: tuple[str, str], caption: str, classes: int) -> tuple[Sample | None, list[int]]:
    """The picture of a pair and the labels above 0 in it; None if a file cannot be read."""
    try:
        with Image.open(root / pair[0]) as image:
            image.load()
        mask = np.asarray(masks.grey(upright(masks.decode((root / pair[1]).read_bytes(), 'mask'))))
    except Exception:  # damaged; the check has reported it
        return None, []
    labels = [label for label in np.unique(mask).tolist() if 0 < label < classes]
    return Sample(root / pair[0], caption, mask=np.where(mask < classes, mask, 0).astype(np.uint8)), labels
