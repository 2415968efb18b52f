"""What the download of a data set looks like, and which image and which mask of it belong together."""
from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from mmkcla.datasets.segmentation.converters.sources import SourceFile
from mmkcla.errors import UserError
from mmkcla.utils.images import IMAGE_SUFFIXES
from mmkcla.utils.text import printable

MISSING_PART = 'missing part'
NOT_THERE = 'in the split file, not in the data'


@dataclass(frozen=True)
class Part:
    """One part of a download.

    Attributes:
        name: the split that it officially is (``train``, ``val``, ``test``), or ``all``.
        images, masks: the folders of its images and masks; zip files have these names, too.
    """

    name: str
    images: str
    masks: str


@dataclass(frozen=True)
class Layout:
    """One data set as published.

    Attributes:
        name: of the data set, as in ``data/<name>``.
        title: of the data set, for people.
        parts: those that there are.
        archives: the zip files' names without ``.zip``; each is read as a folder of that name.
        split: the default of ``--split``.
        drawn: the parts that a split by ratio is drawn from.
        mask_name: the image's name from the mask's, both without suffix.
        skipped: files of the image folders that are no images, by name without suffix.
        about_splits: for ``--help`` and the manifest.
    """

    name: str
    title: str
    parts: tuple[Part, ...]
    archives: tuple[str, ...]
    split: str
    drawn: tuple[str, ...]
    mask_name: Callable[[str], str] = field(default=lambda stem: stem)
    skipped: re.Pattern = re.compile('(?!)')
    about_splits: str = ''

    @property
    def official(self) -> bool:
        """Whether the parts are the published splits."""
        return self.split == 'official'


@dataclass(frozen=True)
class Pair:
    """An image and its mask. ``name`` is the file name of both, without suffix."""

    name: str
    part: str
    image: SourceFile
    mask: SourceFile


@dataclass(frozen=True, order=True)
class Problem:
    """Something that was found: its kind, the file (``folder/name``), a detail, and whether the pair is kept."""

    kind: str
    file: str
    detail: str = ''
    kept: bool = False

    def __str__(self) -> str:
        detail = f' ({self.detail})' if self.detail else ''
        return printable(f'{self.kind}: {self.file}{detail}')


def label(file: SourceFile) -> str:
    """``folder/name`` of a source file: the same in a zip file and unpacked."""
    return '/'.join(file.parts[-2:])


def find_pairs(layout: Layout, files: Iterable[SourceFile], source: object) -> tuple[list[Pair], list[Problem],
                                                                                      list[str]]:
    """Pair images and masks by their names.

    Args:
        layout: of the data set.
        files: of :func:`~mmkcla.datasets.segmentation.converters.sources.list_files`.
        source: where they are from, for errors.

    Returns:
        The pairs, sorted by part (as in the layout) and name; the problems (parts that are missing, files without a
        partner, names that are there twice); remarks for people (folders beside their zip file).

    Raises:
        UserError: the first part is not there, or there is a second copy of a part.
    """
    files = list(files)
    found = _by_folder(layout, files)
    pairs, problems, remarks, seen = [], [], [], {}
    for part in reversed(layout.parts):  # of a name in two parts the test set keeps its own
        folders = {folder: _one_source(found[folder], folder, remarks) for folder in (part.images, part.masks)}
        missing = [_where(layout, folder) for folder, content in folders.items() if not content]
        if missing and part is layout.parts[0]:
            others = [file.name for file in files if file.member is None and file.name.lower().endswith('.zip')]
            raise UserError(f'no {" and no ".join(missing)} in {source}; {layout.title} needs both of '
                            f'{_where(layout, part.images)} and {_where(layout, part.masks)}'
                            + (f' (zip files not read, for their names: {", ".join(others[:5])}'
                               f'{", ..." if len(others) > 5 else ""}; those read are called '
                               f'{", ".join(f"{name}.zip" for name in layout.archives)})' if others else ''))
        if missing:
            problems += [Problem(MISSING_PART, folder, f'{part.name} is left out') for folder in missing]
            continue
        images = _by_name(folders[part.images], lambda stem: stem, problems, source)
        masks = _by_name(folders[part.masks], layout.mask_name, problems, source)
        problems += [Problem('image without mask', label(images[name])) for name in images.keys() - masks.keys()]
        problems += [Problem('mask without image', label(masks[name])) for name in masks.keys() - images.keys()]
        for name in sorted(images.keys() & masks.keys()):
            if name in seen:
                problems.append(Problem('name in two parts', label(images[name]), f'also in {seen[name]}'))
                continue
            seen[name] = part.name
            pairs.append(Pair(name, part.name, images[name], masks[name]))
    order = [part.name for part in layout.parts]
    return sorted(pairs, key=lambda pair: (order.index(pair.part), pair.name)), problems, remarks[::-1]


def _by_folder(layout: Layout, files: Iterable[SourceFile]) -> dict[str, list[SourceFile]]:
    """The images and masks of each folder of the layout; the folder nearest to a file counts."""
    folders = {folder.casefold(): folder for part in layout.parts for folder in (part.images, part.masks)}
    found = defaultdict(list)
    for file in files:
        path = PurePosixPath(file.name)
        if path.suffix.lower() not in IMAGE_SUFFIXES or layout.skipped.search(path.stem):
            continue
        # Published splits have names that cannot be mistaken; "images" and "masks" can, and must be the last folder.
        above = file.parts[-2::-1] if layout.official else file.parts[-2:-1]
        for name in above:
            if name.casefold() in folders:
                found[folders[name.casefold()]].append(file)
                break
    return found


def _one_source(files: list[SourceFile], folder: str, remarks: list[str]) -> list[SourceFile]:
    """The files of the zip file only, where there are also unpacked ones."""
    zipped = [file for file in files if file.member is not None]
    if zipped and len(zipped) < len(files):
        remarks.append(f'{folder} is there as a zip file and unpacked; the zip file {zipped[0].path.name} is read')
    return zipped or files


def _by_name(files: list[SourceFile], image_name: Callable[[str], str], problems: list[Problem],
             source: object) -> dict[str, SourceFile]:
    """Files by their image's name; those of one name are problems and left out, all of them.

    Raises:
        UserError: those are most, and lie in several folders: copies of one.
    """
    names = [image_name(PurePosixPath(file.name).stem) for file in files]
    counts = Counter(names)
    twice = sum(count > 1 for count in counts.values())
    places = sorted({'/'.join(file.parts[:-1]) for name, file in zip(names, files, strict=True) if counts[name] > 1})
    if 2 * twice > len(counts) and len(places) > 1:
        number = 'every name is' if twice == len(counts) else f'{twice} of {len(counts)} names are'
        raise UserError(f'{source}: {number} there more than once, in {" and in ".join(places[:5])}'
                        f'{", ..." if len(places) > 5 else ""}; leave one copy')
    problems += [Problem('name twice', label(file), f'{counts[name]} files of this name')
                 for name, file in zip(names, files, strict=True) if counts[name] > 1]
    return {name: file for name, file in zip(names, files, strict=True) if counts[name] == 1}


def _where(layout: Layout, folder: str) -> str:
    return f'{folder}.zip' if folder in layout.archives else f'folder {folder}'
