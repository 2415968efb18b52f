"""PyTorch, torchvision, and the devices."""
from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..compat import version_note
from ..utils.text import one_line
from .finding import Finding, note, ok, problem

GIB = 2 ** 30
_SELECTOR = 'https://pytorch.org/get-started/locally'


def check_torch() -> Iterator[Finding]:
    """Import torch, and pass an array to NumPy and back."""
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name == 'torch':
            yield problem('torch', 'not installed', f'pip install torch torchvision (see {_SELECTOR})')
        else:
            yield problem('torch', f'cannot be imported: {one_line(error)}', 'pip install --force-reinstall torch')
        return
    except Exception as error:  # missing libraries, a damaged installation
        yield problem('torch', f'cannot be imported: {one_line(error, 200)}', 'pip install --force-reinstall torch')
        return
    if not hasattr(torch, 'Tensor') or not hasattr(torch, '__version__'):  # a folder of that name
        yield problem('torch', f'{getattr(torch, "__path__", ["?"])} is not PyTorch', 'rename that folder')
        return
    yield _versioned('torch', torch.__version__)
    try:
        equal = bool((torch.tensor([1., 2.]).numpy() == [1., 2.]).all())
    except Exception as error:
        yield problem('torch and numpy', f'torch cannot use this NumPy: {one_line(error, 200)}',
                      "install a newer torch, or pip install 'numpy<2' for an old one")
        return
    yield ok('torch and numpy', 'arrays are exchanged') if equal else problem(
        'torch and numpy', 'an array changed between torch and NumPy', 'pip install --force-reinstall torch numpy')


def _versioned(name: str, version: str) -> Finding:
    line = version_note(name, version)
    return note(name, line, f'pip install -U {name}' if 'older' in line else '') if line else ok(name, version)


def check_torchvision() -> Iterator[Finding]:
    """Import torchvision, and run one of its compiled operators; it must be built for this torch and its CUDA."""
    import torch
    remedy = (f'install the torchvision that belongs to torch {torch.__version__}: '
              f'pip install torch=={torch.__version__.split("+")[0]} torchvision')
    try:
        import torchvision
        from torchvision.ops import nms
        kept = nms(torch.tensor([[0., 0, 2, 2], [0, 0, 2, 2], [4, 4, 6, 6]]), torch.tensor([.5, .9, .7]), .5).tolist()
    except ModuleNotFoundError as error:
        missing = 'not installed' if error.name == 'torchvision' else f'cannot be imported: {one_line(error)}'
        yield problem('torchvision', missing, remedy)
        return
    except Exception as error:  # e.g. operator torchvision::nms does not exist
        yield problem('torchvision', f'does not work with torch {torch.__version__}: {one_line(error, 200)}', remedy)
        return
    if kept != [1, 2]:
        yield problem('torchvision', f'{torchvision.__version__}: nms gave {kept}, expected [1, 2]', remedy)
    elif other_builds(torchvision.__version__, torch.__version__):
        yield problem('torchvision', f'{torchvision.__version__} and torch {torch.__version__} are for different CUDA '
                      'versions', remedy)
    else:
        yield ok('torchvision', torchvision.__version__)


def other_builds(first: str, second: str) -> bool:
    """Whether two versions name different builds, e.g. ``+cpu`` and ``+cu121``."""
    builds = [match[1] if (match := re.search(r'\+(cpu|cu\d+|rocm[\d.]+)', version)) else '' for version in (
        first, second)]
    return all(builds) and builds[0] != builds[1]


def check_devices() -> Iterator[Finding]:
    """CUDA, its driver, cuDNN and devices; MPS; threads."""
    import torch
    yield from _cuda(torch)
    if platform.system() == 'Darwin':
        mps = torch.backends.mps
        yield ok('MPS', 'available' if mps.is_available() else 'built, but not available on this Mac' if mps.is_built()
                 else 'not in this build of torch')
    yield ok('threads', f'{torch.get_num_threads()} of torch, {torch.get_num_interop_threads()} between operators')


def _cuda(torch: Any) -> Iterator[Finding]:
    driver, build = nvidia_driver(), torch.version.cuda or getattr(torch.version, 'hip', None)
    if not build:
        if driver:
            yield problem('CUDA', f'NVIDIA driver {driver}, but torch {torch.__version__} is a CPU build',
                          f'install the build for your CUDA version ({_SELECTOR})')
        else:
            yield ok('CUDA', 'a CPU build of torch, and no NVIDIA driver: models run on the CPU')
        return
    if not torch.cuda.is_available():
        yield _no_gpu(driver, build)
        return
    yield ok('CUDA', f'{build}, driver {driver or "unknown"}', devices=torch.cuda.device_count())
    if torch.backends.cudnn.is_available():
        yield ok('cuDNN', str(torch.backends.cudnn.version()))
    else:
        yield problem('cuDNN', 'not available', 'reinstall torch, and remove other CUDA libraries from LD_LIBRARY_PATH')
    for index in range(torch.cuda.device_count()):
        yield _device(torch, index)


def _no_gpu(driver: str, build: str) -> Finding:
    visible = os.environ.get('CUDA_VISIBLE_DEVICES')
    if visible is not None and visible.strip() in ('', '-1'):
        return note('CUDA', f'CUDA_VISIBLE_DEVICES={visible!r} hides all GPUs: models run on the CPU',
                    'unset CUDA_VISIBLE_DEVICES')
    if not driver:
        return ok('CUDA', f'torch is built for {build}; no NVIDIA driver: models run on the CPU')
    return problem('CUDA', f'torch is built for {build}, driver {driver}, but no GPU is available',
                   'update the driver, or install a torch for an older CUDA; in a container, start it with --gpus all')


def _device(torch: Any, index: int) -> Finding:
    name = f'GPU {index}'
    try:
        properties = torch.cuda.get_device_properties(index)
        free, total = torch.cuda.mem_get_info(index)
    except RuntimeError as error:
        return problem(name, f'cannot be used: {one_line(error, 200)}', 'end other programs on it; see nvidia-smi')
    capability = f'{properties.major}.{properties.minor}'
    text = f'{properties.name}, compute capability {capability}, {free / GIB:.1f} of {total / GIB:.1f} GiB free'
    if not supported((properties.major, properties.minor), torch.cuda.get_arch_list()):
        return problem(name, f'{text}; this torch has no kernels for it ({" ".join(torch.cuda.get_arch_list())})',
                       f'install a torch build for compute capability {capability} ({_SELECTOR})')
    if free < GIB:
        return note(name, text, 'another program uses the memory; see nvidia-smi')
    return ok(name, text)


def supported(capability: tuple[int, int], architectures: list[str]) -> bool:
    """Whether kernels of ``architectures`` (``sm_80``, ``compute_90``, ``gfx90a``) run on a device.

    Machine code runs on devices of the same major version with an equal or higher minor one; PTX on all newer ones.
    """
    for name in architectures:
        match = re.fullmatch(r'(sm|compute)_(\d+)(\d)[af]?', name)
        if not match:
            return True  # AMD, or a new notation
        version = int(match[2]), int(match[3])
        if match[1] == 'sm' and version[0] == capability[0] and version[1] <= capability[1]:
            return True
        if match[1] == 'compute' and version <= capability:
            return True
    return not architectures


def nvidia_driver(proc: Path = Path('/proc/driver/nvidia/version')) -> str:
    """The version of the NVIDIA driver; empty if there is none."""
    try:
        if match := re.search(r'Kernel Module.*?\s(\d+\.\d[\d.]*)', proc.read_text()):
            return match[1]
    except OSError:
        pass
    try:
        shown = subprocess.run(['nvidia-smi', '--query-gpu=driver_version', '--format=csv,noheader'],
                               capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ''
    return shown.split('\n')[0].strip()
