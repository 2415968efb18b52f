"""The files of a config: its bases, the variables that each file assigns and uses, and what a variable sets."""
from __future__ import annotations

import ast
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_BASE = '_base_'


class ConfigSource:
    """A config file that is read, but not run.

    Attributes:
        path: the file.
        assigned: its top-level variables, without those that start with an underscore.
        used: the variables whose values it reads itself.
        bases: the files in ``_base_``.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.assigned: set[str] = set()
        self.used: set[str] = set()
        self.bases: list[ConfigSource] = []
        self.tree = ast.Module([], [])
        if self.path.suffix == '.py':
            self._read_python()
        else:
            self._read_data()
        self.assigned = {name for name in self.assigned if not name.startswith('_')}

    def _read_python(self) -> None:
        from mmengine.config import Config
        try:
            self.tree = ast.parse(self.path.read_text(encoding='utf-8'))
        except (SyntaxError, ValueError):  # placeholders of mmengine outside of strings
            return
        for statement in self.tree.body:
            self.assigned.update(_targets(statement))
        changed = {id(_root(node)) for node in ast.walk(self.tree)
                   if isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, ast.Store)}
        self.used = {node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name)
                     and isinstance(node.ctx, ast.Load) and id(node) not in changed}
        if any(_BASE in _targets(statement) for statement in self.tree.body):
            self._find_bases(Config._get_base_files(str(self.path)))

    def _read_data(self) -> None:
        from mmengine.fileio import load
        content = load(str(self.path))
        self.assigned = set(content)
        bases = content.get(_BASE, [])
        self._find_bases([bases] if isinstance(bases, str) else bases)

    def _find_bases(self, names: list[str]) -> None:
        from mmengine.config import Config
        self.bases = [ConfigSource(Config._get_cfg_path(name, str(self.path.absolute()))[0]) for name in names]

    def all_bases(self) -> Iterator[ConfigSource]:
        """Yield the bases and their bases."""
        for base in self.bases:
            yield base
            yield from base.all_bases()

    def values(self, name: str) -> list[Any]:
        """Return the different values of a variable in the bases, the nearest first."""
        found: list[Any] = []
        for base in self.all_bases():
            if name in base.assigned:
                value = _load(base.path).get(name)
                found += [] if value in found else [value]
        return found

    def effects(self, name: str, value: Any) -> list[tuple[str, Any]]:
        """Return the entries that ``name = value`` would change if the bases and this file had it instead of their
        value: their dotted keys and their present values. Empty if this cannot be found out."""
        value = _plain(value)
        try:
            if ast.literal_eval(repr(value)) != value:
                return []
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, 'old').mkdir()
                Path(folder, 'new').mkdir()
                old = _load(self._rewritten(Path(folder, 'old'), name, None))
                new = _load(self._rewritten(Path(folder, 'new'), name, ast.parse(repr(value), mode='eval').body))
        except Exception:  # the value does not fit: a config is user code, it may raise anything
            return []
        old.pop(name, None)
        new.pop(name, None)
        return list(_changed(old, new))

    def _rewritten(self, folder: Path, name: str, value: ast.expr | None, number: str = '0') -> Path:
        """Write a copy of this file and of its bases, with another value of ``name`` unless it is None."""
        if self.path.suffix != '.py':
            raise ValueError(f'{self.path} is no Python file')
        bases = [base._rewritten(folder, name, value, f'{number}_{index}') if base.path.suffix == '.py' else base.path
                 for index, base in enumerate(self.bases)]
        body: list[ast.stmt] = []
        for statement in self.tree.body:
            names = _targets(statement)
            if _BASE in names:
                continue
            if name in names and value is not None and names == [name]:
                statement = ast.Assign([ast.Name(name, ast.Store())], value, lineno=0)
            body.append(statement)
        if bases:
            body.insert(0, ast.parse(f'{_BASE} = {[str(base.absolute()) for base in bases]!r}').body[0])
        path = folder / f'config_{number}.py'
        path.write_text(ast.unparse(ast.fix_missing_locations(ast.Module(body, []))), encoding='utf-8')
        return path


def _targets(statement: ast.stmt) -> list[str]:
    """Return the variables that a top-level statement assigns."""
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        targets = [statement.target]
    else:
        return []
    flat = [item for target in targets for item in (target.elts if isinstance(target, ast.Tuple) else [target])]
    return [item.id for item in flat if isinstance(item, ast.Name)]


def _root(node: ast.expr) -> ast.expr:
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    return node


def _load(path: Path) -> dict:
    from mmengine.config import Config
    return Config.fromfile(str(path), import_custom_modules=False).to_dict()


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return type(value)(map(_plain, value)) if type(value) in (list, tuple) else value


def _changed(old: Any, new: Any, place: str = '') -> Iterator[tuple[str, Any]]:
    """Yield the entries of ``old`` that ``new`` has with another value, or not at all."""
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        pairs = [(key, value, new[key]) for key, value in old.items()]
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = [(index, value, new[index]) for index, value in enumerate(old)]
    else:
        if old != new:
            yield place, old
        return
    for key, one, other in pairs:
        yield from _changed(one, other, f'{place}.{key}' if place else str(key))
