"""The plan for detection and instance segmentation: a Faster or a Mask R-CNN."""
from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..datasets.image_files import ImageFile, copies_within
from ..datasets.sheet import CROWD, Sample, spread_out
from ..errors import UserError
from ..utils.text import listed, plural
from . import coco as coco_files
from .coco import Coco
from .detection_config import config_text
from .fingerprint import DetectionFingerprint, Problem, quantiles, refuse_fatal
from .images import file_problems, shown, summarise
from .machine import Machine
from .project import Plan
from .splits import shared_images

SPLITS = ('train', 'val', 'test')
_FEW = 10  # objects of a class below which a line says so
_EVALUATED = 100  # detections per image that COCO's AP counts


def plan(images: Sequence[Path], annotations: Sequence[Path], new: Path, machine: Machine, size: str | None = None,
         pretrained: bool | None = None) -> Plan:
    """Analyse a COCO data set, and write checked annotation files to ``new / 'annotations'``.

    Args:
        images: one folder, or one for each annotation file.
        annotations: one file (a fifth of its images is held out), train and val, or train, val and test.
        new: the project's folder.
        machine: to plan for.
        size: ``'small'`` or ``'base'``; None: by the machine.
        pretrained: start from ImageNet weights; None: where the network has some.

    Raises:
        UserError: no plan can be made with these data.
    """
    parts = load_splits(images, annotations)
    fingerprint = look_at(parts)
    refuse_fatal(fingerprint.problems)
    for split, part in parts.items():
        part.write(new / 'annotations' / f'{split}.json')
    root = Path(os.path.commonpath([part.folder.resolve() for part in parts.values()]))
    prefixes = {split: _prefix(part.folder, root) for split, part in parts.items()}
    text = config_text(fingerprint, root, prefixes, machine, size, pretrained)
    return Plan(fingerprint, text, samples(parts), fingerprint.classes, list(parts.values())[-1].folder.absolute())


def load_splits(images: Sequence[Path], annotations: Sequence[Path]) -> dict[str, Coco]:
    """Read the annotation files, or split the only one.

    Raises:
        UserError: numbers of folders and files that do not fit, other classes in another file, or a set of images that
            is evaluated and trained on.
    """
    if len(annotations) > len(SPLITS):
        raise UserError(f'--annotations has {len(annotations)} files; give one, train and val, or train, val and test')
    if len(images) not in (1, len(annotations)):
        raise UserError(f'--images has {len(images)} folders for {len(annotations)} annotation files; give one, or one '
                        'for each file')
    folders = [[images[number]] if len(images) > 1 else [images[0]] for number in range(len(annotations))]
    loaded = [coco_files.load(path, where) for path, where in zip(annotations, folders, strict=True)]
    if len(loaded) == 1:
        return coco_files.split(loaded[0])
    first = loaded[0]
    for path, part in zip(annotations[1:], loaded[1:], strict=True):
        if part.classes != first.classes:
            raise UserError(f'{path} has the classes {listed(part.classes, 20)}, {annotations[0]} has '
                            f'{listed(first.classes, 20)}; they must be the same in the same order, or labels would be '
                            'swapped')
    return dict(zip(SPLITS, loaded, strict=False))


def look_at(parts: dict[str, Coco]) -> DetectionFingerprint:
    """The fingerprint of a data set in splits.

    Raises:
        UserError: it has no object.
    """
    files = [file for part in parts.values() for file in part.files]
    objects = {split: _by_class(part) for split, part in parts.items()}
    boxes, per_image, masks = [], [], 0
    for part in parts.values():
        longer = {image['id']: max(image['width'], image['height']) for image in part.content['images']}
        boxes += [(*entry['bbox'][2:], longer[entry['image_id']]) for entry in part.objects]
        masks += sum(map(_has_mask, part.objects))
        per_image += [len(part.inside(image, crowds=False)) for image in longer]
    if not parts['train'].objects:
        causes = ', '.join(f'{problem.what}: {len(problem.places)}' for problem in parts['train'].problems)
        raise UserError(f'{parts["train"].name} has no object to train on ({causes or "no annotations"}); image and '
                        'category ids must have one type everywhere')
    width, height, longer = np.array(boxes, np.float64).T
    problems = [*itertools.chain.from_iterable(_problems(split, part) for split, part in parts.items()),
                *_class_problems(objects), *_shared(parts)]
    absent = [(f'id {entry["id"]} in {split}', bool(entry.get('segmentation'))) for split, part in parts.items()
              for entry in part.objects if not _has_mask(entry)]
    if masks and absent:
        problems.append(Problem('objects without a mask among others that have one, so that only boxes are learnt',
                                [place for place, _ in absent]))
    elif not_polygons := [place for place, written in absent if written]:
        problems.append(Problem('objects whose polygons have fewer than 3 points, so that only boxes are learnt',
                                not_polygons))
    return DetectionFingerprint(
        'detection', {split: len(part.files) for split, part in parts.items()}, parts['train'].classes,
        summarise(files), problems, objects, quantiles(np.sqrt(width * height)),
        quantiles(np.sqrt(width * height) / longer), quantiles(height / width), quantiles(per_image), masks,
        len({entry['image_id'] for entry in parts['train'].objects}))


def _has_mask(entry: dict) -> bool:
    """Whether an annotation has a segmentation that mmdet can use: a polygon of three points or run lengths."""
    segmentation = entry.get('segmentation')
    if not isinstance(segmentation, list):
        return bool(segmentation)
    return any(isinstance(points, list) and len(points) >= 6 and len(points) % 2 == 0 for points in segmentation)


def _by_class(part: Coco) -> dict[str, int]:
    counts = Counter(entry['category_id'] for entry in part.objects)
    return {category['name']: counts[category['id']] for category in part.content['categories']}


def _problems(split: str, part: Coco) -> list[Problem]:
    """The problems within a split."""
    numbers = {image['file_name']: len(part.inside(image['id'], crowds=False)) for image in part.content['images']}
    left_out = ' (mmdet leaves them out of the training)' if split == 'train' else ''
    found = [*file_problems(part.files, part.folder), *part.problems,
             Problem(f'images without an object{left_out}', [name for name, number in numbers.items() if not number]),
             Problem('images that are copies of another',
                     [shown(file.path, part.folder) for file in copies_within(part.files)]),
             Problem(f'images with more objects than the {_EVALUATED} detections that COCO AP counts',
                     [f'{name}: {number}' for name, number in numbers.items() if number > _EVALUATED])]
    return [replace(problem, split=split) for problem in found if problem.places]


def _class_problems(objects: dict[str, dict[str, int]]) -> list[Problem]:
    found = [Problem('classes without an object', [name for name, count in counts.items() if not count], split=split)
             for split, counts in objects.items()]
    found.append(Problem(f'classes with fewer than {_FEW} objects', [
        f'{name}: {count}' for name, count in objects['train'].items() if 0 < count < _FEW], split='train'))
    return [problem for problem in found if problem.places]


def _shared(parts: dict[str, Coco]) -> list[Problem]:
    """Images that several splits share; what to do if both were looked for in one folder."""
    found = shared_images({split: part.files for split, part in parts.items()})
    return [replace(problem, what=f'{problem.what}; if they have folders of their own, give --images one for each '
                                  'annotation file') if problem.fatal and parts[problem.split].folder ==
            parts['train'].folder else problem for problem in found]


def _prefix(folder: Path, root: Path) -> str:
    inside = folder.resolve().relative_to(root).as_posix()
    return '' if inside == '.' else f'{inside}/'


def samples(parts: dict[str, Coco]) -> list[Sample]:
    """A dozen images, from the classes in turn, from small to large objects."""
    entries = [(split, image, file, part.inside(image['id'])) for split, part in parts.items()
               for image, file in zip(part.content['images'], part.files, strict=True)]
    categories = [category['id'] for category in parts['train'].content['categories']]
    groups = []
    for category in categories:
        sized = [(float(np.median(areas)), number) for number, (*_, inside) in enumerate(entries)
                 if (areas := [entry['bbox'][2] * entry['bbox'][3] for entry in inside
                               if entry['category_id'] == category and not entry['iscrowd']])]
        groups.append([number for _, number in sorted(sized)])
    labels = {category: label for label, category in enumerate(categories)}
    return [_sample(*entries[number], labels) for number in spread_out(groups)]


def _sample(split: str, image: dict, file: ImageFile, inside: list[dict], labels: dict[Any, int]) -> Sample:
    crowds = sum(bool(entry['iscrowd']) for entry in inside)
    sample = Sample(file.path, f'{split}: {image["file_name"]}, {plural(len(inside) - crowds, "object")}'
                    + (f', {plural(crowds, "crowd")}' if crowds else ''))
    for entry in inside:
        label = CROWD if entry['iscrowd'] else labels[entry['category_id']]
        sample.boxes.append((*entry['bbox'], label))
        segmentation = entry.get('segmentation')
        if isinstance(segmentation, list):
            sample.polygons += [(points, label) for points in segmentation if isinstance(points, list)]
        elif segmentation and label != CROWD:
            _paint(sample, segmentation, label, image)
    return sample


def _paint(sample: Sample, run_lengths: dict, label: int, image: dict) -> None:
    from pycocotools import mask as masks
    if isinstance(run_lengths.get('counts'), list):
        run_lengths = masks.frPyObjects(run_lengths, image['height'], image['width'])
    if sample.mask is None:
        sample.mask = np.full((image['height'], image['width']), 255, np.uint8)
    sample.mask[masks.decode(run_lengths) > 0] = label
