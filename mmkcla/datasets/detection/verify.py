"""Reports on COCO files for ``mmkcla data verify``."""
from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

from ...errors import UserError
from ...registry import DATA_REPORTS, PATH_REPORTS
from ...utils.text import listed, note
from ..check import Dataset, classes_of
from ..findings import PLACES
from ..report import NOTE, REFUSED, Fault, Report
from .check import check_paths, is_remote, use_of
from .coco.cache import cached_table
from .coco.faults import Use
from .coco.report import write_report
from .folders import folders_of


@DATA_REPORTS.register_module('CocoDataset')
def report_coco(dataset: Dataset, config: Any) -> Report | None:
    """Report on the annotation file and the images of a data set in COCO format.

    Raises:
        UserError: a file or folder is missing, or the file is not in COCO format.
    """
    if is_remote(dataset):
        return None
    annotations, folder = check_paths(dataset)
    use = use_of(dataset, config.get('model') or {}, classes_of(dataset))
    table = cached_table(annotations)
    return write_report(f'{dataset.where}: {annotations}', annotations, table, use, folder,
                        dataset.config.get('pipeline'))


@PATH_REPORTS.register_module('coco')
def report_file(path: Path) -> Report | None:
    """Report on a COCO file without a config; its images are looked for beside it. None for other paths."""
    if path.suffix.lower() != '.json' or not path.is_file():
        return None
    table = cached_table(path)
    folders = find_folders(table.names, path)
    folder = folders[0] if folders else None
    report = write_report(str(path), path, table, Use(trained=False, masks=None), folder)
    if not table.names:
        report.faults.insert(0, Fault('the file lists no images', REFUSED, 1, []))
    elif folder is None:
        report.faults.insert(0, Fault('images that are in no folder around the file, so that none was checked', REFUSED,
                                      len(table.names), list(table.names[:PLACES]), 'verify a config instead'))
    if len(folders) > 1:
        report.faults.append(Fault('folders that have the images of the file, with different content', NOTE,
                                   len(folders), list(map(str, folders[:PLACES])), f'{folders[0]} was checked; verify '
                                   'a config, which names the image folder'))
    if folder is not None:
        report.counts['image folder'] = str(folder)
    return report


@PATH_REPORTS.register_module('coco folder')
def report_files(path: Path) -> list[Report] | None:
    """Reports on the COCO files of a folder: in it, in ``annotations``, or as ``<split>/_annotations.coco.json``.

    None if there are none.
    """
    if not path.is_dir():
        return None
    reports, others = [], []
    places = ('*.json', 'annotations/*.json', '*/_annotations.coco.json')
    for file in sorted({file for place in places for file in path.glob(place)}):
        if 'panoptic' in file.name or not looks_like_coco(file):
            others.append(file.name)
        else:
            reports.append(report_file(file))
    if reports and others:
        note(f'{path}: not checked, since they are no COCO files of objects: {listed(others)}')
    return reports or None


def looks_like_coco(path: Path) -> bool:
    """Whether a file has the keys of a COCO file, even if it is damaged. Captions, for example, have no categories."""
    if not path.stat().st_size:
        return False
    with open(path, 'rb') as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data.find(b'"images"') >= 0 and data.find(b'"categories"') >= 0


def find_folders(names: list[str], path: Path) -> list[Path]:
    """The folder with most of the first images: that of the file, one beside it, or one beside its parent.

    Several if they have the same names but other images, and none belongs to the file by its name; empty if there is
    none.
    """
    candidates = [path.parent, path.parent.parent]
    for parent in (path.parent, path.parent.parent):
        try:
            candidates += sorted(entry for entry in parent.iterdir() if entry.is_dir())
        except OSError as error:
            raise UserError(f'cannot list {parent}: {error.strerror}') from error
    return folders_of([name for name in names if name][:20], candidates, path)
