"""Run a predictor on many images and write the results."""
import sys
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from ...errors import UserError
from ...utils.text import note, one_line
from ..inputs import picture_names
from .images import write_image

if TYPE_CHECKING:
    from .base import Predictor


def predict_all(predictor: 'Predictor', images: list[Path], out_dir: Path,
                batch_size: int) -> tuple[list[dict], list[dict]]:
    """Predict on ``images`` and write the pictures.

    Returns:
        The entries of the processed images, and those of the failed ones (file and reason).
    """
    done: list[dict] = []
    failed: list[dict] = []
    names = picture_names(images)

    def fail(path: Path, error: UserError) -> None:
        line = str(error) if str(path) in str(error) else f'{path}: {error}'
        failed.append(dict(file=str(path), reason=line))
        print(f'error: {line}', file=sys.stderr)

    def finish(batch: list[tuple[Path, Any, dict]]) -> None:
        try:
            samples = predictor.predict([data for _, _, data in batch])
        except (RuntimeError, ValueError, AssertionError, UserError) as error:  # torch's and the hosts', by the size
            if len(batch) == 1:
                fail(batch[0][0], _reason(error, batch[0][1]))
            for one in batch if len(batch) > 1 else ():  # retry one by one, so that only the faulty image fails
                finish([one])
            return
        for (file, image, _), sample in zip(batch, samples, strict=True):
            picture, (height, width) = names[file], image.shape[:2]
            stem = str(PurePosixPath(picture).with_suffix(''))
            entry = dict(file=str(file), width=width, height=height, picture=picture,
                         **predictor.files(sample, out_dir, stem))
            try:
                drawn = predictor.draw(image, sample)
            except (OSError, MemoryError):
                raise
            except Exception as error:  # the predictions are good: only the picture is missing
                note(f'{file} cannot be drawn; its picture is the image alone: {one_line(error, 200)}')
                drawn = image
            write_image(out_dir / picture, drawn)
            done.append(entry | dict(predictions=predictor.record(sample, out_dir, stem)))

    batch: list[tuple[Path, Any, dict]] = []
    with tqdm(total=len(images), unit='image', disable=None) as progress:
        for number, path in enumerate(images, start=1):
            try:
                batch.append((path, *predictor.load(path)))
            except UserError as error:
                fail(path, error)
                progress.update()
            if batch and (len(batch) == batch_size or number == len(images)):
                finish(batch)
                progress.update(len(batch))
                batch = []
    return done, failed


def _reason(error: Exception, image: np.ndarray) -> UserError:
    if isinstance(error, UserError):
        return error
    return UserError(f'the network cannot process {image.shape[1]}×{image.shape[0]} pixels: {one_line(error, 200)}')
