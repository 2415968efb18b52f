"""The real image with which an exported file is checked."""
from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image

from ...errors import UserError
from ..inference.tta import innermost_dataset
from ..inputs import find_images


@contextmanager
def check_image(config: Any, given: str | None) -> Iterator[Path]:
    """Yield the image ``given``, the first image of the test data, or a photograph of scikit-image.

    Raises:
        UserError: there is none.
    """
    found = find_images([given])[0] if given else _first_of_test_data(config)
    if found is not None:
        yield found
        return
    try:
        from skimage import data
        photograph = data.coins()
    except ImportError:
        raise UserError('no image to check the exported file with; use --image FILE') from None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / 'coins.png'
        Image.fromarray(photograph).save(path)
        yield path


def _first_of_test_data(config: Any) -> Path | None:
    dataset = innermost_dataset((config.get('test_dataloader') or {}).get('dataset') or {})
    root = Path(str(dataset.get('data_root') or ''))
    prefix = dataset.get('data_prefix') or {}
    folder = prefix if isinstance(prefix, str) else prefix.get('img') or prefix.get('img_path') or ''
    for place in filter(os.path.isdir, (root / str(folder), root)) if dataset.get('data_root') else ():
        try:
            return find_images([str(place)])[0]
        except UserError:
            continue
    return None
