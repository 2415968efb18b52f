"""Reports on images and masks for ``mmkcla data verify``."""
from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import UserError
from ...registry import DATA_REPORTS
from ..check import Dataset
from ..findings import Finding
from ..image_files import ImageFile
from ..pipelines import mask_loader
from ..report import Report, faults_of
from ..sheet import Sample, spread_out
from .check import MaskFolder, check_model, look_at_pairs, mask_folder_of
from .mask_folder import Pair


@DATA_REPORTS.register_module('BaseSegDataset')
def report_masks(dataset: Dataset, config: Any) -> Report | None:
    """Report on the images and masks of an mmseg data set, as its pipeline loads them; every file is decoded."""
    found = mask_folder_of(dataset)
    if found is None:
        return None
    model = config.get('model') or {}
    findings = list(found.pairing)
    images, pairs = [], []
    if not any(finding.refuse for finding in findings):
        images, pairs, more = look_at_pairs(dataset, model, found, whole=True)
        findings += more
    try:
        check_model(dataset, model, found.classes)
    except UserError as error:
        findings.append(Finding(str(error), True))
    findings.sort(key=lambda finding: not finding.refuse)
    return Report(f'{dataset.where}: {dataset.config.get("data_root") or found.folder}',
                  _counts(found, images, pairs), faults_of(findings), found.classes or (),
                  draw=lambda: _samples(dataset, found, pairs))


@DATA_REPORTS.register_module(['NYUDataset', 'HSIDrive20Dataset', 'DecathlonDataset', 'DSDLSegDataset', 'OneDLDataset',
                               'BaseCDDataset'])
def skip_report(dataset: Dataset, config: Any) -> None:
    """Data sets without class masks in image files: no report."""


def _counts(found: MaskFolder, images: Sequence[ImageFile], pairs: Sequence[Pair]) -> dict[str, Any]:
    counts: dict[str, Any] = {'images': len(found.data), 'masks': len(pairs)}
    good = [image for image in images if image.problem is None]
    if good:
        for name in ('width', 'height'):
            values = [getattr(image, name) for image in good]
            counts[name] = f'{min(values)} to {max(values)}'
    pixels: Counter[int] = Counter()
    present: Counter[int] = Counter()
    for pair in pairs:
        pixels.update(pair.labels)
        present.update(set(pair.labels))
    if total := sum(pixels.values()):
        counts['share of the pixels'] = {_name(found, label): f'{count / total:.2%}'
                                         for label, count in sorted(pixels.items())}
        counts['masks with the label'] = {_name(found, label): count for label, count in sorted(present.items())}
    return counts


def _name(found: MaskFolder, label: int) -> str:
    return found.classes[label] if found.classes and label < len(found.classes) else str(label)


def _samples(dataset: Dataset, found: MaskFolder, pairs: Sequence[Pair]) -> list[Sample]:
    from mmseg.registry import TRANSFORMS
    step = mask_loader(dataset.config.get('pipeline') or ())
    entries = {str(part['img_path']): part for part in found.data}
    good = [pair for pair in pairs if pair.problem is None and pair.size is not None]
    number = len(found.classes or ()) or 256
    groups: dict[int, list[int]] = {}
    for place, pair in enumerate(good):
        for label in pair.labels:
            if 0 < label < number:
                groups.setdefault(label, []).append(place)
    samples = []
    loader = TRANSFORMS.build(dict(step)) if step else None
    for place in spread_out(list(groups.values()) or [list(range(len(good)))]):
        pair = good[place]
        mask = np.asarray(loader(dict(entries[pair.image], seg_fields=[]))['gt_seg_map'])
        samples.append(Sample(Path(pair.image), Path(pair.image).name, mask=np.where(mask < number, mask, 0)))
    return samples
