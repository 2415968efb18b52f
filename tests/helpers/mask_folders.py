"""Crops of photographs that scikit-image ships, with masks made from the photographs."""
from pathlib import Path

import numpy as np
from PIL import Image
from skimage import color, data, filters

from mmkcla.datasets.detection.coins import photograph, segment_coins

TISSUE = ('background', 'haematoxylin', 'dab')


def write_coin_masks(folder: Path, images: int = 20, side: int = 64) -> Path:
    """``images`` and ``masks`` (0/255) of coins on their ground; returns the folder."""
    photo = photograph()
    return _write(folder, photo, (segment_coins(photo) > 0) * np.uint8(255), images, side)


def write_tissue_masks(folder: Path, images: int = 20, side: int = 64) -> Path:
    """The same of stained tissue, with labels 0 to 2: the stain that is above its Otsu threshold by most, if any is."""
    photo = data.immunohistochemistry()
    stains = color.rgb2hed(photo)[..., [0, 2]]
    above = np.dstack([np.zeros(photo.shape[:2]), *(
        (stain - filters.threshold_otsu(stain)) / stain.std() for stain in np.moveaxis(stains, -1, 0))])
    return _write(folder, photo, above.argmax(-1).astype(np.uint8), images, side)


def _write(folder: Path, photo: np.ndarray, mask: np.ndarray, images: int, side: int) -> Path:
    random = np.random.default_rng(0)
    for name in ('images', 'masks'):
        (folder / name).mkdir(parents=True)
    for number in range(images):
        y, x = (int(random.integers(0, most - side)) for most in mask.shape)
        for name, pixels in (('images', photo), ('masks', mask)):
            Image.fromarray(pixels[y:y + side, x:x + side]).save(folder / name / f'{number:02d}.png')
    return folder
