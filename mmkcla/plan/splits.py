"""Images that several splits share."""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..datasets.image_files import ImageFile, copies_between
from .fingerprint import Problem


def shared_images(files: Mapping[str, Sequence[ImageFile]]) -> list[Problem]:
    """Images of one split that are in another, too: fatal where a whole split was trained on."""
    found = []
    names = list(files)
    for number, first in enumerate(names):
        for second in names[number + 1:]:
            copies = copies_between(files[first], files[second])
            every = len(copies) == len(files[second]) and first == 'train'
            why = (f' (all of them, so that {second} measures nothing)' if every else
                   ' (the checkpoint is chosen on them, so the figures are optimistic)' if first == 'val' else '')
            found.append(Problem(f'images that are in {first}, too{why}',
                [file.path.name for file in copies], fatal=every, split=second))
    return [problem for problem in found if problem.places]
