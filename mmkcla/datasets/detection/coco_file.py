"""Read the parts of a COCO annotation file that are needed to check it against a config."""
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import UserError

# parsing the 450 MB of COCO's train2017 takes most of a minute and gigabytes; its images and categories a second
_WHOLE_UP_TO = 32 * 2 ** 20
_READ = ('id', 'image_id', 'category_id', 'bbox', 'area', 'iscrowd')


@dataclass
class CocoFile:
    """The contents of a COCO annotation file that are checked."""

    images: list[str]  # file names
    categories: list[str]  # names, in file order
    has_annotations: bool
    annotated_categories: set[str] | None  # names of the categories with objects; None if not read


def read_coco(path: Path, whole_up_to: int = _WHOLE_UP_TO) -> CocoFile:
    """Read ``path``; in files larger than ``whole_up_to`` bytes, only the images and categories are parsed.

    Raises:
        UserError: the file is not JSON, or not in COCO format.
    """
    try:
        text = path.read_text(encoding='utf-8')
    except UnicodeDecodeError as error:
        raise UserError(f'{path} is not JSON: it is not text ({error.reason})') from error
    if not text.strip():
        raise UserError(f'{path} is empty')
    content = _lists_only(text) if len(text) > whole_up_to else None
    if content is None:
        try:
            content = json.loads(text)
        except json.JSONDecodeError as error:
            raise UserError(f'{path} is not JSON: {error}') from error
    if not isinstance(content, dict) or not all(isinstance(content.get(key), list) for key in ('images', 'categories')):
        keys = ', '.join(sorted(content)) if isinstance(content, dict) else f'a {type(content).__name__}'
        missing = [key for key in ('images', 'categories', 'annotations')
                   if not isinstance(content, dict) or not isinstance(content.get(key), list)]
        raise UserError(f'{path} is not in COCO format: no list {", ".join(map(repr, missing))}; it has {keys}')
    return _summary(content, path)


def _summary(content: dict, path: Path) -> CocoFile:
    try:
        images = [image['file_name'] for image in content['images']]
    except (KeyError, TypeError) as error:
        raise UserError(f"{path}: an image without {error} in 'images'") from error
    try:
        names = {category['id']: category['name'] for category in content['categories']}
    except (KeyError, TypeError) as error:
        raise UserError(f"{path}: a category without {error} in 'categories'") from error
    for kind, values, what in (('file_name', images, 'images'), ('name', names.values(), 'categories')):
        wrong = [value for value in values if not isinstance(value, str) or not value]
        if wrong:
            raise UserError(f'{path}: {kind} {wrong[0]!r} in {what!r}; text is expected')
    annotations = content.get('annotations')
    used = None
    if isinstance(annotations, list):
        _see_complete(content['images'], annotations, path)
        used = {names.get(annotation.get('category_id')) for annotation in annotations if isinstance(annotation, dict)}
        used.discard(None)
    return CocoFile(images, list(names.values()), annotations is not None, used)


def _see_complete(images: list, annotations: list, path: Path) -> None:
    """Check that every entry has the fields that mmdet and pycocotools read; otherwise the first evaluation would fail.

    Raises:
        UserError: for the first invalid annotation, or if no box has an area.
    """
    for image in images:
        missing = [key for key in ('id', 'width', 'height') if key not in image]
        if missing:
            raise UserError(f"{path}: the image {image['file_name']} has no {', '.join(missing)}")
        for key in ('width', 'height'):
            if not _is_number(image[key]) or image[key] <= 0:
                raise UserError(f"{path}: the image {image['file_name']} has the {key} {image[key]!r}; a number of "
                                'pixels is expected')
    ids = set()
    boxes = 0
    for number, annotation in enumerate(annotations):
        where = f"{path}: annotation {number} of 'annotations'"
        if not isinstance(annotation, dict):
            raise UserError(f'{where} is a {type(annotation).__name__}, not an object')
        missing = [key for key in _READ if key not in annotation]
        if missing:
            raise UserError(f"{where} (id {annotation.get('id')}) has no {', '.join(missing)}")
        if annotation['id'] in ids:
            raise UserError(f"{where} has the id {annotation['id']} of an earlier one; ids must differ")
        ids.add(annotation['id'])
        box = annotation['bbox']
        if not (isinstance(box, list) and len(box) == 4 and all(map(_is_number, box))):
            raise UserError(f"{where} (id {annotation['id']}) has the bbox {box!r}; four numbers [x, y, width, height] "
                            'are expected')
        for key in ('area', 'iscrowd'):
            if not _is_number(annotation[key]):
                raise UserError(f"{where} (id {annotation['id']}) has the {key} {annotation[key]!r}; a number is "
                                'expected')
        _check_polygons(annotation.get('segmentation'), f"{where} (id {annotation['id']})")
        boxes += box[2] >= 1 and box[3] >= 1
    if annotations and not boxes:
        raise UserError(f'{path}: no annotation has a box of at least one pixel (bbox is [x, y, width, height])')


def _check_polygons(segmentation: Any, where: str) -> None:
    """Check the coordinates of polygons; pycocotools checks masks in run-length encoding.

    Raises:
        UserError: a coordinate is no finite number.
    """
    for polygon in segmentation if isinstance(segmentation, list) else ():
        if isinstance(polygon, list) and not all(map(_is_number, polygon)):
            wrong = next(value for value in polygon if not _is_number(value))
            raise UserError(f'{where} has {wrong!r} in its segmentation; polygons are lists of numbers [x, y, x, y, …]')


def _is_number(value: Any) -> bool:
    """Whether it is a finite number (JSON as Python reads it may hold NaN and Infinity)."""
    return isinstance(value, (int, float)) and math.isfinite(value)


def _lists_only(text: str) -> dict[str, Any] | None:
    """``images`` and ``categories`` of a large file, ``annotations`` as True; None if a full parse is needed."""
    if not text[-100:].rstrip().endswith('}'):
        return None  # truncated: the parser reports where
    content: dict[str, Any] = {}
    decoder = json.JSONDecoder()
    for key, name in (('images', 'file_name'), ('categories', 'name')):
        for match in re.finditer(rf'"{key}"\s*:\s*(?=\[)', text):
            try:
                value, _ = decoder.raw_decode(text, match.end())
            except json.JSONDecodeError:
                continue
            if value and all(isinstance(item, dict) and name in item for item in value):
                content[key] = value
                break
        else:
            return None
    if re.search(r'"annotations"\s*:\s*\[', text):
        content['annotations'] = True
    return content
