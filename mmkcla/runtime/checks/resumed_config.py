"""Compare a config with that of the run whose checkpoint is resumed. Its text is parsed; no code in it is run."""
from __future__ import annotations

import ast
from typing import Any

from ...utils.text import listed
from ..entries import get
from ..moved_variables import walk

_COMPARED = ('train_dataloader.batch_size', 'optim_wrapper')
_STAY = ('lr', 'weight_decay', 'momentum', 'betas')  # of the optimizer: its state has them, see checks.resumed
_OTHER = object()  # something else than a value


def checkpoint_config(checkpoint: dict) -> dict[str, Any]:
    """Return the config in a checkpoint as far as it consists of values; empty if there is none."""
    meta = checkpoint.get('meta')
    text = meta.get('cfg') if isinstance(meta, dict) else None
    try:
        tree = ast.parse(text) if isinstance(text, str) else ast.Module([], [])
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    return {statement.targets[0].id: _value(statement.value) for statement in tree.body
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)}


def other_settings(config: Any, saved: dict[str, Any], filename: str) -> str | None:
    """Return one line that names the batch size, and the settings of the optimizer wrapper, that differ from those of
    the checkpoint's run; None if there are none. Values that continue are compared elsewhere."""
    if not saved:
        return None
    old, new = _leaves(saved), _leaves(config)
    found = []
    for place in dict.fromkeys((*old, *new)):
        before, now = old.get(place), new.get(place)
        if before is not _OTHER and _plain(before) != _plain(now):
            found.append(f'{place} {before!r} (config: {now!r})')
    return f'the run of {filename} had other settings: {listed(found, 8)}' if found else None


def deleted_hint(config: Any) -> str:
    """Return a hint if the checkpoint hook of this run deletes old checkpoints, such as the resumed one."""
    most = get(config, ('default_hooks', 'checkpoint', 'max_keep_ckpts'))
    deletes = isinstance(most, int) and most > 0
    return f'; copy the file first, since max_keep_ckpts={most} lets this run delete it' if deletes else ''


def _leaves(config: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for place in _COMPARED:
        part = get(config, place.split('.'))
        if not isinstance(part, dict):
            found[place] = part
            continue
        found |= {f'{place}.{key}': value for key, value in walk(part)
                  if not isinstance(value, dict) and key.removeprefix('optimizer.') not in _STAY}
    found.setdefault('optim_wrapper.type', 'OptimWrapper')
    return found


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else getattr(value, '__name__', value)


def _value(node: ast.expr) -> Any:
    """Return what a node stands for: a literal, or ``dict(…)`` of literals."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == 'dict' and not node.args:
        return {keyword.arg: _value(keyword.value) for keyword in node.keywords if keyword.arg is not None}
    if isinstance(node, ast.Dict):
        return {key.value: _value(value) for key, value in zip(node.keys, node.values, strict=True)
                if isinstance(key, ast.Constant)}
    if isinstance(node, (ast.List, ast.Tuple)):
        values = [_value(each) for each in node.elts]
        return values if isinstance(node, ast.List) else tuple(values)
    try:
        return ast.literal_eval(node)
    except ValueError:
        return _OTHER
