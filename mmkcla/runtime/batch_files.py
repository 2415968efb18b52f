"""The image files of a training batch, and images with NaN or infinite pixels in it."""
from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

_PATHS = ('img_path', 'filename', 'img_paths', 'left_path', 'sample_idx', 'img_id')


def files_of(batch: Any) -> list[str]:
    """Paths of the images of a batch, from its data samples; without paths, the image ids."""
    return [name or f'image {number} of the batch' for number, name in enumerate(map(_name, _samples(batch)))]


def clean_inputs(batch: Any) -> tuple[Any, list[str]]:
    """Replace NaN and infinite pixels of a batch by 0.

    Integer images, as the hosts' loaders give them, cost nothing.

    Args:
        batch: as a data loader returns it; ``inputs`` is a tensor, or tensors in lists and dicts.

    Returns:
        The batch, unchanged if all pixels are finite, and the names of the images that were not.
    """
    if not isinstance(batch, Mapping) or 'inputs' not in batch:
        return batch, []
    samples = batch.get('data_samples')
    if isinstance(batch['inputs'], Mapping) and isinstance(samples, Mapping):  # semi-supervised: by branch
        branches = {key: clean_inputs({'inputs': value, 'data_samples': samples.get(key)})
                    for key, value in batch['inputs'].items()}
        found = [name for _, each in branches.values() for name in each]
        cleaned_parts = {key: part['inputs'] for key, (part, _) in branches.items()}
        return ({**batch, 'inputs': cleaned_parts} if found else batch), found
    names, bad = files_of(batch), set()

    def cleaned(value: Any, index: int | None) -> Any:
        if isinstance(value, Tensor):
            if not value.is_floating_point() or _is_finite(value):
                return value
            bad.update([index] if index is not None else
                       [number for number, image in enumerate(value) if not _is_finite(image)])
            return torch.nan_to_num(value, nan=0.0, posinf=0.0, neginf=0.0)
        if isinstance(value, Mapping):
            return {key: cleaned(item, index) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(cleaned(item, number if index is None else index) for number, item in enumerate(value))
        return value

    inputs = cleaned(batch['inputs'], None)
    if not bad:
        return batch, []
    found = [names[index] if index < len(names) else f'image {index} of the batch' for index in sorted(bad)]
    return {**batch, 'inputs': inputs}, found


def _is_finite(value: Tensor) -> bool:
    """The sum is cheaper than a look at each value, and finite only if these are; large sums may overflow."""
    return bool(torch.isfinite(value.sum())) or bool(torch.isfinite(value).all())


def _samples(batch: Any) -> Iterator[Any]:
    """The data samples of a batch; those of semi-supervised training are in a dict by branch."""
    samples = batch.get('data_samples') if isinstance(batch, Mapping) else None
    parts = samples.values() if isinstance(samples, Mapping) else [samples]
    for part in parts:
        if isinstance(part, Sequence) and not isinstance(part, (str, bytes)):
            yield from part


def _name(sample: Any) -> str:
    for key in _PATHS:
        value = sample.get(key) if isinstance(sample, Mapping) else getattr(sample, key, None)
        if isinstance(value, (str, os.PathLike)):
            return str(value)
        if isinstance(value, (list, tuple)) and value:
            return ' + '.join(map(str, value))
        if value is not None:
            return f'image {value}'
    return ''
