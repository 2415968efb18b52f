"""A stereo data set from one rectified pair: the motorcycle of Middlebury 2014, which ships with scikit-image.

Real data without a download. ``skimage.data.stereo_motorcycle()`` has two views of 500×741 pixels and the disparity of
the left view, 7 to 60 pixels. The left half of both views is for training, the right half for testing; no pixel of
either view is in both. In the test half, the disparity of the first columns (as many as the largest disparity) is set
to unknown, because their counterparts in the right view lie in the training half or are not visible.

This is one scene, split in two, for demos, tests and first trainings. The scores are not comparable with other work.
"""
import importlib
import os
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

from mmkcla.errors import UserError
from mmkcla.stereo.disparity import write_pfm
from mmkcla.utils.files import already_there, parse_json, whole_folder, write_json

CONVERTER = 'mmkcla motorcycle 1'  # stored with the data; increase when the output for the same arguments changes
SPLITS = ('train', 'test')
FOLDERS = {'left': '.png', 'right': '.png', 'disparity': '.pfm'}
SHAPE = (500, 741)  # height, width
MAX_DISPARITY = 64  # pixels, at full size; the largest disparity is 59.9
SCALES = (1, 2, 4)
NAME = 'motorcycle'


def convert(out: str | os.PathLike, scale: int = 2, overwrite: bool = False) -> str:
    """Write ``train/`` and ``test/`` atomically, each with ``left/``, ``right/`` (PNG) and ``disparity/`` (PFM).

    :class:`~mmkcla.stereo.dataset.StereoPairDataset` reads this layout. The same arguments give the same bytes. A data
    set already written with the same arguments is unchanged.

    Args:
        out: output folder.
        scale: downsampling factor, 1, 2 or 4 (images: mean of each block of pixels; disparity: first pixel of each
            block, divided by ``scale``).
        overwrite: replace a data set written by this converter (and nothing else).

    Returns:
        Summary of what was written, and the scores of :func:`constant_baselines`.

    Raises:
        UserError: for another scale; if ``out`` cannot be written or contains something else; if scikit-image is
            missing or ships other pictures.
    """
    if scale not in SCALES:
        raise UserError(f'scale={scale} is not supported; choose one of: {", ".join(map(str, SCALES))}')
    folder = Path(out)
    parameters = dict(converter=CONVERTER, scale=scale)
    splits = split_views(*photographs(), scale)
    try:
        there = already_there(folder, 'motorcycle data set', _record, parameters, overwrite)
        if not there:
            with whole_folder(folder, replace=overwrite) as new:
                for split, views in splits.items():
                    _write(new / split, views)
                write_json(new / 'parameters.json', parameters)
    except OSError as error:
        raise UserError(f'cannot write {folder}: {error.strerror or error}') from None
    sizes = ', '.join(f'{split} {views["left"].shape[1]}×{views["left"].shape[0]} pixels, '
                      f'{(views["disparity"] > 0).sum()} with known disparity' for split, views in splits.items())
    return '\n'.join([f'{folder}: ' + ('already there' if there else sizes), *(
        f'a constant {value:.2f} px (the median of {split}) on test: EPE {error:.3f} px, above 3 px {100 * bad:.2f} %'
        for split, (value, error, bad) in constant_baselines(splits).items())])


def photographs() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Left and right view, ``(500, 741, 3)`` uint8, RGB, and disparity, ``(500, 741)`` float32, 0 means unknown.

    Raises:
        UserError: if scikit-image is missing or ships other pictures.
    """
    try:
        left, right, disparity = importlib.import_module('skimage.data').stereo_motorcycle()
    except ImportError:
        raise UserError("scikit-image is missing: pip install 'mmkcla[demo]'") from None
    if left.shape != (*SHAPE, 3) or right.shape != left.shape or disparity.shape != SHAPE or left.dtype != np.uint8:
        raise UserError(f'skimage.data.stereo_motorcycle() is {left.dtype} {left.shape}, {right.shape}, '
                        f'{disparity.shape}; expected uint8 {(*SHAPE, 3)} twice and {SHAPE}')
    disparity = np.where(np.isfinite(disparity), disparity, 0).astype(np.float32)
    if not 0 < disparity.max() < MAX_DISPARITY:
        raise UserError(f'skimage.data.stereo_motorcycle() has disparities up to {disparity.max():.4g}; expected less '
                        f'than {MAX_DISPARITY}')
    return left, right, disparity


def split_views(left: np.ndarray, right: np.ndarray, disparity: np.ndarray, scale: int) -> dict[str, dict]:
    """Split ``left``, ``right`` and ``disparity``; see the module docstring and :func:`convert`."""
    height, width = (side // scale for side in disparity.shape)
    even = np.s_[:height * scale, :width * scale]
    small = {name: cv2.resize(view[even], (width, height), interpolation=cv2.INTER_AREA)
             for name, view in (('left', left), ('right', right))}
    small['disparity'] = disparity[even][::scale, ::scale] / np.float32(scale)
    half = width // 2
    splits = {'train': {name: view[:, :half] for name, view in small.items()},
              'test': {name: view[:, half:].copy() for name, view in small.items()}}
    splits['test']['disparity'][:, :MAX_DISPARITY // scale] = 0
    return splits


def constant_baselines(splits: dict[str, dict]) -> dict[str, tuple[float, float, float]]:
    """Scores of a constant prediction on the test half.

    Returns:
        for each split the median of its known disparities (the median of the test half is the best constant by
        end-point error), its end-point error in pixels, and its share of errors above 3 pixels.
    """
    truth = splits['test']['disparity']
    truth = truth[truth > 0].astype(np.float64)
    baselines = {}
    for split, views in splits.items():
        median = float(np.median(views['disparity'][views['disparity'] > 0]))
        error = np.abs(truth - median)
        baselines[split] = median, float(error.mean()), float((error > 3).mean())
    return baselines


def _write(folder: Path, views: dict[str, np.ndarray]) -> None:
    for name, suffix in FOLDERS.items():
        path = folder / name / f'{NAME}{suffix}'
        path.parent.mkdir(parents=True)
        if name == 'disparity':
            write_pfm(path, np.where(views[name] > 0, views[name], np.inf))  # Middlebury's value for unknown
        else:
            Image.fromarray(np.ascontiguousarray(views[name])).save(path)


def _record(folder: Path) -> tuple[dict, dict[str, None]]:
    """Return the parameters a folder was written with, and its files."""
    written = parse_json((folder / 'parameters.json').read_text(encoding='utf-8'))
    if not written['converter'].startswith('mmkcla motorcycle'):
        raise ValueError
    return written, dict.fromkeys(['parameters.json', *(f'{split}/{name}/{NAME}{suffix}' for split in SPLITS
                                                        for name, suffix in FOLDERS.items())])
