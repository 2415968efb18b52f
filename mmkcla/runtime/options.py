"""``--cfg-options``: parse values, and refuse config variables that can no longer be changed."""
import ast
import inspect
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..utils.text import note, one_line

if TYPE_CHECKING:
    from mmengine.config import Config

# entries read by mmengine's runner besides its arguments, and by the commands of this package
_ALSO_READ = ('model_wrapper_cfg', 'sync_bn', 'find_unused_parameters', 'activation_checkpointing',
              'efficient_conv_bn_eval', 'compile', 'runner_type', 'tta_model', 'tta_pipeline', 'data_preprocessor')
_WITH_DATA = ('train_dataloader', 'val_dataloader', 'test_dataloader', 'val_evaluator', 'test_evaluator',
              'tta_pipeline')
_MAX_PLACES = 6  # listed in an error


@lru_cache
def keys_read() -> frozenset[str]:
    """Return the config entries that a run reads: the arguments of mmengine's runner, and a few more. All other
    variables have been used up when the config was loaded."""
    from mmengine.runner import Runner
    return frozenset((*inspect.signature(Runner).parameters, *_ALSO_READ)) - {'cfg'}


def parse_option(option: str) -> tuple[str, Any]:
    """Parse ``'a.b=[1,2]'`` to ``('a.b', [1, 2])``, with mmengine's rules for values. Dicts are written as
    ``dict(type='X', n=1)`` or ``{'type': 'X'}`` and can be nested.

    Raises:
        UserError: the option is malformed.
    """
    from mmengine.config import DictAction
    key, equals, value = option.partition('=')
    if not equals or not key:
        raise UserError(f'--cfg-options takes KEY=VALUE, got {option!r}')
    if value.lstrip().startswith(('dict(', '{')) or value.lstrip()[:1] in '([' and ('dict(' in value or '{' in value):
        try:
            return key, _literal(ast.parse(value.strip(), mode='eval').body)
        except (SyntaxError, ValueError) as error:
            reason = error.msg if isinstance(error, SyntaxError) else error
            raise UserError(f"--cfg-options {option}: {reason}; a dict is written as dict(type='X', n=1)") from error
    try:
        return key, DictAction._parse_iterable(value)
    except AssertionError as error:
        raise UserError(f'--cfg-options {option}: {error}') from error


def _literal(node: ast.expr) -> Any:
    """Evaluate constants, lists, tuples and dicts. A bare name (its quotes removed by the shell) is a string. No code
    is run.

    Raises:
        ValueError: the expression contains anything else.
    """
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, (ast.List, ast.Tuple)):
        values = [_literal(value) for value in node.elts]
        return values if isinstance(node, ast.List) else tuple(values)
    if isinstance(node, ast.Dict) and None not in node.keys:
        return {_literal(key): _literal(value) for key, value in zip(node.keys, node.values, strict=True)}
    if (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == 'dict' and not node.args
            and all(keyword.arg for keyword in node.keywords)):
        return {keyword.arg: _literal(keyword.value) for keyword in node.keywords}
    if (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant)
            and isinstance(node.operand.value, (int, float))):
        return -node.operand.value
    if isinstance(node, ast.Name):
        return {'true': True, 'false': False}.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        return f'{_literal(node.value)}.{node.attr}'
    raise ValueError(f'{ast.unparse(node)!r} is not a value')


def merge_options(config: 'Config', options: list[str]) -> None:
    """Merge ``options`` (``KEY=VALUE`` each) into ``config``.

    ``data_root``, a variable in most configs, is replaced in the data sets and evaluators that use its value.

    Raises:
        UserError: an option is malformed, or would have no effect.
    """
    changes = dict(parse_option(option) for option in options)
    whole = config.get('model') is not None  # otherwise it is not the config of a run
    moving = whole and 'data_root' in changes and isinstance(config.get('data_root'), str) and config.data_root
    if whole:
        _refuse_spent(config, [key for key in changes if key != 'data_root' or not moving])
    if moving:
        _move_data(config, changes['data_root'])
    new = [key for key in changes if not _has(config, key)]
    if new:
        note(f'--cfg-options: {", ".join(new)} not in the config; added')
    for key, value in changes.items():
        if isinstance(value, dict):
            before = _get(config, key)
            if not isinstance(before, dict):  # mmengine merges dicts only into dicts
                value.pop('_delete_', None)
                if key not in new:
                    value['_delete_'] = True
    try:
        config.merge_from_dict(changes)
    except (TypeError, KeyError, ValueError, IndexError) as error:
        raise UserError(f'--cfg-options {" ".join(options)}: {one_line(error)}') from error


def _refuse_spent(config: 'Config', keys: list[str]) -> None:
    """Refuse variables that are not read any more, and report where their values are used.

    If the config has custom imports, which may read any variable, print a note instead.
    """
    for key in keys:
        name = key.split('.')[0]
        if name in keys_read() and not (name == 'data_preprocessor' and config.model.get(name) is not None):
            continue
        if name not in config:
            line = f'--cfg-options {key}: {name} is neither a variable of the config nor read by a run; check the name'
        else:
            line = (f'--cfg-options {key}: {name} is a variable that was used when the config was loaded; changing it '
                    f'has no effect. {_where_used(config, name)}')
        if config.get('custom_imports') is None:
            raise UserError(line)
        note(line)


def _where_used(config: 'Config', name: str) -> str:
    value = config[name]
    if name == 'data_preprocessor':
        return 'Set model.data_preprocessor'
    if value is None or isinstance(value, bool) or value in (0, 1):  # too common to search for
        return 'Set the entries derived from it'
    read = {key: config[key] for key in config if key in keys_read() and key != 'data_preprocessor'}
    places = [place for place, found in _walk(read) if type(found) is type(value) and found == value]
    if not places:
        return 'Set the entries derived from it'
    more = f' and {len(places) - _MAX_PLACES} more' if len(places) > _MAX_PLACES else ''
    return f'Set the entries with its value: {", ".join(places[:_MAX_PLACES])}{more}'


def _move_data(config: 'Config', root: Any) -> None:
    """Replace the config's ``data_root`` by ``root`` in the paths of data sets and evaluators.

    Raises:
        UserError: none of them uses it.
    """
    old = config.data_root
    stem, new = old.rstrip('/'), str(root).rstrip('/') or '/'
    count, seen = 0, set()

    def moved(part: Any) -> Any:
        nonlocal count
        if id(part) in seen:  # a pipeline shared by two data sets
            return part
        if isinstance(part, (dict, list)):
            seen.add(id(part))
        if isinstance(part, dict):
            for key in part:
                part[key] = moved(part[key])
        elif isinstance(part, list):
            part[:] = map(moved, part)
        elif isinstance(part, tuple):
            return tuple(map(moved, part))
        elif isinstance(part, str) and (part in (old, stem) or part.startswith(stem + '/')):
            count += 1
            return str(root) if part == old else new + part[len(stem):]
        return part

    for key in _WITH_DATA:
        if config.get(key) is not None:
            config[key] = moved(config[key])
    if not count:
        raise UserError(f'--cfg-options data_root: no data set or evaluator of the config has a path in {old}; set '
                        'the data_root of each, e.g. train_dataloader.dataset.data_root=…')
    note(f'--cfg-options data_root: replaced {old} by {root} in {count} path{"s" * (count > 1)} of data sets and '
         'evaluators')


def _walk(part: Any, place: str = '') -> Iterator[tuple[str, Any]]:
    """Yield all entries with their dotted keys, outer entries first; strings and tuples are leaves."""
    items = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for key, value in items:
        inner = f'{place}.{key}' if place else str(key)
        yield inner, value
        yield from _walk(value, inner)


def _get(config: Any, dotted: str) -> Any:
    """Return the entry with that dotted key, or None."""
    if not _has(config, dotted):
        return None
    for key in dotted.split('.'):
        config = config[int(key)] if isinstance(config, (list, tuple)) else config[key]
    return config


def _has(config: Any, dotted: str) -> bool:
    for key in dotted.split('.'):
        if isinstance(config, (list, tuple)):
            if not key.isdigit() or int(key) >= len(config):
                return False
            config = config[int(key)]
        elif not hasattr(config, 'get') or key not in config:
            return False
        else:
            config = config[key]
    return True
