"""Find the steps of a data pipeline that load images and masks."""
from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any


def mask_loader(pipeline: Sequence[Any]) -> dict | None:
    """The step of a pipeline that loads the masks; None if there is none that is known."""
    for step in steps_of(pipeline):
        if re.fullmatch(r'(\w+\.)?(LoadAnnotations|LoadBinaryMask)', str(step.get('type'))):
            return step
    return None


def image_loader(pipeline: Sequence[Any]) -> dict | None:
    """The step of a pipeline that loads the image from one file; None if there is none that is known."""
    for step in steps_of(pipeline):
        if re.fullmatch(r'(\w+\.)?LoadImageFromFile', str(step.get('type'))):
            return step
    return None


def applies_orientation(loader: dict) -> bool:
    """Whether a step that loads images turns them by their EXIF orientation."""
    flag = str(loader.get('color_type', 'color'))
    return flag != 'unchanged' and not flag.endswith('ignore_orientation')


def steps_of(pipeline: Any) -> Iterable[dict]:
    """The steps of a pipeline, with those inside other steps."""
    if isinstance(pipeline, dict):
        if 'type' in pipeline:
            yield pipeline
        yield from steps_of(pipeline.get('transforms'))
    elif isinstance(pipeline, (list, tuple)):
        for part in pipeline:
            yield from steps_of(part)
