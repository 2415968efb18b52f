"""Export the model of a config, and check the file on a real image."""
from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...errors import UserError
from ...utils.files import sha256_of, whole_file, write_json
from ...utils.text import note, one_line
from ..inference.base import Predictor
from . import formats, parity
from .modules import ImageModel

EXTENSIONS = {'onnx': '.onnx', 'torch-export': '.pt2'}
# what may vary, in the order in which it is tried
_FREE_AXES = {'any batch and size': (0, 2, 3), 'any batch, one size': (0, ), 'one image of one size': ()}


@dataclass
class Exported:
    """An exported and checked file: how it was written, what its input may be, and the differences found."""

    path: Path
    description: Path
    writer: str
    input_shape: list[int | str]
    outputs: list[str]
    differences: dict[str, float]

    @property
    def free(self) -> str:
        """What may vary in the input."""
        names = [size for size in self.input_shape if isinstance(size, str)]
        return {3: 'any batch and size', 1: 'any batch, one size', 0: 'one image of one size'}[len(names)]


def export_model(predictor: Predictor, kind: str, path: Path, image: Path, part: str = 'model',
                 fixed: bool = False) -> Exported:
    """Write the model of a predictor, with a JSON description beside it.

    The file is compared with PyTorch and with the host's ``test_step`` before it is published. Batch and size are left
    free as far as the model allows; a note names what is fixed and why.

    Args:
        predictor: the model with its weights, on the CPU.
        kind: ``onnx`` or ``torch-export``.
        path: the file to write.
        image: a real image.
        part: ``model``, or ``features`` for backbone and neck.
        fixed: one image of the size of the prepared ``image``.

    Raises:
        UserError: the model cannot be exported, or the file computes something else than the model.
    """
    formats.check_packages(kind)
    module = ImageModel(predictor, part).eval()
    data = predictor.load(image)[1]
    pixels = parity.network_image(predictor, data)
    divisor = module.size_divisor
    if any(side % divisor for side in pixels.shape[2:]):
        pixels = pixels[..., :pixels.shape[2] // divisor * divisor, :pixels.shape[3] // divisor * divisor].contiguous()
        data['inputs'] = data['inputs'][:, :pixels.shape[2], :pixels.shape[3]].contiguous()
        data['data_samples'].set_metainfo(dict(img_shape=tuple(pixels.shape[2:])))
    run = formats.run_module(module)
    with torch.no_grad():
        count = len(run(pixels))
    against_host = parity.largest_difference(run(pixels), parity.host_output(predictor, module, data))
    if against_host > parity.TOLERANCE:
        raise UserError(f'the exported form of {type(predictor.model).__name__} differs from test_step by '
                        f'{against_host:.1e} on {image}; its data preprocessor or head computes more than '
                        'normalisation and a softmax; use --part features')
    names = module.output_names(count)
    exported = _write_checked(module, kind, path, pixels, names, fixed)
    exported.differences[f'test_step of {type(predictor.model).__name__}'] = against_host
    _describe(exported, predictor, module, kind, pixels)
    return exported


def _write_checked(module: ImageModel, kind: str, path: Path, pixels: Tensor, names: list[str],
                   fixed: bool) -> Exported:
    """Write with as many free axes as the model allows; publish the file when it computes the same."""
    reasons = []
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder) / f'model{EXTENSIONS[kind]}'
        for free, axes in list(_FREE_AXES.items())[-1 if fixed else 0:]:
            sample = torch.cat([pixels, pixels]) if 0 in axes else pixels  # exporters fix a size of 1
            inputs = parity.trials(pixels, module.size_divisor, axes)
            try:
                writer = formats.write(kind, module, sample, names, axes, part)
                differences = parity.compare(formats.load(kind, part), formats.run_module(module), inputs)
            except Exception as error:  # the exporters raise errors of many kinds
                reasons.append(f'{free}: {one_line(error, 160)}')
                continue
            if wrong := parity.exceeding(differences):
                reasons.append(f'{free}: differs from PyTorch, {"; ".join(wrong)}')
                continue
            for reason in reasons:
                note(f'not exported with {reason}')
            with whole_file(path) as file, open(part, 'rb') as source:
                while block := source.read(1 << 20):
                    file.write(block)
            shape: list[int | str] = [formats.AXES[axis] if axis in axes else size
                                      for axis, size in enumerate(pixels.shape)]
            return Exported(path, path.with_name(path.name + '.json'), writer, shape, names, differences)
    raise UserError(f'{type(module.model).__name__} cannot be exported as {kind}; {reasons[-1]}')


def _describe(exported: Exported, predictor: Predictor, module: ImageModel, kind: str, pixels: Tensor) -> None:
    """Write the JSON description: everything that a program needs to use the file."""
    content: dict[str, Any] = dict(
        file=exported.path.name, format=kind, writer=exported.writer, sha256=sha256_of(exported.path),
        bytes=os.path.getsize(exported.path),
        input=dict(name='images', shape=exported.input_shape, dtype='float32', values='0 to 255',
                   channels='RGB' if pixels.shape[1] == 3 else f'{pixels.shape[1]} channels',
                   prepared_size=list(pixels.shape[2:]), size_divisor=module.size_divisor,
                   normalisation='inside the model'),
        outputs=exported.outputs, task=module.kind, classes=list(predictor.classes),
        threshold=getattr(predictor, 'threshold', None) if module.kind == 'segmentation' else None,
        largest_difference=exported.differences, tolerance=parity.TOLERANCE, torch=torch.__version__)
    write_json(exported.description, content)
