"""A small COCO instance dataset made from one photograph: the 24 coins that ship with scikit-image.

Real data without a download. ``skimage.data.coins()`` is a grey photograph of 303 x 384 pixels. The coins are
segmented here; random square crops of the left part are for training, of the right part for validation. The line
between the parts passes between the coins, so the parts share no pixel and no coin. Crops of one part overlap each
other: the data set is for demos and tests, not for benchmarks.

A coin cut by a crop's border is an instance if at least ``MIN_VISIBLE`` of its area is in the crop. A smaller piece is
written as ``iscrowd: 1`` (with a run-length mask, as COCO does), so that the evaluation ignores it.
Thus the annotations of an image cover all of its coin pixels. Pixel ``(row, column)`` covers the square from
``(x, y) = (column, row)`` to ``(column + 1, row + 1)`` in all boxes and polygons.
"""
import importlib
import json
import os
from pathlib import Path
from types import ModuleType

import numpy as np
from PIL import Image

from mmkcla.errors import UserError
from mmkcla.utils.files import already_there, parse_json, whole_folder

CONVERTER = 'mmkcla coins 1'  # stored with the data; increment when the output for the same arguments changes
SPLITS = ('train', 'val')
COINS = 24
SHAPE = (303, 384)  # height, width of the photograph
# Train lies left of these columns, above and below the row; the step lets a coin of the last row pass.
STEP_ROW, COLUMN_ABOVE, COLUMN_BELOW = 225, 242, 210
MIN_CROP = 80  # from this size, every crop has at least one instance
MIN_VISIBLE = 0.4


def convert(out: str | os.PathLike, train_images: int = 64, val_images: int = 16, crop: int = 128, seed: int = 0,
            overwrite: bool = False) -> str:
    """Write the dataset to ``out`` atomically; the same arguments give the same bytes.

    The layout is COCO's: ``train2017/*.png`` and ``val2017/*.png`` (RGB), ``annotations/instances_train2017.json``
    and ``instances_val2017.json``. A dataset that exists with the same arguments is left unchanged. In addition to
    COCO's fields, ``info.parameters`` has the arguments, each image ``photograph_xy`` (upper left corner of its crop
    in the photograph, pixels), and each annotation ``coin`` (1 to 24, see :func:`segment_coins`).

    Args:
        out: the output folder.
        train_images, val_images: number of crops, all at different positions.
        crop: side of the crops, 80 to 142 pixels; every crop then has an instance.
        seed: random seed of the positions, >= 0.
        overwrite: replace a data set of this converter (nothing else is replaced).

    Returns:
        One line that says what was written, or that it already exists.

    Raises:
        UserError: an argument is out of range; ``out`` cannot be written or contains other files; scikit-image is
            missing; the photograph or the coins found are not the expected ones.
    """
    counts = {'train': train_images, 'val': val_images}
    parameters = {'converter': CONVERTER, 'train_images': train_images, 'val_images': val_images, 'crop': crop,
                  'seed': seed}
    if seed < 0:
        raise UserError(f'seed {seed}: must be 0 or more')
    for split in SPLITS:
        most = len(crop_corners(split, crop))
        if not 1 <= counts[split] <= most:
            raise UserError(f'{counts[split]} {split} images: must be 1 to {most} '
                            f'(the different crops of {crop} pixels in the {split} part)')
    folder = Path(out)
    try:
        if already_there(folder, 'coins data set', _record, parameters, overwrite):
            return f'{folder}: already there'
        photo = photograph()
        labels = segment_coins(photo)
        if both := set(np.unique(labels[train_part()])) & set(np.unique(labels[~train_part()])) - {0}:
            raise UserError(f'coins {sorted(both)} lie in both the train and the val part: not the expected photograph')
        report = []
        with whole_folder(folder, replace=overwrite) as new:
            for split in SPLITS:
                dataset = _write_split(new, split, counts[split], photo, labels, parameters)
                coins = sum(not annotation['iscrowd'] for annotation in dataset['annotations'])
                report.append(f'{counts[split]} {split} images with {coins} coins')
    except OSError as error:
        raise UserError(f'cannot write {folder}: {error.strerror or error}') from None
    return f'{folder}: {", ".join(report)}'


def photograph() -> np.ndarray:
    """The photograph, ``(303, 384)`` uint8.

    Raises:
        UserError: scikit-image is missing, or ships another picture.
    """
    photo = _demo_module('skimage.data').coins()
    if photo.shape != SHAPE or photo.dtype != np.uint8:
        raise UserError(f'skimage.data.coins() is {photo.dtype} {photo.shape}; expected uint8 {SHAPE}')
    return photo


def segment_coins(photo: np.ndarray) -> np.ndarray:
    """Find the coins: local threshold for where they are, watershed on the edges for their outlines.

    Args:
        photo: ``(H, W)``, grey values 0..255.

    Returns:
        ``(H, W)`` int32: 0 for the background, 1..24 for the coins in reading order of their topmost pixels. Each coin
        is one piece without holes.

    Raises:
        UserError: not exactly 24 coins; scikit-image or scipy is missing.
    """
    ndimage = _demo_module('scipy.ndimage')
    grey = photo.astype(np.float64)
    # The background's upper left is as bright as the darkest coins: compare with the surroundings, about a coin wide.
    bright = grey > ndimage.gaussian_filter(grey, 17) + 10
    solid = ndimage.binary_opening(ndimage.binary_fill_holes(bright), _disk(4))
    markers, found = ndimage.label(ndimage.binary_erosion(solid, _disk(3)))
    if found != COINS:
        raise UserError(f'found {found} coins in the photograph; expected {COINS}')
    # The threshold is right within a pixel or two; in that band the outline goes where the edge is strongest.
    background = COINS + 1
    markers[~ndimage.binary_dilation(solid, _disk(3))] = background
    basins = _demo_module('skimage.segmentation').watershed(_demo_module('skimage.filters').sobel(grey), markers)
    labels = np.zeros(photo.shape, np.int32)
    for coin in range(1, COINS + 1):
        labels[ndimage.binary_opening(ndimage.binary_fill_holes(basins == coin), _disk(2))] = coin
    return labels


def train_part() -> np.ndarray:
    """The pixels of the photograph for training, ``(303, 384)`` bool; the remaining ones are for validation."""
    rows, columns = np.ogrid[:SHAPE[0], :SHAPE[1]]
    return columns < np.where(rows < STEP_ROW, COLUMN_ABOVE, COLUMN_BELOW)


def crop_corners(split: str, crop: int) -> np.ndarray:
    """All places of a square crop that lies wholly in one part of the photograph.

    Args:
        split: ``'train'`` or ``'val'``.
        crop: the side in pixels.

    Returns:
        ``(N, 2)`` int, N >= 1: ``(x, y)`` of the left upper corners.

    Raises:
        UserError: ``crop`` is so small that crops without a coin appear, or too large for one of the parts.
    """
    largest = SHAPE[1] - COLUMN_ABOVE  # the right part is the narrower one
    if not MIN_CROP <= crop <= largest:
        raise UserError(f'crop {crop}: must be {MIN_CROP} to {largest} pixels')
    inside = train_part() if split == 'train' else ~train_part()
    first, last = np.s_[:-(crop - 1)], np.s_[crop - 1:]
    # The line has a single step, so a crop lies in a part if the four pixels at its corners do.
    whole = inside[first, first] & inside[first, last] & inside[last, first] & inside[last, last]
    return np.argwhere(whole)[:, ::-1]


def annotate(labels: np.ndarray, areas: np.ndarray) -> list[dict]:
    """COCO annotations of one crop, without their ids.

    Args:
        labels: ``(H, W)`` int, coin numbers of the crop's pixels, 0 for the background.
        areas: ``(25,)``, ``areas[n]`` is the area of all of coin n, in pixels.

    Returns:
        One dict per coin in the crop: ``bbox`` [x, y, width, height], ``area`` and ``segmentation`` in pixels
        (polygons for an instance, a run-length mask for a piece too small, ``iscrowd: 1``).
    """
    annotations = []
    for coin in np.unique(labels[labels > 0]).tolist():
        mask = labels == coin
        rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
        x, y = int(columns[0]), int(rows[0])
        area = int(mask.sum())
        crowd = area < MIN_VISIBLE * areas[coin]
        annotations.append({'category_id': 1, 'iscrowd': int(crowd), 'area': area,
                            'bbox': [x, y, int(columns[-1]) + 1 - x, int(rows[-1]) + 1 - y],
                            'segmentation': run_lengths(mask) if crowd else polygons(mask), 'coin': coin})
    return annotations


def polygons(mask: np.ndarray) -> list[list[float]]:
    """Outline a mask ``(H, W)`` without holes: one polygon ``[x, y, x, y, ...]`` a piece, in pixels.

    The outline runs half a pixel outside the centres of the mask's pixels, so that rasterising it gives the mask back.

    Raises:
        UserError: scikit-image is missing.
    """
    measure = _demo_module('skimage.measure')
    outlines = []
    # Padded, so that the outline of a coin at the border is closed; -1 takes the padding off, +0.5 goes from pixel
    # centres to COCO's corners.
    for contour in measure.find_contours(np.pad(mask, 1).astype(np.float64), 0.5):
        points = measure.approximate_polygon(contour, tolerance=0.4)[:-1, ::-1] - 0.5
        outlines.append(points.ravel().tolist())
    return outlines


def run_lengths(mask: np.ndarray) -> dict:
    """COCO's uncompressed run-length encoding of a mask ``(H, W)``: column by column, beginning with zeros."""
    flat = np.concatenate([[False], mask.ravel(order='F')])  # the leading zero makes the first run one of zeros
    bounds = np.flatnonzero(np.diff(flat)) + 1
    counts = np.diff([1, *bounds, flat.size])
    return {'size': list(mask.shape), 'counts': counts.tolist()}


def _write_split(folder: Path, split: str, count: int, photo: np.ndarray, labels: np.ndarray,
                 parameters: dict) -> dict:
    """Write the images and the annotation file of one split; return the annotation file's content."""
    crop = parameters['crop']
    # A stream for each split: more training images do not change the validation images.
    random = np.random.default_rng([parameters['seed'], SPLITS.index(split)])
    corners = random.permutation(crop_corners(split, crop))[:count]
    areas = np.bincount(labels.ravel(), minlength=COINS + 1)
    images, annotations = [], []
    (folder / f'{split}2017').mkdir()
    for number, (x, y) in enumerate(corners.tolist(), start=1):
        image_id = number + (10**6 if split == 'val' else 0)  # no id is in both splits
        window = np.s_[y:y + crop, x:x + crop]
        name = f'{image_id:012d}.png'
        Image.fromarray(photo[window]).convert('RGB').save(folder / f'{split}2017' / name)
        images.append({'id': image_id, 'file_name': name, 'height': crop, 'width': crop, 'license': 1,
                       'photograph_xy': [x, y]})
        for annotation in annotate(labels[window], areas):
            annotations.append({'id': len(annotations) + 1, 'image_id': image_id, **annotation})
    dataset = {
        'info': {'description': f'{split} crops of coins.png as shipped with scikit-image', 'parameters': parameters},
        'licenses': [{'id': 1, 'name': 'no known copyright restrictions (coins.png as shipped with scikit-image)',
                      'url': 'https://scikit-image.org/docs/stable/api/skimage.data.html#skimage.data.coins'}],
        'images': images,
        'annotations': annotations,
        'categories': [{'id': 1, 'name': 'coin', 'supercategory': 'coin'}],
    }
    (folder / 'annotations').mkdir(exist_ok=True)
    _annotation_file(folder, split).write_text(json.dumps(dataset), encoding='utf-8')
    return dataset


def _record(folder: Path) -> tuple[dict, dict[str, None]]:
    """The parameters that a folder was written with, and its files."""
    files = []
    for split in SPLITS:
        path = _annotation_file(folder, split)
        dataset = parse_json(path.read_text(encoding='utf-8'))
        written = dataset['info']['parameters']
        if not written['converter'].startswith('mmkcla coins'):
            raise ValueError
        files += [path.relative_to(folder).as_posix(), *(f'{split}2017/{image["file_name"]}'
                                                         for image in dataset['images'])]
    return written, dict.fromkeys(files)


def _annotation_file(folder: Path, split: str) -> Path:
    return folder / 'annotations' / f'instances_{split}2017.json'


def _disk(radius: int) -> np.ndarray:
    """A filled circle as a ``(2 radius + 1, 2 radius + 1)`` bool structuring element."""
    rows, columns = np.ogrid[-radius:radius + 1, -radius:radius + 1]
    return rows**2 + columns**2 <= radius**2


def _demo_module(name: str) -> ModuleType:
    """Import a module of the extra ``demo``, which a plain installation lacks."""
    try:
        return importlib.import_module(name)
    except ImportError:
        package = 'scikit-image' if name.startswith('skimage') else 'scipy'
        raise UserError(f"{package} is missing: pip install 'mmkcla[demo]'") from None
