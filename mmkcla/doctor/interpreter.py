"""Python, the platform, and mmkcla itself."""
from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

from ..paths import configs_root
from ..version import __version__
from .finding import Finding, note, ok, problem

OLDEST = (3, 10)
# variables that change how packages are found, how many threads run, and where weights are stored
VARIABLES = ('PYTHONPATH', 'PYTHONNOUSERSITE', 'VIRTUAL_ENV', 'CONDA_PREFIX', 'CUDA_VISIBLE_DEVICES', 'LD_LIBRARY_PATH',
             'LD_PRELOAD', 'OMP_NUM_THREADS', 'MKL_NUM_THREADS', 'TORCH_HOME', 'XDG_CACHE_HOME',
             'PYTORCH_ENABLE_MPS_FALLBACK', 'PYTORCH_CUDA_ALLOC_CONF', 'TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD')


def check() -> Iterator[Finding]:
    """Versions, platform, configs, environment variables."""
    version = platform.python_version()
    if sys.version_info < OLDEST:
        yield problem('Python', f'{version} is too old', 'create an environment with Python '
                      f'{OLDEST[0]}.{OLDEST[1]} or newer')
    elif sys.maxsize < 2 ** 32:
        yield problem('Python', f'{version} has 32 bits, for which there is no PyTorch', 'install a 64-bit Python')
    else:
        yield ok('Python', f'{version} ({sys.executable})')
    yield ok('platform', platform.platform())
    package = Path(__file__).resolve().parents[1]
    root = configs_root()
    if root is None:
        yield problem('mmkcla', f'{__version__} in {package}, without its configs',
                      'pip install --force-reinstall --no-deps mmkcla, or use a complete checkout')
    else:
        yield ok('mmkcla', f'{__version__} in {package}', configs=str(root))
    encoding = sys.getfilesystemencoding()
    if encoding.lower() not in ('utf-8', 'utf8'):
        yield note('encoding', f'file names are {encoding}; other characters cannot be read', 'export PYTHONUTF8=1')
    if variables := {name: os.environ[name] for name in VARIABLES if os.environ.get(name)}:
        yield ok('environment', ', '.join(f'{name}={value}' for name, value in variables.items()), variables=variables)
