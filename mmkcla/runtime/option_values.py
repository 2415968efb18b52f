"""Parse the value of ``KEY=VALUE`` as it is written.

1. A Python literal is that literal: a number, ``True``, ``None``, quoted text, a list, tuple or dict.
2. ``true``, ``false``, ``inf`` and ``nan`` are read as well, and brackets and ``dict(…)`` take text without quotes:
   ``[bbox, segm]``, ``dict(type=KCLA)``. Brackets always make a list or tuple, so ``(3)`` is ``(3,)``.
3. ``1,2`` and ``a,b`` are lists if each item is a literal, or if there are no spaces and each item is a literal or a
   plain word (letters, digits, ``_``, ``.`` and ``-``).
4. Everything else is text and kept as it is, with its spaces, commas and quotes.
"""
from __future__ import annotations

import ast
import re
import warnings
from typing import Any

_WORD = re.compile(r'[\w.-]+')
_CLOSING = {'(': ')', '[': ']', '{': '}'}
_PARSE_ERRORS = (SyntaxError, ValueError, RecursionError, MemoryError)
_MISSING = object()


def parse_value(text: str) -> Any:
    """Return the value that ``text`` stands for.

    Raises:
        ValueError: a list, tuple or dict is malformed, or contains something else than values.
    """
    stripped = text.strip()
    if stripped.startswith(('dict(', *_CLOSING)):
        end = _closing(stripped, stripped.index('(') if stripped.startswith('dict(') else 0)
        if end is None:
            raise ValueError(f'{stripped[stripped.startswith("dict(") * 4]!r} was never closed')
        if end == len(stripped) - 1:
            return _in_brackets(stripped)
    value = _scalar(stripped)
    if value is not _MISSING:
        return value
    values = _comma_list(stripped) if ',' in stripped else None
    return text if values is None else values


def _in_brackets(text: str) -> Any:
    """Parse ``text``, which starts and ends with a pair of brackets."""
    if text.startswith(('dict(', '{')):
        try:
            return _literal(_expression(text))
        except SyntaxError as error:
            raise ValueError(error.msg) from error
    try:
        value = _literal(_expression(text), names=False)
    except _PARSE_ERRORS:
        values = [_item(part) for part in _split(text[1:-1])]
        return values if text[0] == '[' else tuple(values)
    return value if text[0] == '[' or isinstance(value, tuple) else (value, )


def _item(text: str) -> Any:
    """Parse one item of a list. It is text if it is not a value; a comma in it separates items."""
    text = text.strip()
    if text.startswith(('dict(', *_CLOSING)):
        return parse_value(text)
    value = _scalar(text)
    return text if value is _MISSING else value


def _comma_list(text: str) -> list | None:
    """Return the values of ``a,b``, or None if it is text."""
    items = _split(text)
    if len(items) == 1 and not text.endswith(','):  # the comma is inside quotes or brackets
        return None
    values: list[Any] = []
    words = False
    for item in map(str.strip, items):
        if item.startswith(('dict(', *_CLOSING)):
            end = _closing(item, item.index('(') if item.startswith('dict(') else 0)
            if end != len(item) - 1:
                return None
            values.append(_in_brackets(item))
        elif (value := _scalar(item)) is not _MISSING:
            values.append(value)
        elif _WORD.fullmatch(item):
            words = True
            values.append(item)
        else:
            return None
    return None if words and re.search(r'\s', text) else values


def _scalar(text: str) -> Any:
    """Return a number, a Boolean, None or quoted text; ``_MISSING`` if it is none of them."""
    if text.lower() in ('true', 'false'):
        return text.lower() == 'true'
    if text[:1] in ('"', "'") or text in ('None', ) or text[:1] in '+-.0123456789':
        try:
            value = _literal(_expression(text), names=False)
        except _PARSE_ERRORS:
            pass
        else:
            return value if not isinstance(value, tuple) else _MISSING
    if not text.isascii() or '_' in text:
        return _MISSING
    for kind in (int, float):  # 007, inf and nan
        try:
            return kind(text)
        except ValueError:
            continue
    return _MISSING


def _expression(text: str) -> ast.expr:
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # about escapes such as '\d'
        try:
            return ast.parse(text, mode='eval').body
        except (RecursionError, MemoryError) as error:
            raise ValueError('it is nested too deeply') from error


def _literal(node: ast.expr, names: bool = True) -> Any:
    """Evaluate constants, lists, tuples and dicts, without running code. With ``names``, a bare name (its quotes were
    removed by the shell) is text.

    Raises:
        ValueError: the expression contains anything else.
    """
    if isinstance(node, ast.Constant) and isinstance(node.value, (str, int, float, type(None))):
        return node.value
    if isinstance(node, (ast.List, ast.Tuple)):
        values = [_literal(value, names) for value in node.elts]
        return values if isinstance(node, ast.List) else tuple(values)
    if isinstance(node, ast.Dict) and None not in node.keys:
        return {_literal(key, names): _literal(value, names)
                for key, value in zip(node.keys, node.values, strict=True)}
    if (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == 'dict' and not node.args
            and all(keyword.arg for keyword in node.keywords)):
        return {keyword.arg: _literal(keyword.value, names) for keyword in node.keywords}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        number = _literal(node.operand, names=False)
        if isinstance(number, (int, float)) and not isinstance(number, bool):
            return -number if isinstance(node.op, ast.USub) else number
    if isinstance(node, ast.Name) and node.id in ('inf', 'nan'):
        return float(node.id)
    if names and isinstance(node, ast.Name):
        return {'true': True, 'false': False}.get(node.id, node.id)
    if names and isinstance(node, ast.Attribute):
        return f'{_literal(node.value)}.{node.attr}'
    raise ValueError(f'{ast.unparse(node)!r} is not a value')


def _split(text: str) -> list[str]:
    """Split at commas outside quotes and brackets; a comma at the end starts no further item."""
    parts, start, position = [], 0, 0
    while position < len(text):
        if text[position] == ',':
            parts.append(text[start:position])
            start = position + 1
        position = _skip(text, position)
    return [*parts, text[start:]] if text[start:].strip() else parts


def _skip(text: str, position: int) -> int:
    """Return the position after the character, quoted text or pair of brackets at ``position``."""
    mark = text[position]
    end = _closing(text, position) if mark in _CLOSING else _end_of_quotes(text, position) if mark in '\'"' else None
    return position + 1 if end is None else end + 1


def _closing(text: str, start: int) -> int | None:
    """Return the position of the bracket that closes the one at ``start``, or None."""
    expected = [_CLOSING[text[start]]]
    position = start + 1
    while position < len(text):
        mark = text[position]
        if mark in _CLOSING:
            expected.append(_CLOSING[mark])
        elif mark == expected[-1]:
            expected.pop()
            if not expected:
                return position
        elif mark in '\'"' and (end := _end_of_quotes(text, position)) is not None:
            position = end
        position += 1
    return None


def _end_of_quotes(text: str, start: int) -> int | None:
    """Return the position of the closing quote, or None: the mark at ``start`` is an apostrophe."""
    position = start + 1
    while position < len(text):
        if text[position] == '\\':
            position += 1
        elif text[position] == text[start]:
            return position
        position += 1
    return None
