"""The image folder of a COCO file, found by the file names and by the name of the folder."""
from __future__ import annotations

import filecmp
import re
from collections.abc import Sequence
from pathlib import Path

_COMPARED = 20  # images that tell two folders with the same names apart


def folders_of(names: Sequence[str], candidates: Sequence[Path], file: Path) -> list[Path]:
    """The folder with most of the images; several if neither their names nor their images decide.

    Of folders with equally many, the one of the annotation file is chosen, then the one whose name belongs to it:
    ``val`` to ``val.json``, ``val2017`` to ``instances_val2017.json``.

    Args:
        names: of the image files.
        candidates: folders to look in.
        file: the annotation file.

    Returns:
        Empty if no image is in any of them.
    """
    present = [sum((candidate / name).is_file() for name in names if name) for candidate in candidates]
    if not any(present):
        return []
    best = [candidate for candidate, number in zip(candidates, present, strict=True) if number == max(present)]
    best = list(dict.fromkeys(best))
    if file.parent in best:
        return [file.parent]
    words = _words(file.stem)
    shared = [len(words & _words(candidate.name)) for candidate in best]
    best = [candidate for candidate, number in zip(best, shared, strict=True) if number == max(shared)]
    first, *others = best
    chosen = [name for name in names if name and (first / name).is_file()][:_COMPARED]
    return [first, *(other for other in others if not _same_images(first, other, chosen))]


def _words(name: str) -> set[str]:
    """The words and numbers of a name; ``valid`` and ``validation`` are ``val``."""
    return {'val' if word in ('valid', 'validation') else word
            for word in re.findall('[a-z]+|[0-9]+', name.lower())}


def _same_images(first: Path, second: Path, names: Sequence[str]) -> bool:
    return all((second / name).is_file() and filecmp.cmp(first / name, second / name, shallow=False)
               for name in names)
