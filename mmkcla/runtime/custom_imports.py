"""The modules that a config names in ``custom_imports``, found beside the config as well as in the environment."""
from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError
from ..paths import configs_root
from ..utils.text import one_line

if TYPE_CHECKING:
    from mmengine.config import Config


def add_config_folder(path: Path) -> None:
    """Put the folder of a config at the end of ``sys.path``, where it stays: data-loader workers and later imports need
    it too. At the end, because at the front a file called ``datasets.py`` would replace a library. The folders of the
    shipped configs hold no modules and are left out."""
    folder, root = path.resolve().parent, configs_root()
    if root is not None and folder.is_relative_to(root.resolve()):
        return
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def import_custom_modules(config: Config) -> None:
    """Import what ``custom_imports`` of a config names.

    Raises:
        UserError: a module that cannot be found or imported, or that is beside the config and hidden by another of the
            same name.
    """
    wanted = config.get('custom_imports')
    if not wanted:
        return
    path = Path(config.filename)
    if not (hasattr(wanted, 'get') and wanted.keys() <= {'imports', 'allow_failed_imports', '_scope_'}):
        raise UserError(f'config {path}: custom_imports={wanted!r} must be dict(imports=[…], '
                        'allow_failed_imports=False)')
    imports = wanted.get('imports') or []
    imports = [imports] if isinstance(imports, str) else list(imports)
    for name in imports:
        _check_not_hidden(str(name).partition('.')[0], path)
    from mmengine.utils import import_modules_from_strings
    try:
        import_modules_from_strings(imports, wanted.get('allow_failed_imports', False))
    except UserError:
        raise
    except Exception as error:  # a module is a program: it may raise anything
        raise UserError(f'config {path}: custom_imports: {_reason(error, imports, path)}') from error


def _check_not_hidden(name: str, config: Path) -> None:
    folder = config.resolve().parent
    beside = next((file for file in (folder / f'{name}.py', folder / name / '__init__.py') if file.is_file()), None)
    if beside is None:
        return
    try:
        spec = find_spec(name)  # of the loaded module, if it is loaded already
    except ValueError:  # loaded without a spec
        return
    if spec is not None and (spec.origin is None or Path(spec.origin).resolve() != beside):
        raise UserError(f'config {config}: custom_imports: the module {name!r} beside the config is hidden by '
                        f'{spec.origin or "a folder"} of the same name; rename it')


def _reason(error: BaseException, imports: Sequence[str], config: Path) -> str:
    root = error
    while root.__cause__ or root.__context__:
        root = root.__cause__ or root.__context__
    if isinstance(root, ModuleNotFoundError) and any(root.name == name or name.startswith(f'{root.name}.')
                                                     for name in imports):
        return f'no module {root.name!r}; put it beside the config, in {config.resolve().parent}, or into PYTHONPATH'
    return f'cannot import {", ".join(imports)}: {type(root).__name__}: {one_line(root)}'
