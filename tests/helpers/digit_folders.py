"""scikit-learn's digits as PNG files in a folder for each class."""
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits


def write_digits(folder: Path, most: int | None = None) -> Path:
    """Write ``<digit>/<number>.png``, 8×8, grey; at most ``most`` images of each digit; returns the folder."""
    digits = load_digits()
    for digit in range(10):
        (folder / str(digit)).mkdir(parents=True)
        for number in np.flatnonzero(digits.target == digit)[:most].tolist():
            pixels = np.rint(digits.images[number] * (255 / 16)).astype(np.uint8)
            Image.fromarray(pixels).save(folder / str(digit) / f'{number:04d}.png')
    return folder
