"""The plan for classification: a CIFAR ResNet for small images, a ResNet-18 or -50 for others."""
from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..datasets.image_files import ImageFile, copies_within, read_images
from ..datasets.image_mask_folders import find_images_and_masks
from ..datasets.sheet import Sample, spread_out
from ..errors import UserError
from ..utils.files import whole_file
from ..utils.images import IMAGE_SUFFIXES
from ..utils.text import is_printable, listed, plain_name
from .classification_config import config_text
from .fingerprint import ClassificationFingerprint, Problem, refuse_fatal
from .images import file_problems, find_images, held_out, other_files, shown, summarise
from .machine import Machine
from .project import Plan
from .splits import shared_images

VAL_SHARE = 0.2  # of each class, where there is no val folder
_FOLDERS = {'train': 'train', 'val': 'val', 'valid': 'val', 'validation': 'val', 'test': 'test'}
_SPLITS = ('train', 'val', 'test')
_FEW = 10  # training images of a class below which a line says so


@dataclass
class Labelled:
    """An image and its label."""

    file: ImageFile
    label: int


def plan(images: Path, new: Path, machine: Machine, size: str | None = None, pretrained: bool | None = None) -> Plan:
    """Analyse class folders, and write the list of each split to ``new / 'annotations'``.

    Args:
        images: ``<class>/`` folders, or ``train/<class>/``, ``val/<class>/`` and maybe ``test/<class>/``.
        new: the project's folder.
        machine: to plan for.
        size: ``'small'`` (ResNet-18) or ``'base'`` (ResNet-50); None: by the machine.
        pretrained: start from ImageNet weights; None: where the network has some.

    Raises:
        UserError: no plan can be made with these data.
    """
    classes, parts = load_splits(images)
    fingerprint = look_at(images, classes, parts)
    refuse_fatal(fingerprint.problems)
    for split, part in parts.items():
        with whole_file(new / 'annotations' / f'{split}.txt', 'w') as file:
            file.writelines(f'{shown(item.file.path, images)} {item.label}\n' for item in part)
    text = config_text(fingerprint, images.resolve(), machine, size, pretrained)
    last = list(parts)[-1]
    where = images / next((name for name, split in _FOLDERS.items() if split == last and (images / name).is_dir()), '')
    return Plan(fingerprint, text, samples(images, len(classes), parts), classes, (where / classes[0]).absolute())


def load_splits(root: Path) -> tuple[list[str], dict[str, list[Labelled]]]:
    """Find the classes and splits, and read all images.

    Raises:
        UserError: there are fewer than two classes, or the splits' classes differ.
    """
    if not root.is_dir():
        raise UserError(f'no folder {root}')
    folders = {_FOLDERS[path.name]: path for path in _folders(root) if path.name in _FOLDERS}
    if 'train' not in folders:
        classes, items = _load(root)
        return classes, _split(items, len(classes), root)
    strangers = [path.name for path in _folders(root) if path.name not in _FOLDERS]
    if strangers:
        raise UserError(f'{root} has {", ".join(sorted(folders))} and also {listed(strangers)}; are these classes or '
                        'splits? Move one kind away')
    loaded = {split: _load(folders[split]) for split in _SPLITS if split in folders}
    classes, items = loaded['train']
    for split, (names, _) in loaded.items():
        if names != classes:
            wrong = sorted(set(names) ^ set(classes))
            raise UserError(f'{folders[split]} and {folders["train"]} have different classes: {listed(wrong)} is in '
                            'one of them only, so labels would shift')
    parts = {split: part for split, (_, part) in loaded.items()}
    if 'val' not in parts:
        parts = {**parts, **_split(items, len(classes), root)}
    return classes, {split: parts[split] for split in _SPLITS if split in parts}


def _folders(root: Path) -> list[Path]:
    return sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith(('.', '__')))


def _load(root: Path) -> tuple[list[str], list[Labelled]]:
    """The classes in the order of their names, and their images."""
    folders = _folders(root)
    loose = [path.name for path in sorted(root.iterdir()) if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file()]
    if len(folders) < 2:
        raise UserError(f'{root} has {len(folders)} class folders; expected: {root}/<class>/*.jpg with at least two '
                        f'classes{f" ({len(loose)} images lie in no class folder)" if loose else ""}')
    if loose:
        raise UserError(f'{root} has {len(loose)} images in no class folder: {listed(loose)}; move or delete them')
    if odd := [repr(folder.name) for folder in folders if not is_printable(folder.name)]:
        raise UserError(f'{root}: class folders with control characters in their names: {listed(odd)}; rename them')
    same = Counter(plain_name(folder.name) for folder in folders)
    if alike := [repr(folder.name) for folder in folders if same[plain_name(folder.name)] > 1]:
        raise UserError(f'{root}: class folders that differ only by case or spaces are different classes; merge or '
                        f'rename them: {listed(alike)}')
    if (masks := find_images_and_masks(folders)) and masks.named:
        raise UserError(masks.finding().text)
    paths = {folder.name: find_images(folder) for folder in folders}
    if empty := [name for name, found in paths.items() if not found]:
        raise UserError(f'{root}: no images ({" ".join(IMAGE_SUFFIXES)}) in {listed(empty)}; delete these folders, or '
                        'put images there')
    labels = [label for label, found in enumerate(paths.values()) for _ in found]
    files = read_images([path for found in paths.values() for path in found], root.name)
    return list(paths), [Labelled(file, label) for file, label in zip(files, labels, strict=True)]


def _split(items: list[Labelled], classes: int, root: Path) -> dict[str, list[Labelled]]:
    """Hold out a fifth of each class by the hash of the content."""
    held = set()
    for label in range(classes):
        part = held_out([item.file for item in items if item.label == label], VAL_SHARE)
        if not part:
            raise UserError(f'{root}: class {label} has one image, or copies of one; a split needs two of each class')
        held |= part
    return {'train': [item for item in items if item.file.sha256 not in held],
            'val': [item for item in items if item.file.sha256 in held]}


def look_at(root: Path, classes: list[str], parts: dict[str, list[Labelled]]) -> ClassificationFingerprint:
    """The fingerprint of a data set in splits."""
    counts = {split: {name: sum(item.label == label for item in part) for label, name in enumerate(classes)}
              for split, part in parts.items()}
    everything = [item for part in parts.values() for item in part]
    return ClassificationFingerprint(
        'classification', {split: len(part) for split, part in parts.items()}, classes,
        summarise([item.file for item in everything]), _problems(root, classes, parts, counts), counts)


def _problems(root: Path, classes: Sequence[str], parts: dict[str, list[Labelled]],
              counts: dict[str, dict[str, int]]) -> list[Problem]:
    everything = [item for part in parts.values() for item in part]
    found = file_problems([item.file for item in everything], root)
    known = ' '.join(IMAGE_SUFFIXES)
    found.append(Problem(f'files of other types (skipped; known types: {known})',
                         [shown(path, root) for path in other_files(root)]))
    nested = {item.file.path.parent for item in everything if item.file.path.parent.name != classes[item.label]}
    found.append(Problem('sub-folders of class folders (their images count to the class of the first folder)',
                         [shown(path, root) for path in sorted(nested)]))
    labels: dict[str, set[int]] = {}
    for item in everything:
        labels.setdefault(item.file.sha256, set()).add(item.label)
    found.append(Problem('images in more than one class', [
        shown(item.file.path, root) for item in everything if len(labels[item.file.sha256]) > 1]))
    for split, part in parts.items():
        found.append(Problem('images that are copies of another', [
            shown(file.path, root) for file in copies_within([item.file for item in part])], split=split))
        found.append(Problem('classes without an image', [name for name, count in counts[split].items() if not count],
                             fatal=split == 'train', split=split))
    found.append(Problem(f'classes with fewer than {_FEW} images', [
        f'{name}: {count}' for name, count in counts['train'].items() if 0 < count < _FEW], split='train'))
    found.append(Problem('images more than twice as long as wide, whose ends are cut off or squeezed', [
        shown(item.file.path, root) for item in everything
        if max(item.file.width, item.file.height) > 2 * min(item.file.width, item.file.height)]))
    found += shared_images({split: [item.file for item in part] for split, part in parts.items()})
    return [problem for problem in found if problem.places]


def samples(root: Path, classes: int, parts: dict[str, list[Labelled]]) -> list[Sample]:
    """A dozen images, from the classes in turn."""
    everything = [(split, item) for split, part in parts.items() for item in part]
    groups = [[number for number, (_, item) in enumerate(everything) if item.label == label]
              for label in range(classes)]
    return [Sample(item.file.path, f'{split}: {shown(item.file.path, root)}',
                   boxes=[(0, 0, item.file.width, item.file.height, item.label)])  # a frame with the class's name
            for split, item in (everything[number] for number in spread_out(groups))]
