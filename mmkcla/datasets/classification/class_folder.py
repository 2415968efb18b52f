"""Read the classes and labels of mmpretrain's class folders and annotation lists, and find what is wrong with them."""
from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...utils.images import IMAGE_SUFFIXES
from ...utils.text import is_printable, listed, plain_name, plural
from ..findings import Finding
from ..image_files import ImageFile
from ..image_mask_folders import find_images_and_masks

SPLITS = {'train', 'training', 'val', 'valid', 'validation', 'test', 'testing'}
_OTHER_IMAGES = {*IMAGE_SUFFIXES, '.gif', '.jfif', '.heic', '.avif', '.jp2', '.pgm', '.dcm', '.npy', '.svg'}


@dataclass
class ClassFolder:
    """Images and labels as mmpretrain's ``CustomDataset`` reads them.

    Attributes:
        root: folder of the images.
        source: the folder or the annotation file, for messages.
        folders: names of the class folders in the order of the labels; empty with an annotation file.
        classes: class names: those of the config or of the data set class, else the folders; None: unknown.
        stated: whether the config or the class states the class names.
        images: paths of the images.
        labels: one for each image; empty without labels.
        empty: class folders without images, with the suffixes of their files that are not read.
        findings: what is wrong.
    """

    root: Path
    source: Path
    folders: tuple[str, ...] = ()
    classes: tuple[str, ...] | None = None
    stated: bool = False
    images: list[Path] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    empty: dict[str, Counter[str]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def count(self) -> dict[int, int]:
        """Number of images of each label."""
        return dict(sorted(Counter(self.labels).items()))


def read_class_folder(dataset: Any) -> ClassFolder:
    """Read a ``CustomDataset`` that was built with ``lazy_init=True``.

    Args:
        dataset: mmpretrain's ``CustomDataset`` or a subclass that reads its files in the same way.
    """
    root = Path(dataset.img_prefix)
    classes = None if dataset.CLASSES is None else tuple(dataset.CLASSES)
    found = ClassFolder(root, Path(dataset.ann_file or root), classes=classes, stated=classes is not None)
    if dataset.ann_file:
        _read_list(found, Path(dataset.ann_file), dataset.with_label)
    elif not root.is_dir():
        found.findings.append(Finding(f'no image folder {root}; set data_root and data_prefix', True))
    elif dataset.with_label:
        _read_folders(found, tuple(dataset.extensions))
    else:
        _walk(found, root, None, tuple(dataset.extensions), Counter())
    if not found.images and not any(finding.refuse for finding in found.findings):
        found.findings.append(Finding(f'no images ({" ".join(sorted(dataset.extensions))}) in {found.source}', True))
    return found


def _read_folders(found: ClassFolder, extensions: tuple[str, ...]) -> None:
    # the host lists folders whose names start with a dot, too
    found.folders = tuple(sorted(entry.name for entry in os.scandir(found.root) if entry.is_dir()))
    found.classes = found.classes or found.folders
    skipped: Counter[str] = Counter()
    loose = [entry.name for entry in os.scandir(found.root) if _is_image(entry, extensions)]
    nested: dict[str, list[str]] = {}
    for label, name in enumerate(found.folders):
        others: Counter[str] = Counter()
        nested[name] = _walk(found, found.root / name, label, extensions, others)
        skipped.update(others)
        if not found.labels or found.labels[-1] != label:
            found.empty[name] = others
    found.findings += [
        *_folder_names(found, nested),
        *_some(f'{plural(len(loose), "image")} directly in {found.root} {"is" if len(loose) == 1 else "are"} skipped, '
               'since only class folders are read', sorted(loose)),
        *_some(f'{plural(sum(skipped.values()), "image")} skipped because of the suffix (set extensions to add some)',
               [f'{suffix} ({count})' for suffix, count in sorted(skipped.items())], sum(skipped.values()))]


def _walk(found: ClassFolder, folder: Path, label: int | None, extensions: tuple[str, ...],
          skipped: Counter[str]) -> list[str]:
    """Collect the images below a folder; return its sub-folders that have images."""
    nested, images = [], []
    for place, _, names in os.walk(folder):
        inside = False
        for name in names:
            if name.startswith('.'):  # the host skips hidden files
                continue
            if name.lower().endswith(extensions):
                images.append(Path(place, name))
                inside = True
            elif Path(name).suffix.lower() in _OTHER_IMAGES:
                skipped[Path(name).suffix.lower()] += 1
        if inside and Path(place) != folder:
            nested.append(Path(place).relative_to(folder).as_posix())
    images.sort(key=str)
    found.images += images
    if label is not None:
        found.labels += [label] * len(images)
    return sorted(nested)


def empty_findings(found: ClassFolder, trained_on: bool) -> list[Finding]:
    """Classes without an image: because of the suffixes of their files, or since their folders are empty.

    Args:
        found: what was read.
        trained_on: whether the set is the training set.
    """
    lost = [f'{name} ({", ".join(f"{count} {suffix}" for suffix, count in sorted(files.items()))})'
            for name, files in found.empty.items() if files]
    bare = [name for name, files in found.empty.items() if not files and not _is_no_class(name)]
    findings = []
    if lost:
        findings.append(Finding(f'{plural(len(lost), "class folder")} whose images all have suffixes that are not '
                                'read; set extensions to add some, or convert the images', True, len(lost), lost))
    if bare and trained_on and not found.stated:
        findings.append(Finding(f'{plural(len(bare), "class folder")} of the training set without images, so that '
                                'these classes are never learned; add images, remove the folders, or set classes if '
                                'this is intended', True, len(bare), bare))
    elif bare:
        findings += _some(f'{plural(len(bare), "class folder")} without images', bare)
    if trained_on and found.labels and not found.folders:
        absent = [name for label, name in enumerate(found.classes or ()) if label not in set(found.labels)]
        findings += _some(f'{plural(len(absent), "class")} without an image in {found.source}', absent)
    return findings


def same_content(found: ClassFolder, images: Sequence[ImageFile]) -> list[Finding]:
    """Images with the same bytes as an image of another class.

    Args:
        found: what was read.
        images: those of its images that were read.
    """
    label_of = dict(zip(found.images, found.labels, strict=False))
    classes: dict[str, dict[int, Path]] = {}
    number: Counter[str] = Counter()
    for image in images:
        if image.sha256 and image.path in label_of:
            classes.setdefault(image.sha256, {}).setdefault(label_of[image.path], image.path)
            number[image.sha256] += 1
    places = [' and '.join(f'{path} ({_class_name(found, label)})' for label, path in sorted(labels.items()))
              for labels in classes.values() if len(labels) > 1]
    total = sum(number[digest] for digest, labels in classes.items() if len(labels) > 1)
    return _some(f'{plural(total, "image")} with the same content as an image of another class, so that the labels '
                 'contradict each other', places, len(places))


def _class_name(found: ClassFolder, label: int) -> str:
    return found.classes[label] if found.classes and 0 <= label < len(found.classes) else str(label)


def _is_no_class(name: str) -> bool:
    return name.startswith(('.', '__MACOSX'))


def _is_image(entry: os.DirEntry, extensions: tuple[str, ...]) -> bool:
    return entry.is_file() and not entry.name.startswith('.') and entry.name.lower().endswith(extensions)


def _folder_names(found: ClassFolder, nested: dict[str, list[str]]) -> list[Finding]:
    """Faults in the names of the folders."""
    names, root = found.folders, found.root
    findings = []
    visible = [name for name in names if not _is_no_class(name)]
    hidden = [name for name in names if name not in visible]
    if hidden:
        findings.append(Finding(f'folders in {root} that are no classes become classes and shift the labels; remove '
                                'them', True, len(hidden), hidden))
    if visible and set(map(str.lower, visible)) <= SPLITS:
        findings.append(Finding(f'the class folders of {root} are {listed(visible)}, so the splits would be the '
                                f"classes; set data_prefix='{visible[0]}'", True))
    elif len(visible) == 1 and len(nested[visible[0]]) > 1:
        findings.append(Finding(f'{root} has one class folder, {visible[0]}, and that has the sub-folders '
                                f"{listed(nested[visible[0]])}; set data_prefix to it if these are the classes", True))
    else:
        deep = [f'{name}/{part}' for name, parts in nested.items() for part in parts]
        findings += _some(f'{plural(len(deep), "sub-folder")} of class folders; the images count to the class of the '
                          'first folder', deep)
    if odd := [repr(name) for name in names if not is_printable(name)]:
        findings.append(Finding('class folders with control characters in their names; rename them', True,
                                len(odd), odd))
    lower = Counter(map(plain_name, names))
    alike = [repr(name) for name in names if lower[plain_name(name)] > 1]
    if alike:
        findings.append(Finding('class folders that differ only by case or spaces are different classes; merge or '
                                'rename them',
                                True, len(alike), alike))
    if not names:
        findings.append(Finding(f'no class folders in {root}; expected {root}/<class>/<image>, or an ann_file', True))
    if masks := find_images_and_masks([root / name for name in visible]):
        findings.append(masks.finding())
    if found.stated and names and found.classes is not None:
        findings += _stated_classes(names, found.classes, root)
    return findings


def _stated_classes(folders: tuple[str, ...], classes: tuple[str, ...], root: Path) -> list[Finding]:
    """Compare stated classes with the folders: labels follow the sorted folders, whatever the names say."""
    absent = [name for name in classes if name not in folders]
    if len(folders) != len(classes):
        extra = [name for name in folders if name not in classes]
        if len(folders) < len(classes) and not extra:
            return [Finding(f'{plural(len(absent), "class")} without a folder in {root}, so that the labels would '
                            'shift; add empty folders of these names', True, len(absent), absent)]
        return [Finding(f'{root} has {plural(len(folders), "class folder")} ({listed(folders)}), but there are '
                        f'{plural(len(classes), "class")} ({listed(classes)})', True)]
    moved = [name for label, name in enumerate(folders) if name in classes and classes[label] != name]
    if moved:
        return [Finding(f'the classes are not in the order of the folders of {root}, so their names would be swapped; '
                        f'write classes=({", ".join(map(repr, sorted(classes)))},)' if not absent else
                        f'the classes do not match the folders of {root}, so names would be swapped', True, len(moved),
                        moved)]
    return []


def _read_list(found: ClassFolder, path: Path, with_label: bool) -> None:
    """Read an annotation list of lines ``name label`` (or ``name``), as the host does."""
    if not path.is_file():
        found.findings.append(Finding(f'no annotation file {path} (ann_file)', True))
        return
    try:
        lines = path.read_text(encoding='utf-8').splitlines()
    except UnicodeDecodeError as error:
        found.findings.append(Finding(f'{path} is not a text file ({error.reason})', True))
        return
    wrong, seen, twice = [], {}, []
    if lines and lines[0].startswith('\ufeff'):
        found.findings.append(Finding(f'{path} starts with a byte order mark, which becomes part of the first name; '
                                      'save it without', True))
    for number, line in enumerate(lines, start=1):
        name, label = _split(line) if with_label else (line, 0)
        if label is None or not name:
            wrong.append(f'line {number} ({line[:60]!r})')
            continue
        if seen.setdefault(name, label) != label:
            twice.append(f'{name} ({seen[name]} and {label})')
        found.images.append(found.root / name)
        if with_label:
            found.labels.append(label)
    if wrong:
        form = "'<name> <label>', with one space and the label as a number from 0" if with_label else "'<name>'"
        found.findings.append(Finding(f'{plural(len(wrong), "line")} of {path} {"is" if len(wrong) == 1 else "are"} '
                                      f'not {form}', True, len(wrong), wrong))
    if twice:
        found.findings.append(Finding(f'{plural(len(twice), "image")} of {path} with two labels', True, len(twice),
                                      twice))


def _split(line: str) -> tuple[str, int | None]:
    """Name and label of a line; the label is None where the host cannot read it."""
    parts = line.strip().rsplit(' ', 1)
    if len(parts) != 2 or parts[0] != parts[0].strip():
        return line, None
    try:
        return parts[0], int(parts[1])
    except ValueError:
        return line, None


def label_findings(found: ClassFolder, number: int | None) -> list[Finding]:
    """Labels of an annotation list outside the classes.

    Args:
        found: what was read.
        number: number of classes; None: unknown.
    """
    if not found.labels or found.folders:
        return []
    low, high = min(found.labels), max(found.labels)
    if low < 0 or (number is not None and high >= number):
        outside = [f'{path.name} ({label})' for path, label in zip(found.images, found.labels, strict=True)
                   if label < 0 or (number is not None and label >= number)]
        start = ' (they start at 1: subtract 1)' if low == 1 and high == number else ''
        known = '' if number is None else f' to {number - 1}'
        return [Finding(f'{plural(len(outside), "label")} of {found.source} outside the range 0{known}{start}', True,
                        len(outside), outside)]
    if low > 0:
        return [Finding(f'the labels of {found.source} are {low} to {high}; no image has a label below {low}')]
    return []


def _some(text: str, places: list[str], count: int | None = None) -> list[Finding]:
    return [Finding(text, False, len(places) if count is None else count, places)] if places else []
