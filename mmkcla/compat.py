"""Tested versions of the host libraries, and public names that have moved.

No version is refused: both lines of OpenMMLab (original and onedl, with the same import names) are used as installed.
"""
import importlib
import re
import warnings
from types import ModuleType
from typing import Any

# import name: (oldest version that should work, newest tested minor version)
TESTED = {
    'torch': ('2.1', '2.14'),
    'mmengine': ('0.10.4', '0.10'),
    'mmcv': ('2.1', '2.3'),
    'mmdet': ('3.3', '3.5'),
    'mmseg': ('1.2', '1.4'),
    'mmpretrain': ('1.2', '1.3'),
}
DISTRIBUTIONS = {
    'mmengine': 'onedl-mmengine',
    'mmcv': 'onedl-mmcv',
    'mmdet': 'onedl-mmdetection',
    'mmseg': 'onedl-mmsegmentation',
    'mmpretrain': 'onedl-mmpretrain',
}
# the same import names in the original line; the first is the one to install
ORIGINAL_DISTRIBUTIONS = {
    'mmengine': ('mmengine', 'mmengine-lite'),
    'mmcv': ('mmcv', 'mmcv-lite', 'mmcv-full'),
    'mmdet': ('mmdet',),
    'mmseg': ('mmsegmentation',),
    'mmpretrain': ('mmpretrain',),
}
# other names of these packages: of the project, of a distribution, of a predecessor
ALIASES = {
    'mmdetection': 'mmdet', 'mmsegmentation': 'mmseg', 'mmcls': 'mmpretrain',
    'mmclassification': 'mmpretrain', 'mmcv_full': 'mmcv', 'mmcv_lite': 'mmcv',
    'onedl_mmdetection': 'mmdet', 'onedl_mmsegmentation': 'mmseg', 'onedl_mmpretrain': 'mmpretrain',
    'onedl_mmcv': 'mmcv', 'onedl_mmengine': 'mmengine', 'mmengine_lite': 'mmengine',
}


# module: {public name: its new module}
MOVED = {
    'mmkcla.evaluation': dict.fromkeys(('StereoMetric', 'stereo_counts', 'stereo_scores'), 'mmkcla.stereo.metric'),
}


def moved(module: str, name: str) -> Any:
    """Return a moved public name with a ``DeprecationWarning``; for ``__getattr__`` of ``module``.

    Raises:
        AttributeError: ``module`` never had that name.
    """
    place = MOVED.get(module, {}).get(name)
    if place is None:
        raise AttributeError(f'module {module!r} has no attribute {name!r}')
    warnings.warn(f'{module}.{name} has moved to {place}', DeprecationWarning, stacklevel=3)
    return getattr(importlib.import_module(place), name)


def version_notes(modules: dict[str, ModuleType]) -> list[str]:
    """Return one line for each of ``modules`` (import name: module) with a version outside of the tested range."""
    notes = (version_note(name, str(getattr(module, '__version__', ''))) for name, module in modules.items())
    return [line for line in notes if line]


def version_note(name: str, version: str) -> str:
    """Return a line if ``version`` of the package ``name`` is outside of the tested range, else an empty string."""
    number = _numbers(version)
    if name not in TESTED or not number:
        return ''
    first, last = TESTED[name]
    if number < _numbers(first):
        return f'{name} {version} is older than {first}, the oldest supported version; it may not work'
    if number[:2] > _numbers(last):
        return f'{name} {version} is newer than the newest tested version ({last})'
    return ''


def loaded_versions(*names: str) -> dict[str, ModuleType]:
    """Import the given packages and return those that can be imported."""
    modules = {}
    for name in names:
        try:
            modules[name] = importlib.import_module(name)
        except ImportError:
            continue
    return modules


def _numbers(version: str) -> tuple[int, ...]:
    """``'2.14.1+cpu'`` -> ``(2, 14, 1)``."""
    match = re.match(r'\d+(\.\d+)*', version)
    return tuple(int(part) for part in match.group().split('.')) if match else ()
