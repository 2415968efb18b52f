"""Data sets of rectified image pairs with the disparity of the left view."""
from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from mmengine.dataset import BaseDataset

from ..errors import UserError
from ..registry import DATASETS
from ..utils.images import IMAGE_SUFFIXES
from .disparity import SUFFIXES

PASSES = ('finalpass', 'cleanpass')
SPLITS = ('TRAIN', 'TEST')


class _StereoDataset(BaseDataset):
    """Entries have ``left_path``, ``right_path``, ``name`` and, if available, ``disparity_path`` and
    ``occlusion_path``."""

    METAINFO: ClassVar[dict] = dict(task='stereo')

    def _folder(self) -> Path:
        if not self.data_root:
            raise UserError(f'{type(self).__name__}: data_root is not set')
        folder = Path(self.data_root)
        if not folder.is_dir():
            raise UserError(f'{type(self).__name__}: data_root {folder} is not a folder; {self._expected()}')
        return folder

    def _expected(self) -> str:
        raise NotImplementedError

    def _refuse_missing(self, missing: Sequence[Path], of: int, what: str) -> None:
        if missing:
            names = ', '.join(map(str, missing[:3])) + (', …' if len(missing) > 3 else '')
            raise UserError(f'{type(self).__name__}: {len(missing)} of {of} left images have no {what} ({names})')


@DATASETS.register_module()
class StereoPairDataset(_StereoDataset):
    """A folder with ``left/``, ``right/``, ``disparity/`` and optionally ``occlusion/``; files of a pair share a name.

    Disparities are PFM files, NumPy files or 16-bit PNGs (:func:`~mmkcla.stereo.disparity.read_disparity`). Non-zero
    pixels in ``occlusion/<name>.png`` are not visible in the right view.

    Args:
        data_root: the folder.
        kwargs: passed to mmengine's ``BaseDataset``. With ``test_mode`` the folder ``disparity`` is optional.

    Raises:
        UserError: for a missing folder, no images, or images without a counterpart (names them).
    """

    def __init__(self, data_root: str = '', **kwargs: Any) -> None:
        super().__init__(data_root=data_root, **{'data_prefix': {}, **kwargs})

    def _expected(self) -> str:
        return ('it must contain left/, right/ and disparity/ with the same file names '
                '(tools/dataset_converters/motorcycle.py writes this layout)')

    def load_data_list(self) -> list[dict]:
        """Match the files of a pair by name."""
        root = self._folder()
        left = _by_stem(root / 'left', IMAGE_SUFFIXES)
        if not left:
            raise UserError(f'{type(self).__name__}: no images ({" ".join(IMAGE_SUFFIXES)}) in {root / "left"}; '
                            + self._expected())
        partners = {'right': _by_stem(root / 'right', IMAGE_SUFFIXES), 'disparity': {}, 'occlusion': {}}
        required = ['right']
        for name, suffixes in (('disparity', SUFFIXES), ('occlusion', ('.png', ))):
            if (root / name).is_dir() or (name == 'disparity' and not self.test_mode):
                partners[name] = _by_stem(root / name, suffixes)
                required.append(name)
        for name in required:
            self._refuse_missing([path for stem, path in left.items() if stem not in partners[name]], len(left),
                                 f'counterpart in {root / name}')
        return [dict(left_path=str(path), name=stem, **{f'{name}_path': str(partners[name][stem]) for name in required})
                for stem, path in left.items()]


@DATASETS.register_module()
class SceneFlowDataset(_StereoDataset):
    """Scene Flow (Mayer et al., arXiv 1512.02134): FlyingThings3D, Driving and Monkaa, in the original layout.

    ``data_root`` or its subfolders (for example ``FlyingThings3D/``, ``Driving/``, ``Monkaa/``) contain
    ``frames_finalpass`` (or ``frames_cleanpass``) and ``disparity``::

        frames_finalpass/TRAIN/A/0000/left/0006.png    …/right/0006.png    disparity/TRAIN/A/0000/left/0006.pfm
        frames_finalpass/35mm_focallength/scene_forwards/fast/left/0001.png   (Driving and Monkaa: no TRAIN or TEST)

    Pairs are found at any depth by the folder name ``left``. Pairs outside ``TRAIN`` and ``TEST`` belong to ``TRAIN``.

    Args:
        data_root: the folder.
        split: ``'TRAIN'`` or ``'TEST'``.
        rendering: ``'finalpass'`` or ``'cleanpass'``.
        kwargs: passed to mmengine's ``BaseDataset``.

    Raises:
        UserError: for an unknown split or rendering, a missing folder, no pairs, or images without a counterpart
            (names them).
    """

    def __init__(self, data_root: str = '', split: str = 'TRAIN', rendering: str = 'finalpass', **kwargs: Any) -> None:
        for name, value, known in (('split', split, SPLITS), ('rendering', rendering, PASSES)):
            if value not in known:
                raise UserError(f'SceneFlowDataset: {name}={value!r} is unknown; choose one of: {", ".join(known)}')
        self.split, self.rendering = split, rendering
        super().__init__(data_root=data_root, **{'data_prefix': {}, **kwargs})

    def _expected(self) -> str:
        return (f'it or its subfolders must contain frames_{self.rendering}/ and disparity/, as unpacked from the '
                'Scene Flow archives')

    def load_data_list(self) -> list[dict]:
        """Match the files of a pair by path."""
        root = self._folder()
        frames = f'frames_{self.rendering}'
        tops = [folder / frames for folder in (root, *sorted(root.iterdir())) if (folder / frames).is_dir()]
        if not tops:
            raise UserError(f'SceneFlowDataset: no folder {frames} in {root}; {self._expected()}')
        data, missing = [], {'right view': [], 'disparity': []}
        for top in tops:
            for path in _left_images(top, self._in_split):
                below = path.relative_to(top)
                right = path.parent.with_name('right') / path.name
                disparity = (top.with_name('disparity') / below).with_suffix('.pfm')
                for partner, what in ((right, 'right view'), (disparity, 'disparity')):
                    if not partner.is_file():
                        missing[what].append(path)
                data.append(dict(left_path=str(path), right_path=str(right), disparity_path=str(disparity),
                                 name='/'.join([*top.relative_to(root).parts[:-1], *below.with_suffix('').parts])))
        for what, paths in missing.items():
            self._refuse_missing(paths, len(data), f'{what}; unpack its archive too')
        if not data:
            raise UserError(f'SceneFlowDataset: no images of the {self.split} split in a folder left/ below '
                            f'{", ".join(map(str, tops))}')
        return data

    def _in_split(self, below: Path) -> bool:
        named = next((part for part in below.parts if part in SPLITS), 'TRAIN')
        return named == self.split


def _by_stem(folder: Path, suffixes: Sequence[str]) -> dict[str, Path]:
    """Sorted files by stem; for equal stems the first suffix wins."""
    found: dict[str, Path] = {}
    if folder.is_dir():
        for path in sorted(folder.iterdir(), key=lambda path: (path.stem, path.suffix)):
            if path.suffix.lower() in suffixes:
                found.setdefault(path.stem, path)
    return found


def _left_images(top: Path, accept: Callable[[Path], bool]) -> list[Path]:
    found: list[Path] = []
    for folder, subfolders, files in os.walk(top, followlinks=True):
        subfolders.sort()
        here = Path(folder)
        if here.name == 'left' and accept(here.relative_to(top)):
            found += [here / name for name in sorted(files) if name.lower().endswith(IMAGE_SUFFIXES)]
    return found
