"""Write and run the files of each format."""
from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import UserError

OPSET = 18
AXES = {0: 'batch', 2: 'height', 3: 'width'}
Run = Callable[[Tensor], list[Tensor]]


def check_packages(kind: str) -> None:
    """Name the packages that a format needs and that are missing.

    Raises:
        UserError: one is missing.
    """
    if kind != 'onnx':
        return
    missing = [name for name in ('onnx', 'onnxscript', 'onnxruntime') if find_spec(name) is None]
    if missing:
        raise UserError(f'--format onnx needs {", ".join(missing)}; install with pip install {" ".join(missing)}')


def write(kind: str, module: nn.Module, sample: Tensor, names: Sequence[str], axes: Sequence[int], path: Path) -> str:
    """Write ``module`` to ``path``; return the description of the writer.

    Args:
        kind: ``onnx`` or ``torch-export``.
        module: an evaluation-mode model from one tensor to one or several.
        sample: an input; sizes of axes that are not in ``axes`` become fixed.
        names: names of the outputs.
        axes: axes of the input with any size, of 0 (batch), 2 (height) and 3 (width).
        path: the file.

    Raises:
        Exception: whatever the exporter raises where it cannot represent the model.
    """
    shapes = ({axis: torch.export.Dim.DYNAMIC for axis in axes} or None, )
    with _quiet(), torch.no_grad():
        if kind == 'torch-export':
            program = torch.export.export(module, (sample, ), dynamic_shapes=shapes)
            torch.export.save(program, path)
            return 'torch.export'
        torch.onnx.export(module, (sample, ), path, dynamo=True, external_data=False, verbose=False,
                          opset_version=OPSET, input_names=['images'], output_names=list(names), dynamic_shapes=shapes)
        return f'ONNX opset {OPSET}'


def load(kind: str, path: Path) -> Run:
    """Return a function that runs a written file."""
    if kind == 'torch-export':
        program = torch.export.load(path).module()
        return lambda images: _as_list(program(images))
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=['CPUExecutionProvider'])
    return lambda images: [torch.from_numpy(out) for out in session.run(None, {'images': images.numpy()})]


def run_module(module: nn.Module) -> Run:
    """Return a function that runs the model itself."""
    def run(images: Tensor) -> list[Tensor]:
        with torch.no_grad():
            return _as_list(module(images))
    return run


def _as_list(out: Any) -> list[Tensor]:
    return [out] if isinstance(out, Tensor) else list(out)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporters, which log every pass and guard."""
    names = ('torch.onnx', 'onnxscript', 'onnx_ir', 'torch._dynamo', 'torch.export')
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
