"""The OpenMMLab packages: which line they are of, whether they fit together, and whether they can be imported."""
from __future__ import annotations

import importlib
from collections.abc import Iterator

from ..compat import DISTRIBUTIONS, ORIGINAL_DISTRIBUTIONS, version_note
from ..utils.text import one_line
from .finding import Finding, note, ok, problem
from .packages import Installed, installed, normalised

TITLES = {'mmengine': 'MMEngine', 'mmcv': 'MMCV', 'mmdet': 'MMDetection', 'mmseg': 'MMSegmentation',
          'mmpretrain': 'MMPretrain'}
HOSTS = ('mmdet', 'mmseg', 'mmpretrain')
OPTIONAL = {'mmdet': 'detection', 'mmseg': 'segmentation'}  # the backbones extend those of mmpretrain
LIBRARIES = ('cv2', 'PIL.Image', 'scipy.sparse', 'matplotlib', 'safetensors', 'pycocotools.mask', 'faster_coco_eval')
INSTALL_ONE_LINE = "pip install 'mmkcla[onedl]'"
# import name: distribution, where they differ
_DISTRIBUTION_OF = {'cv2': 'opencv-python-headless', 'PIL': 'pillow', 'skimage': 'scikit-image', 'yaml': 'pyyaml',
                    'sklearn': 'scikit-learn', 'pkg_resources': 'setuptools<81', 'faster_coco_eval': 'faster-coco-eval',
                    **DISTRIBUTIONS}


def check_line() -> Iterator[Finding]:
    """Whether all packages are of one line: onedl (maintained) or the original of OpenMMLab."""
    yield from line_of(installed())


def line_of(found: list[Installed]) -> Iterator[Finding]:
    """As :func:`check_line`, for these distributions."""
    lines: dict[str, list[str]] = {}
    for root, onedl in DISTRIBUTIONS.items():
        for one in found:
            if not one.owns(root):
                continue
            name = normalised(one.name)
            if name not in (onedl, *ORIGINAL_DISTRIBUTIONS[root]):
                yield problem('line', f'the package {root} is of {one}, which is not {TITLES[root]}',
                              f'pip uninstall -y {one.name}; pip install {onedl}')
                continue
            lines.setdefault('onedl' if name == onedl else 'original', []).append(str(one))
    if len(lines) > 1:
        shown = '; '.join(f'{line}: {", ".join(sorted(names))}' for line, names in sorted(lines.items()))
        names = ' '.join(name.split()[0] for name in lines['original'])
        yield problem('line', f'packages of two lines ({shown})', f'pip uninstall -y {names}; {INSTALL_ONE_LINE}')
    elif lines:
        line, names = next(iter(lines.items()))
        yield ok('line', f'{line}: {", ".join(names)}')
    else:
        yield problem('line', 'no package of OpenMMLab is installed', INSTALL_ONE_LINE)


def import_libraries() -> Iterator[Finding]:
    """Import the compiled libraries that the hosts use. A missing one is reported by the requirements."""
    loaded = []
    for name in LIBRARIES:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name and name.startswith(error.name):
                continue
            yield problem(name, f'cannot be imported: {one_line(error, 200)}', remedy_of(error, name))
        except Exception as error:
            yield problem(name, f'cannot be imported: {one_line(error, 200)}', remedy_of(error, name))
        else:
            loaded.append(name.split('.')[0])
    yield ok('libraries', ', '.join(loaded))


def imported(package: str) -> Iterator[Finding]:
    """Import a package of OpenMMLab and, of a host, all modules that it registers."""
    if package in HOSTS:
        _install_operators()
    try:
        module = importlib.import_module(package)
        if package in HOSTS:
            importlib.import_module(f'{package}.utils').register_all_modules(init_default_scope=False)
    except Exception as error:  # the hosts assert the versions of mmcv and mmengine
        if isinstance(error, ModuleNotFoundError) and error.name == package:
            yield _not_installed(package)
        else:
            yield problem(package, f'cannot be imported: {one_line(error, 200)}', remedy_of(error, package))
        return
    version = getattr(module, '__version__', '')
    if not version:
        yield problem(package, f'{list(getattr(module, "__path__", []))} is not {TITLES[package]}',
                      f'rename that folder, and pip install {DISTRIBUTIONS[package]}')
        return
    line = version_note(package, version)
    yield note(package, line, INSTALL_ONE_LINE if 'older' in line else '') if line else ok(package, version)


def _not_installed(package: str) -> Finding:
    remedy = f'pip install {DISTRIBUTIONS[package]}'
    if package in OPTIONAL:
        return note(package, f'not installed; only needed for {OPTIONAL[package]}', remedy)
    return problem(package, 'not installed', remedy)


def _install_operators() -> None:
    from ..errors import UserError
    from ..ops import install
    try:
        install()
    except UserError:  # the check of the operators reports it
        return


def remedy_of(error: Exception, package: str) -> str:
    """What to do about a failed import."""
    text = str(error)
    distribution = _DISTRIBUTION_OF.get(package.split('.')[0], package.split('.')[0])
    if 'libGL' in text or 'libgthread' in text or 'libxcb' in text:
        return ('pip uninstall -y opencv-python opencv-python-headless; pip install opencv-python-headless '
                '(needs no graphics libraries)')
    if 'NumPy 1.x' in text or 'numpy.dtype size changed' in text or 'numpy.core.multiarray' in text or (
            '_ARRAY_API' in text):
        return f"it was built for another NumPy: pip install --upgrade --force-reinstall --no-deps '{distribution}'"
    if isinstance(error, ModuleNotFoundError) and error.name:
        missing = error.name.split('.')[0]
        if missing != package.split('.')[0]:
            return f"pip install '{_DISTRIBUTION_OF.get(missing, missing)}'"
    if isinstance(error, AssertionError):  # the versions do not fit each other
        return f'install one line completely: {INSTALL_ONE_LINE}'
    return f"pip install --force-reinstall --no-deps '{distribution}'"
