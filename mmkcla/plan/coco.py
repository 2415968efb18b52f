"""COCO annotation files for a plan: find their images, check their labels, and repair what can be repaired."""
from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ..datasets.detection.coco.faults import Use, find_faults
from ..datasets.detection.coco.repairs import repair
from ..datasets.detection.coco.table import read_table
from ..datasets.detection.folders import folders_of
from ..datasets.image_files import ImageFile, read_images
from ..datasets.report import REFUSED
from ..errors import UserError
from ..utils.files import parse_json, whole_file
from ..utils.text import listed
from .fingerprint import Problem, refuse_fatal
from .images import held_out

VAL_SHARE = 0.2  # of the images, where a single file is given


@dataclass
class Coco:
    """One annotation file after its check.

    Attributes:
        name: of the file, for messages.
        folder: where its file names start.
        content: of the file, cleaned.
        files: one for each of ``content['images']``.
        problems: found on the way.
    """

    name: str
    folder: Path
    content: dict[str, Any]
    files: list[ImageFile]
    problems: list[Problem] = field(default_factory=list)

    @property
    def classes(self) -> list[str]:
        """Names of the categories, in the file's order."""
        return [category['name'] for category in self.content['categories']]

    @property
    def objects(self) -> list[dict]:
        """The annotations that are not crowds."""
        return [annotation for annotation in self.content['annotations'] if not annotation['iscrowd']]

    @cached_property
    def _inside(self) -> dict[Any, list[dict]]:
        found: dict[Any, list[dict]] = {}
        for annotation in self.content['annotations']:
            found.setdefault(annotation['image_id'], []).append(annotation)
        return found

    def inside(self, image: Any, crowds: bool = True) -> list[dict]:
        """The annotations of the image with that id."""
        return [annotation for annotation in self._inside.get(image, []) if crowds or not annotation['iscrowd']]

    def write(self, path: Path) -> None:
        """Write the content as JSON."""
        with whole_file(path, 'w') as file:
            json.dump(self.content, file)


def load(path: Path, folders: Sequence[Path]) -> Coco:
    """Read and check ``path``; its images are in one of ``folders`` or in a sub-folder.

    Raises:
        UserError: the file is not in COCO format, or the labels are invalid.
    """
    if not path.is_file():
        raise UserError(f'no annotation file {path}')
    table = read_table(path)
    if not table.annotated:
        raise UserError(f"{path} has no 'annotations', only images and categories")
    refused = [fault for fault in find_faults(table, Use()) if fault.severity == REFUSED]
    if refused:
        raise UserError(f'{path}: {refused[0]}')
    content = parse_json(path.read_text(encoding='utf-8'))
    if not content['images'] or not content['categories']:
        raise UserError(f'{path} lists no {"images" if not content["images"] else "categories"}')
    repaired = [Problem(f'{kind} (repaired)', values) for kind, values in repair(content).items()]
    _check_ids(content, path)
    names = [image['file_name'] for image in content['images']]
    folder = image_folder(names, folders, path)
    missing = [name for name in names if not (folder / name).is_file()]
    refuse_fatal([Problem(f'images of {path} that are not in {folder}', missing, True)] if missing else [])
    files = read_images([folder / name for name in names], path.name)
    coco = Coco(path.name, folder, content, files)
    _check_sizes(coco)
    coco.content['annotations'], coco.problems = clean(content)
    coco.problems = [*repaired, *coco.problems]
    return coco


def image_folder(names: Sequence[str], folders: Sequence[Path], file: Path) -> Path:
    """The folder that contains most of the files: one of ``folders``, or a direct sub-folder.

    Raises:
        UserError: several have the same names but other images, and none belongs to ``file`` by its name.
    """
    candidates = []
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f'no folder {folder}')
        candidates += [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]
    found = folders_of(names, candidates, file)
    if len(found) > 1:
        raise UserError(f'several folders have the images of {file}, with different content: '
                        f'{listed(map(str, found))}; give --images one folder for each annotation file')
    return found[0] if found else candidates[0]


def _check_ids(content: dict, path: Path) -> None:
    images, categories = content['images'], content['categories']
    for what, key, entries in (('image', 'id', images), ('file name', 'file_name', images),
                               ('category', 'id', categories), ('class name', 'name', categories)):
        twice = [value for value, count in Counter(entry[key] for entry in entries).items() if count > 1]
        if twice:
            raise UserError(f'{path}: {what} {listed(map(repr, twice))} more than once; {key} must be unique')


def _check_sizes(coco: Coco) -> None:
    """Check that image sizes match the annotation file, since boxes are in pixels of that size.

    Raises:
        UserError: it is not; for an EXIF orientation that the labels do not follow, too.
    """
    wrong = [f'{image["file_name"]} ({image["width"]}×{image["height"]} there, {file.width}×{file.height} upright)'
             for image, file in zip(coco.content['images'], coco.files, strict=True)
             if not file.problem and (image['width'], image['height']) != (file.width, file.height)]
    what = f'images of another size than {coco.name} says, so that boxes would not fit'
    refuse_fatal([Problem(what, wrong, fatal=True)] if wrong else [])


def clean(content: dict) -> tuple[list[dict], list[Problem]]:
    """Return the annotations that a detector can be trained and evaluated with.

    Dropped: annotations of unknown images or categories, and boxes that are empty or outside the image. Repaired:
    boxes that extend beyond the image, and ids below 1, which the COCO evaluation treats as "not matched".

    Args:
        content: content of an annotation file in COCO format.

    Returns:
        The annotations, and what was changed or looks wrong.
    """
    images = {image['id']: image for image in content['images']}
    categories = {category['id'] for category in content['categories']}
    found: dict[str, list[str]] = {}
    kept, seen = [], set()
    for annotation in content['annotations']:
        image = images.get(annotation['image_id'])
        place = f'id {annotation["id"]}' + (f' in {image["file_name"]}' if image else '')
        if image is None:
            found.setdefault('annotations of unknown images (left out)', []).append(place)
            continue
        if annotation['category_id'] not in categories:
            found.setdefault('annotations of unknown categories (left out)', []).append(place)
            continue
        box = _clipped(annotation['bbox'], image)
        if box[2] < 1 or box[3] < 1:
            found.setdefault('boxes of less than a pixel in the image (left out)', []).append(place)
            continue
        if max(abs(new - old) for new, old in zip(box, annotation['bbox'], strict=True)) > 1:
            found.setdefault('boxes reaching beyond the image (cut to it)', []).append(place)
            annotation = {**annotation, 'bbox': box}
        key = (annotation['image_id'], annotation['category_id'], *annotation['bbox'])
        if key in seen:
            found.setdefault('objects labelled twice with the same box (kept)', []).append(place)
        seen.add(key)
        if annotation['iscrowd']:
            found.setdefault('crowd regions (ignored in training and evaluation)', []).append(place)
        kept.append(annotation)
    if any(annotation['id'] < 1 for annotation in kept):
        found['annotation ids below 1 (all are renumbered)'] = [
            f'id {annotation["id"]}' for annotation in kept if annotation['id'] < 1]
        kept = [{**annotation, 'id': number} for number, annotation in enumerate(kept, start=1)]
    return kept, [Problem(what, places) for what, places in found.items()]


def _clipped(box: Sequence[float], image: dict) -> list[float]:
    x, y, width, height = box
    left, top = min(max(x, 0), image['width']), min(max(y, 0), image['height'])
    return [left, top, min(x + width, image['width']) - left, min(y + height, image['height']) - top]


def split(coco: Coco) -> dict[str, Coco]:
    """Hold out a fifth of the images by the hash of their content.

    Raises:
        UserError: there is only one image.
    """
    held = held_out(coco.files, VAL_SHARE)
    if not held:
        raise UserError(f'{coco.name} has one image, or copies of one; a split needs two')
    parts = {}
    for name in ('train', 'val'):
        chosen = [i for i, file in enumerate(coco.files) if (file.sha256 in held) == (name == 'val')]
        images = [coco.content['images'][i] for i in chosen]
        ids = {image['id'] for image in images}
        annotations = [entry for entry in coco.content['annotations'] if entry['image_id'] in ids]
        parts[name] = Coco(coco.name, coco.folder, {**coco.content, 'images': images, 'annotations': annotations},
                           [coco.files[i] for i in chosen])
    parts['train'].problems = coco.problems
    return parts
