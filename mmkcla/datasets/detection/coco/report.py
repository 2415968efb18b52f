"""The report on a COCO file: counts, faults, and samples with the labels drawn."""
from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ....utils.text import plural
from ...findings import PLACES
from ...pipelines import applies_orientation, image_loader
from ...report import NOTE, REFUSED, SEVERITIES, Fault, Report
from ...sheet import CROWD, SAMPLES, UNKNOWN, Sample, spread_out
from .faults import Use, find_faults, host_keeps, images_of, used
from .headers import MOST_READ, header_faults, pixel_faults
from .masks import ABSENT, outlines
from .reader import Annotation, read_content
from .table import Table

DEFAULT_PIPELINE = (dict(type='mmkcla.LoadImageFromFile'),)  # of a file without a config
_SMALL, _MEDIUM = 32 ** 2, 96 ** 2  # COCO's limits of area, in square pixels


def write_report(title: str, path: Path, table: Table, use: Use, folder: Path | None, pipeline: Any = None,
                 most: int | None = None) -> Report:
    """Everything about one file.

    Args:
        title: of the report.
        path: of the annotation file.
        table: its contents.
        use: what it is used for.
        folder: of the images; None: unknown, so that they are not read.
        pipeline: the steps of the data set; None: the loader of mmkcla.
        most: image headers to read; None: all.
    """
    faults = find_faults(table, use)
    if not table.annotated:
        faults.append(Fault("entries of 'annotations'", REFUSED if use.trained else NOTE, 0, [],
                            'the file has no labels; it can be used for predictions, not for training or evaluation'))
    if folder is not None and all(table.names):
        part = None if use.indices is None else np.flatnonzero(images_of(table, use))
        faults += (absent_images(table.names if part is None else [table.names[i] for i in part], folder)
                   or image_faults(table, folder, pipeline or DEFAULT_PIPELINE, most, part))
    faults.sort(key=lambda fault: SEVERITIES.index(fault.severity))
    classes = list(table.classes)
    return Report(title, counts(table, use), faults, classes,
                  draw=None if folder is None else lambda: samples(path, table, folder, faults))


def image_faults(table: Table, folder: Path, pipeline: Any, most: int | None = MOST_READ,
                 part: np.ndarray | None = None) -> list[Fault]:
    """Faults of the image files: sizes, damage and bit depths; see :func:`.headers.header_faults`."""
    loader = image_loader(pipeline)
    faults = header_faults(table, folder, loader is None or applies_orientation(loader), most, part)
    if any(fault.severity == REFUSED for fault in faults):
        return faults
    return faults + pixel_faults(table, folder, pipeline, most, part)


def counts(table: Table, use: Use) -> dict[str, Any]:
    """Images, objects of each class, sizes, crowds and objects without a segmentation."""
    here, crowd = used(table, use), table.crowd
    objects = here & ~crowd
    kept = host_keeps(table, use)[0] & ~crowd
    area = table.area[objects]
    labelled = len(np.unique(table.image[here]))
    part = {} if use.indices is None else {'images chosen by indices': int(images_of(table, use).sum())}
    return {'images': len(table.names), **part, 'images with annotations': labelled, 'annotations': len(table.ids),
            'objects': {name: int((objects & (table.category == number)).sum())
                        for number, name in enumerate(table.classes) if use.classes is None or name in use.classes},
            'objects read by mmdet': int(kept.sum()),
            'sizes': {'small': int((area < _SMALL).sum()), 'medium': int(((area >= _SMALL) & (area < _MEDIUM)).sum()),
                      'large': int((area >= _MEDIUM).sum())},
            'crowds': int((here & crowd).sum()),
            'without segmentation': int((here & (table.segmentation == ABSENT)).sum())}


def absent_images(names: Sequence[str], folder: Path) -> list[Fault]:
    """Images that are not in the folder, with the cause where it can be seen."""
    present: dict[str, set[str]] = {}
    missing = []
    for name in names:
        below, _, file = name.rpartition('/')
        below = f'{below}/' if name.startswith('/') else below
        if below not in present:  # one scan per folder; one stat per file takes minutes on a network disk
            try:
                present[below] = {entry.name for entry in os.scandir(folder / below)}
            except OSError:
                present[below] = set()
        if file not in present[below]:
            missing.append(name)
    if not missing:
        return []
    cause = _cause(missing[0], folder)
    return [Fault(f'images that are not in {folder}', REFUSED, len(missing), missing[:PLACES],
                  f'of {plural(len(names), "image")}' + (f'; {cause}' if cause else ''))]


def _cause(name: str, folder: Path) -> str:
    if '\\' in name:
        return 'file_name has backslashes; write / instead'
    if name.startswith('/') or name[1:2] == ':':
        return 'file_name is an absolute path; write it relative to the image folder'
    parent = (folder / name).parent
    names = [entry.name for entry in parent.iterdir()] if parent.is_dir() else []
    file = Path(name).name
    same = [one for one in names if one.lower() == file.lower()]
    if same:
        return f'the folder has {same[0]}; upper and lower case must agree'
    stem = [one for one in names if Path(one).stem == Path(name).stem]
    if stem:
        return f'the folder has {stem[0]}, with another suffix'
    if (folder / file).is_file():
        return f'{file} is there without its folder; the image folder or file_name has a part too many'
    return ''


def samples(path: Path, table: Table, folder: Path, faults: Sequence[Fault]) -> list[Sample]:
    """A dozen images: up to half with faults, the others from the classes in turn."""
    named = {name: i for i, name in enumerate(table.names)}
    faulty = {}
    for fault in faults:
        for place in fault.places:
            for name in (place.rpartition(' in ')[2], place.rpartition(' in ')[2].partition(':')[0]):
                if name in named and (folder / name).is_file():
                    faulty.setdefault(named[name], f'{fault.severity}: {fault.kind}')
    chosen = dict(list(faulty.items())[:SAMPLES // 2])
    order = np.lexsort((np.nan_to_num(table.area), table.category))
    groups = [list(dict.fromkeys(table.image[order[table.category[order] == number]].tolist()))
              for number in range(len(table.classes))]
    groups = [[i for i in group if i >= 0 and i not in chosen and (folder / table.names[i]).is_file()]
              for group in groups]
    for i in spread_out(groups, SAMPLES - len(chosen)):
        chosen[i] = ''
    inside = {i: np.flatnonzero(table.image == i) for i in chosen}
    annotations = read_content(path).annotations
    drawn = []
    for i, why in chosen.items():
        caption = f'{table.names[i]}, {plural(len(inside[i]), "annotation")}'
        sample = Sample(folder / table.names[i], why or caption)
        for number in inside[i].tolist():
            _draw(sample, table, number, annotations[number])
        drawn.append(sample)
    return drawn


def _draw(sample: Sample, table: Table, number: int, annotation: Annotation) -> None:
    label = CROWD if table.crowd[number] else int(table.category[number]) if table.category[number] >= 0 else UNKNOWN
    if not np.isnan(table.box[number, 0]):
        sample.boxes.append((*table.box[number].tolist(), label))
    sample.polygons += [(points, label) for points in outlines(annotation.segmentation)]
