"""Find configs: files, those shipped with the package, and that of a work dir."""
import difflib
import re
from pathlib import Path

from .errors import UserError

_PACKAGE = Path(__file__).resolve().parent


def configs_root() -> Path | None:
    """Return the folder of shipped configs: ``mmkcla/.mim/configs`` in a wheel, ``configs`` in a checkout, or None."""
    return next((path for path in (_PACKAGE / '.mim' / 'configs', _PACKAGE.parent / 'configs') if path.is_dir()), None)


def find_config(name: str) -> Path:
    """Resolve a config: an existing path, else a path below :func:`configs_root`, else the name of a file in it.

    The suffix ``.py`` may be omitted. The work dir of a training stands for the config in it.

    Raises:
        UserError: the config does not exist (similar names are listed), or the name is ambiguous.
    """
    given = Path(name)
    spellings = [given] if given.suffix in ('.py', '.json', '.yaml', '.yml') else [given, given.with_name(
        given.name + '.py')] if given.name else [given]
    for path in spellings:
        if path.is_file():
            return path
    root = configs_root()
    shipped = sorted(path for path in root.rglob('*.py') if '_base_' not in path.parts) if root else []
    for path in spellings:
        if root and not path.is_absolute() and (root / path).is_file():
            return root / path
        same_name = [candidate for candidate in shipped if candidate.name == path.name]
        if len(same_name) == 1 and len(path.parts) == 1:
            return same_name[0]
        if len(same_name) > 1 and len(path.parts) == 1:
            choices = ', '.join(str(candidate.relative_to(root)) for candidate in same_name)
            raise UserError(f'config {name!r} is ambiguous: {choices}')
    if given.is_dir():
        return config_of_run(given)
    raise UserError(f'no config {name!r}{_near(spellings[-1], shipped, root)}')


def is_run(path: Path) -> bool:
    """Whether ``path`` is the work dir of a training: a folder with a config and with checkpoints or logs."""
    return path.is_dir() and any(path.glob('*.py')) and any(
        entry.name == 'last_checkpoint' or entry.suffix == '.pth' or re.fullmatch(r'\d{8}_\d{6}', entry.name)
        for entry in path.iterdir())


def config_of_run(folder: Path) -> Path:
    """Return the config that a training has written to its work dir.

    Raises:
        UserError: the folder is no work dir (work dirs in it are listed), or has several configs.
    """
    if not is_run(folder):
        inside = sorted(path.name for path in folder.iterdir() if is_run(path))
        hint = f"give one of its work dirs: {', '.join(inside[:8])}{', …' if len(inside) > 8 else ''}" if inside else \
            'give a .py file, or the work dir of a training'
        raise UserError(f'config {folder} is a folder; {hint}')
    configs = sorted(folder.glob('*.py'))
    if len(configs) > 1:
        raise UserError(f'the work dir {folder} has {len(configs)} configs: '
                        f'{", ".join(path.name for path in configs)}; give one of these files')
    return configs[0]


def config_file(name: str) -> str:
    """Return the path of a shipped config, to be used as ``_base_`` in a config outside of the package::

        _base_ = __import__('mmkcla').config_file('demo/resnet20_digits.py')

    mmengine does not allow imports before ``_base_``, and supports ``'mmdet::…'`` only for packages that it knows.
    ``name`` is a path in ``configs/``, including the ``_base_`` folders, or the name of a file there.

    Raises:
        UserError: the config does not exist, or the name is ambiguous.
    """
    root = configs_root()
    if root is None:
        raise UserError(f'no config {name!r}: the configs of the package are missing from its installation')
    found = [root / name] if (root / name).is_file() else list(root.rglob(name)) if name == Path(name).name else []
    if len(found) != 1:
        choices = ', '.join(sorted(str(path.relative_to(root)) for path in found))
        raise UserError(f'config {name!r} is ambiguous: {choices}' if found else
                        f'the package has no config {name!r} (searched {root})')
    return str(found[0])


def _near(wanted: Path, shipped: list[Path], root: Path | None) -> str:
    """Suggest similar configs, or list the searched folders."""
    beside = sorted(wanted.parent.glob('*.py')) if wanted.parent.is_dir() else []
    names = {path.name: str(path.relative_to(root)) for path in shipped}
    names |= {path.name: str(path) for path in beside}
    near = difflib.get_close_matches(wanted.name, names, n=3, cutoff=0.6)
    if near:
        return '; did you mean ' + ' or '.join(names[name] for name in near) + '?'
    searched = 'the current folder' + (f' and {root}' if root else '')
    return f' (searched {searched})'
