"""Import the modules in ``custom_imports`` of a config, from the environment or from the folder of the config."""
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
    """Append the folder of a config to ``sys.path`` permanently, since data-loader workers and later imports need it.

    It is not prepended, since a file such as ``datasets.py`` would then hide a library. Folders of shipped configs are
    skipped; they contain no modules.
    """
    folder, root = path.resolve().parent, configs_root()
    if root is not None and folder.is_relative_to(root.resolve()):
        return
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def import_custom_modules(config: Config) -> None:
    """Import the modules in ``custom_imports`` of a config.

    Raises:
        UserError: a module cannot be found or imported, or a module next to the config is hidden by another one with
            the same name.
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
    except Exception as error:  # a module is user code: it may raise anything
        raise UserError(f'config {path}: custom_imports: {_reason(error, imports, path)}') from error


def _check_not_hidden(name: str, config: Path) -> None:
    folder = config.resolve().parent
    beside = next((file for file in (folder / f'{name}.py', folder / name / '__init__.py') if file.is_file()), None)
    if beside is None:
        return
    try:
        spec = find_spec(name)  # that of the loaded module, if there is one
    except ValueError:  # loaded without a spec
        return
    if spec is not None and (spec.origin is None or Path(spec.origin).resolve() != beside):
        raise UserError(f'config {config}: custom_imports: the module {name!r} next to the config is hidden by '
                        f'{spec.origin or "a folder"} with the same name; rename it')


def _reason(error: BaseException, imports: Sequence[str], config: Path) -> str:
    root = error
    while root.__cause__ or root.__context__:
        root = root.__cause__ or root.__context__
    if isinstance(root, ModuleNotFoundError) and any(root.name == name or name.startswith(f'{root.name}.')
                                                     for name in imports):
        return (f'no module {root.name!r}; put it next to the config, in {config.resolve().parent}, or add its folder '
                'to PYTHONPATH')
    return f'cannot import {", ".join(imports)}: {type(root).__name__}: {one_line(root)}'
