"""The plan for semantic segmentation: a U-Net."""
from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ..datasets.image_files import read_images
from ..datasets.segmentation.converters.folders import convert_folders
from ..datasets.segmentation.converters.manifest import read_manifest
from ..datasets.sheet import Sample, spread_out
from ..errors import UserError
from .fingerprint import Problem, SegmentationFingerprint, quantiles, refuse_fatal
from .images import file_problems, summarise
from .machine import Machine
from .project import Plan
from .segmentation_config import config_text

SPLITS = ('train', 'val', 'test')
_DATA = 'data'  # folder of the prepared images and masks in the project
_BACKGROUND = ('background', 'bg', 'void', 'other')


def plan(images: Path, masks: Path, new: Path, machine: Machine, size: str | None = None,
         pretrained: bool | None = None, options: Mapping[str, Any] | None = None) -> Plan:
    """Pair and check images and masks, and write a prepared data set to ``new / 'data'``.

    Args:
        images, masks: folders, flat or nested; files are paired by their names.
        new: the project's folder.
        machine: to plan for.
        size: ``'small'`` or ``'base'`` (an encoder of ResNet-34); None: by the machine.
        pretrained: start from ImageNet weights; None: where the network has some.
        options: of :func:`~mmkcla.datasets.segmentation.converters.folders.convert_folders`, as ``classes``, ``split``.

    Raises:
        UserError: no plan can be made with these data.
    """
    data = new / _DATA
    outcome = convert_folders(images, masks, data, **(options or {}))
    manifest = read_manifest(data)
    assert manifest is not None  # written just now
    _check_splits(manifest['counts'])
    fingerprint = look_at(data, manifest)
    fingerprint.problems += _left_out(outcome.problems)
    refuse_fatal(fingerprint.problems)
    suffix = Path(manifest['files'][0]['image']).suffix
    text = config_text(fingerprint, f'{images.resolve()} and {masks.resolve()}', suffix, machine, size, pretrained)
    foreground = int(fingerprint.classes[0].lower() in _BACKGROUND)
    last = next(split for split in reversed(SPLITS) if manifest['counts'][split])
    return Plan(fingerprint, text, samples(data, manifest), fingerprint.classes, Path(_DATA, 'images', last),
                foreground)


def _check_splits(counts: Mapping[str, int]) -> None:
    """See that there is something to train on and to choose a checkpoint by."""
    missing = [split for split in ('train', 'val') if not counts[split]]
    if missing:
        raise UserError(f'no images in {" and ".join(missing)}; a plan needs train and val (test is optional): '
                        '--split 8:1:1 draws all three')


def look_at(data: Path, manifest: Mapping[str, Any]) -> SegmentationFingerprint:
    """The fingerprint of a prepared data set."""
    classes, records = list(manifest['classes']), manifest['files']
    files = read_images([data / record['image'] for record in records])
    splits = {split: count for split, count in manifest['counts'].items() if count}
    found = {record['name']: class_pixels(record) for record in records}
    by_split = {split: [found[record['name']] for record in records if record['split'] == split] for split in splits}
    shares = {name: quantiles([pixels[label] / (record['width'] * record['height']) for record in records
                               if (pixels := found[record['name']])[label]]) for label, name in enumerate(classes)}
    total = sum(record['width'] * record['height'] for record in records)
    present = {split: {name: sum(pixels[label] > 0 for pixels in part) for label, name in enumerate(classes)}
               for split, part in by_split.items()}
    empty = [record['image'] for record in records if not any(found[record['name']][1:])]
    problems = file_problems(files, data)
    problems += [Problem('classes without a pixel', [name for name, count in counts.items() if not count], split=split)
                 for split, counts in present.items()]
    problems.append(Problem(f'masks with {classes[0]} alone', empty))
    return SegmentationFingerprint(
        'segmentation', splits, classes, summarise(files), [problem for problem in problems if problem.places],
        {split: {name: sum(pixels[label] for pixels in part) for label, name in enumerate(classes)}
         for split, part in by_split.items()},
        present, shares, len(empty), round(1 - sum(map(sum, found.values())) / total, 6))


def class_pixels(record: Mapping[str, Any]) -> list[int]:
    """The pixels of each class in an entry of the manifest."""
    if 'pixels' in record:
        return record['pixels']
    return [record['width'] * record['height'] - record['foreground'], record['foreground']]


def _left_out(problems: tuple) -> list[Problem]:
    """The converter's problems, by their kind."""
    places: dict[str, list[str]] = {}
    for problem in problems:
        kind = f'{problem.kind} ({"kept" if problem.kept else "left out"})'
        places.setdefault(kind, []).append(f'{problem.file}{f": {problem.detail}" if problem.detail else ""}')
    return [Problem(kind, found) for kind, found in sorted(places.items())]


def samples(data: Path, manifest: Mapping[str, Any]) -> list[Sample]:
    """A dozen images, from the classes in turn, from small to large shares; class 0 only where it is alone."""
    records = manifest['files']
    shares = np.array([np.array(class_pixels(record)) / (record['width'] * record['height']) for record in records])
    groups = [[int(number) for number in np.argsort(shares[:, label], kind='stable') if shares[number, label]]
              for label in range(1, shares.shape[1])]
    groups.append([number for number in range(len(records)) if not shares[number, 1:].any()])
    return [Sample(data / record['image'], f'{record["split"]}: {Path(record["image"]).name}',
                   mask=np.asarray(Image.open(data / record['mask'])))
            for record in (records[number] for number in spread_out(groups))]
