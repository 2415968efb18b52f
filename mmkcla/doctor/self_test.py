"""A test of a few seconds: the layers, a detector, a checkpoint."""
from __future__ import annotations

import pickle
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..utils.text import one_line
from .finding import Finding, ok, problem

if TYPE_CHECKING:
    from torch import nn

# Mean absolute output of the third of three layers, see layer_value; computed on a CPU with torch 2.14.
LAYER_VALUES = {
    'DLABase': 0.110388, 'DLALight': 0.28476, 'EfficientLayerAttention': 0.359997, 'KCLA': 0.0929551,
    'LinearLayerAttention': 0.146468, 'MRLABase': 0.146474, 'MRLALight': 0.253307, 'SoftmaxLayerAttention': 0.146908,
}
CONFIG = 'demo/faster-rcnn_r18-kcla_fpn_coins.py'
NECK_VALUE = 43530.52  # mean absolute value of the largest FPN map, see neck_value
TOLERANCE = {'cpu': 1e-3}  # relative; elsewhere convolutions may use TF32
DEVICE_TOLERANCE = 2e-2
_REPORT = 'report this as a bug, with the output of this command'
_SIDE = 64


def check_layers() -> Iterator[Finding]:
    """Each layer attention with fixed weights, against stored values."""
    for device in devices():
        start = time.perf_counter()
        deviations = {method: abs(layer_value(method, device) / expected - 1)
                      for method, expected in LAYER_VALUES.items()}
        worst = max(deviations, key=lambda method: deviations[method])
        name = f'layers on {device}'
        if not deviations[worst] <= TOLERANCE.get(device, DEVICE_TOLERANCE):
            yield problem(name, f'{worst} deviates from the stored value by {deviations[worst]:.1e}', _REPORT)
        else:
            yield ok(name, f'{len(deviations)} methods give the stored values (largest relative deviation '
                     f'{deviations[worst]:.0e}; {time.perf_counter() - start:.1f} s)')


def devices() -> list[str]:
    """The devices to test."""
    import torch
    found = ['cpu', *(['cuda'] if torch.cuda.is_available() else [])]
    return found + (['mps'] if torch.backends.mps.is_available() else [])


def layer_value(method: str, device: str = 'cpu') -> float:
    """Mean absolute output of the third of three layers of 16 channels, with fixed weights and maps of 8 x 8."""
    import torch

    from ..layers import layer_attention_class
    kind = layer_attention_class(method)
    options = {'head_channels': 8} if 'head_channels' in kind.options() else {}
    layers = fixed_weights(kind.build_stage(16, 3, **options)).eval().to(device)
    state = None
    with torch.no_grad():
        for number, layer in enumerate(layers):
            x, shortcut = (wave((2, 16, 8, 8), number + phase).to(device) for phase in (0., .5))
            retrieved, state = layer(x, state, shortcut if layer.needs_shortcut else None)
    return float(retrieved.abs().mean())


def wave(shape: tuple[int, ...], phase: float) -> Any:
    """A tensor of fixed values between -1 and 1, independent of any random generator."""
    import math

    import torch
    return torch.sin(.7 * torch.arange(math.prod(shape), dtype=torch.float64) + phase).float().view(shape)


def fixed_weights(module: nn.Module) -> nn.Module:
    """Set all parameters and statistics of a module to fixed values, of the usual size."""
    import torch
    with torch.no_grad():
        for number, (name, tensor) in enumerate(sorted(module.state_dict().items())):
            if not tensor.is_floating_point():
                continue
            values = wave(tuple(tensor.shape), float(number))
            if name.endswith('running_var') or (name.endswith('weight') and tensor.ndim == 1):
                values = 1 + .3 * values
            elif tensor.ndim > 1:
                values = values * (2 / tensor[0].numel()) ** .5
            else:
                values = .1 * values
            tensor.copy_(values)
    return module


def check_detector() -> Iterator[Finding]:
    """Build the demo detector with KCLA; compare its features; one loss, its gradient, one prediction."""
    for device in devices():
        start = time.perf_counter()
        model = build_detector().to(device)
        deviation = abs(neck_value(model, device) / NECK_VALUE - 1)
        name = f'detector on {device}'
        if not deviation <= TOLERANCE.get(device, DEVICE_TOLERANCE):
            yield problem(name, f'the features deviate from the stored value by {deviation:.1e}', _REPORT)
            continue
        try:
            loss = training_loss(model, device)
        except RuntimeError as error:  # mps lacks some operators
            yield problem(name, f'the training step failed: {one_line(error, 200)}',
                          'export PYTORCH_ENABLE_MPS_FALLBACK=1' if device == 'mps' else _REPORT)
            continue
        if loss != loss or loss in (float('inf'), 0.):
            yield problem(name, f'the loss is {loss}, or a layer attention has no finite gradient', _REPORT)
        else:
            yield ok(name, f'features as stored, loss and gradient finite ({time.perf_counter() - start:.1f} s)')


def build_detector() -> nn.Module:
    """The detector of the demo, with fixed weights."""
    from mmdet.registry import MODELS
    from mmdet.utils import register_all_modules

    from ..runtime.config import load_config
    register_all_modules(init_default_scope=True)
    model: nn.Module = MODELS.build(load_config(CONFIG, []).model)
    return fixed_weights(model)


def neck_value(model: Any, device: str = 'cpu') -> float:
    """Mean absolute value of the largest FPN map, in evaluation mode."""
    import torch
    with torch.no_grad():
        features = model.eval().extract_feat(wave((1, 3, _SIDE, _SIDE), 0.).to(device))
    return float(features[0].abs().mean())


def training_loss(model: Any, device: str = 'cpu') -> float:
    """The loss of one image with one object; NaN if a parameter of the layer attentions has no finite gradient."""
    import torch
    from mmdet.structures import DetDataSample
    from mmengine.structures import InstanceData
    sample = DetDataSample(metainfo=dict(img_shape=(_SIDE, _SIDE), ori_shape=(_SIDE, _SIDE), scale_factor=(1., 1.),
                                         batch_input_shape=(_SIDE, _SIDE), pad_shape=(_SIDE, _SIDE)))
    sample.gt_instances = InstanceData(bboxes=torch.tensor([[8., 8, 40, 40]]), labels=torch.tensor([0]))
    image = ((wave((3, _SIDE, _SIDE), 0.) + 1) * 127).byte()
    data = model.train().data_preprocessor({'inputs': [image], 'data_samples': [sample]}, training=True)
    losses = model(**data, mode='loss')
    loss, _ = model.parse_losses(losses)
    loss.backward()
    gradients = [parameter.grad for name, parameter in model.named_parameters() if '.layer_attentions.' in name]
    finite = bool(gradients) and all(grad is not None and bool(grad.isfinite().all()) for grad in gradients)
    return float(loss.detach()) if finite else float('nan')


def check_checkpoint() -> Iterator[Finding]:
    """Write a checkpoint, read it safely, compare it bit by bit; a file that would run code must be refused."""
    import torch

    from ..layers import KCLA
    from ..utils.files import whole_file
    from ..weights.reading import read_checkpoint
    start = time.perf_counter()
    state = fixed_weights(KCLA.build_stage(16, 2, head_channels=8)).state_dict()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / 'checkpoint.pth'
        with whole_file(path) as file:
            torch.save({'state_dict': state, 'meta': {'epoch': 1}}, file)
        read = read_checkpoint(path)['state_dict']
        equal = list(read) == list(state) and all(torch.equal(read[name], state[name]) for name in state)
        refused = _refuses_code(Path(folder))
    if not equal or not refused:
        reason = 'a checkpoint changed between writing and reading' if not equal else 'a file that runs code was loaded'
        yield problem('checkpoint', reason, 'install a torch of 2.1 or newer' if equal else _REPORT)
    else:
        yield ok('checkpoint', 'written, read and equal; a file with code is refused '
                 f'({time.perf_counter() - start:.1f} s)')


class _Marker:
    """Unpickles by creating a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[Path]]:
        return Path.touch, (self.path,)


def _refuses_code(folder: Path) -> bool:
    import torch

    from ..errors import UserError
    from ..weights.reading import read_checkpoint
    marker, path = folder / 'marker', folder / 'code.pth'
    with open(path, 'wb') as file:
        torch.save({'state_dict': {'a': _Marker(marker)}}, file, pickle_module=pickle)
    try:
        read_checkpoint(path)
    except UserError:
        return not marker.exists()
    return False
