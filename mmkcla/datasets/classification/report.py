"""Reports on class folders for ``mmkcla data verify``."""
from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ...errors import UserError
from ...registry import DATA_REPORTS, PATH_REPORTS
from ...utils.images import IMAGE_SUFFIXES
from ..check import Dataset
from ..findings import Finding
from ..image_files import ImageFile, depth_findings, file_findings, leak, read_images
from ..image_mask_folders import find_images_and_masks
from ..report import Report, faults_of
from ..sheet import Sample, spread_out
from .check import check_model, class_folder_of, compare_folders, compare_with_train, files_of
from .class_folder import SPLITS, ClassFolder, empty_findings, label_findings, read_class_folder, same_content

# suffixes that mmpretrain's CustomDataset reads unless the config says otherwise
_EXTENSIONS = ('.jpg', '.jpeg', '.png', '.ppm', '.bmp', '.pgm', '.tif')


@DATA_REPORTS.register_module(['CustomDataset', 'ImageNet', 'ImageNet21k', 'Places205'])
def report_class_folder(dataset: Dataset, config: Any) -> Report | None:
    """Report on class folders or an annotation list as mmpretrain reads them; every image is decoded."""
    found = class_folder_of(dataset)
    if found is None:
        return None
    model = config.get('model') or {}
    images = read_images(found.images, decode=True)
    findings = [*found.findings, *empty_findings(found, dataset.trained_on),
                *label_findings(found, len(found.classes) if found.classes else None),
                *compare_with_train(dataset, found), *files_of(dataset, found, images)]
    try:
        check_model(dataset, model, found)
    except UserError as error:
        findings.append(Finding(str(error), True))
    return _report(f'{dataset.where}: {found.source}', [('', found, images)], findings)


@PATH_REPORTS.register_module('class folder')
def report_folder(path: Path) -> Report | None:
    """Report on ``<class>/<image>`` or ``<split>/<class>/<image>`` without a config. None for other paths."""
    if not path.is_dir():
        return None
    below = _folders(path)
    splits = [entry for entry in below if entry.name in SPLITS and _has_classes(entry)]
    if found := _segmentation(path, splits):
        return found
    if (path / 'images').is_dir() or (path / 'masks').is_dir():
        return None
    if not splits and not _has_classes(path):
        return None
    parts, findings = [], []
    for folder in splits or [path]:
        found = read_class_folder(SimpleNamespace(img_prefix=str(folder), CLASSES=None, ann_file='', with_label=True,
                                                  extensions=_EXTENSIONS))
        images = read_images(found.images, decode=True)
        findings += [*found.findings, *empty_findings(found, folder.name.startswith('train')),
                     *file_findings(images, len(images)), *same_content(found, images),
                     *depth_findings(images, dict(type='mmkcla.LoadImageFromFile'))]
        parts.append((folder.name if splits else '', found, images))
    train = next((part for part in parts if part[0].startswith('train')), None)
    for name, found, images in parts if train else ():
        if name != train[0]:
            findings += compare_folders(train[1].folders, found.folders, train[0], found)
            findings += leak(train[2], images, train[0])
    return _report(str(path), parts, findings)


def _segmentation(path: Path, splits: Sequence[Path]) -> Report | None:
    """The report on folders of images and masks that are not prepared yet; None for others."""
    if any((path / 'images' / split).is_dir() for split in SPLITS) and (path / 'masks').is_dir():
        return None
    found = [pair for folder in splits or [path] if (pair := find_images_and_masks(_folders(folder))) and pair.named]
    return Report(str(path), {}, faults_of([pair.finding() for pair in found])) if found else None


def _folders(path: Path) -> list[Path]:
    return sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith('.'))


def _has_classes(folder: Path) -> bool:
    """Whether there are sub-folders with images directly in them."""
    return any(entry.is_dir() and any(file.suffix.lower() in IMAGE_SUFFIXES for file in entry.iterdir())
               for entry in folder.iterdir())


def _report(title: str, parts: Sequence[tuple[str, ClassFolder, list[ImageFile]]], findings: list[Finding]) -> Report:
    classes = next((found.classes for _, found, _ in parts if found.classes), None) or ()
    counts: dict[str, Any] = {}
    for name, found, images in parts:
        of = f' of {name}' if name else ''
        good = [image for image in images if image.problem is None]
        counts[f'images{of}'] = len(found.images)
        counts[f'classes{of}'] = {classes[label] if 0 <= label < len(classes) else str(label): number
                                  for label, number in found.count().items()}
        if good:
            widths, heights = [image.width for image in good], [image.height for image in good]
            counts[f'width{of}'] = f'{min(widths)} to {max(widths)}'
            counts[f'height{of}'] = f'{min(heights)} to {max(heights)}'
            counts[f'bits per channel{of}'] = {str(bits): number for bits, number in
                                               sorted(Counter(image.bits for image in good).items())}

    def draw() -> list[Sample]:
        items = [(image.path, label, name) for name, found, images in parts
                 for image, label in zip(images, found.labels or [0] * len(images), strict=True)
                 if image.problem is None]
        groups: dict[int, list[int]] = {}
        for number, (_, label, _) in enumerate(items):
            groups.setdefault(label, []).append(number)
        shown = [items[number] for number in spread_out(list(groups.values()))]
        return [Sample(path, ' '.join(filter(None, (name, classes[label] if label < len(classes) else str(label),
                                                    path.name)))) for path, label, name in shown]

    order = sorted(findings, key=lambda finding: not finding.refuse)
    return Report(title, counts, faults_of(order), classes, draw=draw)
