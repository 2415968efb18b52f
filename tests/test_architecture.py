"""Imports go one way: a room imports rooms below it, no room or module takes part in a circle, commands stand alone."""
import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / 'mmkcla'
# Lower numbers may be imported by higher ones, and rooms of one number by each other, without a circle.
LEVELS = {
    'errors': 0, 'version': 0, 'compat': 0, 'paths': 0, 'registry': 0,
    'utils': 1,
    'layers': 2, 'ops': 2,
    'weights': 3, 'models': 3, 'datasets': 3, 'evaluation': 3,
    'zoo': 3,  # names for mmpretrain's hub
    'checkpoint': 3, 'convert': 3,  # public import paths of weights
    'runtime': 4,
    'analysis': 5, 'stereo': 5,
    'plan': 6, 'doctor': 6,
    'cli': 7,
}
DOORS = {'mmkcla', 'mmkcla.__main__'}  # the package itself imports everything, when it is used


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix('').parts
    return '.'.join(parts[:-1] if parts[-1] == '__init__' else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob('*.py'))}


def imported(name: str, text: str, is_package: bool, lazy: bool = True) -> set[str]:
    """The modules of the package that a module's text imports, relatively or absolutely, also by ``import_module``.

    With ``lazy=False`` only those that its own import runs: neither inside functions nor under ``TYPE_CHECKING``.
    """
    tree = ast.parse(text)
    found = set()
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if not lazy and (isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
                         or isinstance(node, ast.If) and 'TYPE_CHECKING' in ast.unparse(node.test)):
            continue
        pending += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = name.split('.') if is_package else name.split('.')[:-1]
            base = '.'.join(package[:len(package) - node.level + 1]) if node.level else ''
            target = '.'.join(filter(None, (base, node.module)))
            found |= {target} | {f'{target}.{alias.name}' for alias in node.names}
        elif (isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant)
              and ast.unparse(node.func).endswith(('import_module', '__import__'))):
            found.add(str(node.args[0].value))
    found = {one for one in found if one in MODULES}
    return {one for one in found if not any(other.startswith(f'{one}.') for other in found)} - {name}


IMPORTS = {name: imported(name, path.read_text(encoding='utf-8'), path.name == '__init__.py')
           for name, path in MODULES.items()}


def room(module: str) -> str:
    return module.split('.')[1] if '.' in module else module


def circle(graph: dict[str, set[str]]) -> list[str]:
    """The nodes of a circle, in order; empty if there is none."""
    state: dict[str, int] = {}
    path: list[str] = []

    def visit(node: str) -> list[str]:
        state[node] = 1
        path.append(node)
        for other in sorted(graph.get(node, ())):
            if state.get(other) == 1:
                return [*path[path.index(other):], other]
            if other not in state and (found := visit(other)):
                return found
        path.pop()
        state[node] = 2
        return []

    for start in sorted(graph):
        if start not in state and (found := visit(start)):
            return found
    return []


def test_every_room_has_a_level():
    assert {room(name) for name in MODULES if name not in DOORS} <= LEVELS.keys()


def test_no_import_goes_up():
    upwards = [f'{name} imports {other}' for name, others in IMPORTS.items() if name not in DOORS for other in others
               if other == 'mmkcla' or LEVELS[room(other)] > LEVELS[room(name)]]
    assert not upwards


def test_no_circle_of_rooms():
    rooms: dict[str, set[str]] = {}
    for name, others in IMPORTS.items():
        if name not in DOORS:
            rooms.setdefault(room(name), set()).update(room(other) for other in others if room(other) != room(name))
    assert circle(rooms) == []


def test_no_circle_of_modules():
    assert circle({name: others for name, others in IMPORTS.items() if name not in DOORS}) == []


def test_utils_and_layers_stand_alone():
    """The lowest rooms can be lifted out: utils needs the errors only, layers need utils and torch."""
    for name, others in IMPORTS.items():
        if room(name) == 'utils':
            assert {room(other) for other in others} <= {'utils', 'errors'}, name
        if room(name) == 'layers':
            assert {room(other) for other in others} <= {'layers', 'utils', 'errors'}, name
            assert not any(word in MODULES[name].read_text(encoding='utf-8') for word in (
                'import mmengine', 'import mmcv', 'from mmengine', 'from mmcv')), name


def test_commands_do_not_import_commands():
    from mmkcla.cli import COMMANDS
    commands = {f'mmkcla.cli.{command}' for command in COMMANDS}
    assert commands <= MODULES.keys() | {f'mmkcla.cli.{command}' for command in COMMANDS}
    for name in commands:
        assert not IMPORTS.get(name, set()) & commands, name


@pytest.mark.parametrize(('text', 'expected'), [
    ('from ..errors import UserError', {'mmkcla.errors'}),
    ('def f():\n    from ..runtime import runner', {'mmkcla.runtime.runner'}),
    ('from .text import note', {'mmkcla.utils.text'}),
    ('import importlib\nimportlib.import_module("mmkcla.cli.train")', {'mmkcla.cli.train'}),
    ('from mmkcla.layers import KCLA', {'mmkcla.layers'}),
    ('import torch', set()),
])
def test_what_counts_as_an_import(text, expected):
    assert imported('mmkcla.utils.sample', text, False) == expected


def test_a_circle_is_found():
    assert circle({'a': {'b'}, 'b': {'c'}, 'c': {'a'}}) == ['a', 'b', 'c', 'a'] and circle({'a': {'b'}}) == []


def test_files_are_short():
    long = {str(path.relative_to(ROOT)): lines for folder in ('mmkcla', 'tests', 'tools')
            for path in (ROOT / folder).rglob('*.py')
            if (lines := len(path.read_text(encoding='utf-8').splitlines())) > 400}
    assert not long
