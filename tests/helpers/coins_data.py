"""A small version of the coins data set."""
from pathlib import Path

from mmkcla.datasets.detection import coins


def small_coins(folder, train_images: int = 4, val_images: int = 2, crop: int = 96) -> Path:
    """Write a few crops in a fraction of a second, for any test that wants a real dataset; returns the folder."""
    coins.convert(folder, train_images, val_images, crop)
    return Path(folder)
