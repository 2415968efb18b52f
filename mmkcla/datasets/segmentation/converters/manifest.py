"""Read and write the manifest of a prepared data set."""
from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from mmkcla.datasets.segmentation.converters.layout import Problem
from mmkcla.errors import UserError
from mmkcla.utils.files import already_there, parse_json

from ....utils.text import one_line

MANIFEST = 'manifest.json'
PROBLEMS = 'problems.txt'
FORMAT = 'mmkcla binary segmentation 1'
LABELS_FORMAT = 'mmkcla segmentation 1'  # of more classes, or with pixels to ignore
STAMP = '.verified'  # of verify_once
OS_FILES = {'.DS_Store', 'Thumbs.db', 'desktop.ini'}  # created by operating systems; not data


def write_manifest(folder: Path, head: dict, problems: Sequence[Problem], files: Sequence[dict]) -> None:
    """Write ``manifest.json`` (a line for each problem and pair), and ``problems.txt`` if there are any."""
    listed = {'problems': [{'kind': problem.kind, 'file': problem.file, 'detail': problem.detail, 'kept': problem.kept}
                           for problem in problems], 'files': list(files)}
    parts = [f'{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}' for key, value in
             {'format': LABELS_FORMAT if 'ignore_index' in head else FORMAT, **head}.items()]
    for key, entries in listed.items():
        lines = ',\n  '.join(json.dumps(entry, ensure_ascii=False) for entry in entries)
        parts.append(f'{json.dumps(key)}: [\n  {lines}\n ]' if lines else f'{json.dumps(key)}: []')
    (folder / MANIFEST).write_text('{\n ' + ',\n '.join(parts) + '\n}\n', encoding='utf-8', newline='\n')
    if problems:
        text = ''.join(f'{problem}\n' for problem in problems)
        (folder / PROBLEMS).write_text(text, encoding='utf-8', newline='\n')
    else:
        (folder / PROBLEMS).unlink(missing_ok=True)


def read_manifest(folder: str | os.PathLike) -> dict | None:
    """The manifest of a prepared data set; None if there is none.

    Raises:
        UserError: it cannot be read, or is not of this project.
    """
    path = Path(folder) / MANIFEST
    try:
        content = parse_json(path.read_text(encoding='utf-8'))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f'cannot read {path}: {error.strerror or error}') from None
    except ValueError as error:
        raise UserError(f'cannot read {path}: it is damaged ({one_line(error)})') from None
    if not isinstance(content, dict) or content.get('format') not in (FORMAT, LABELS_FORMAT):
        raise UserError(f'{path} is not the manifest of a prepared data set ("format": "{FORMAT}")')
    _check_classes(content, path)
    files = content.get('files')
    if not isinstance(files, list) or not all(map(_valid, files)):
        raise UserError(f'{path} is damaged: its "files" are not as a converter writes them')
    return content


def prepared_before(folder: Path, parameters: dict, source: Callable[[], str], overwrite: bool) -> bool:
    """Whether ``folder`` is the prepared data set asked for; False if it may be written.

    Args:
        folder, parameters, overwrite: see :func:`~mmkcla.utils.files.already_there`.
        source: gives the digest of the source; called only if the parameters are equal (it can take a while).

    Raises:
        UserError: it holds something else, or is damaged.
    """
    return already_there(folder, 'prepared data set', _record, {**parameters, 'source': source}, overwrite,
                         ignored={*OS_FILES, STAMP})


def _record(folder: Path) -> tuple[dict, dict[str, int | None]]:
    """The parameters that a folder was written with, and its files with their sizes."""
    content = read_manifest(folder)
    if content is None:
        raise FileNotFoundError
    files: dict[str, int | None] = {MANIFEST: None}
    files.update(extra_files(content))
    if (folder / PROBLEMS).exists():  # only where something was found
        files[PROBLEMS] = None
    for entry in content['files']:
        files.update({entry[kind]: entry[f'{kind}_bytes'] for kind in ('image', 'mask')})
    return content.get('parameters') or {}, files


def extra_files(content: dict) -> dict[str, int]:
    """Files of a data set that are no images or masks (the names of its folds), with their sizes in bytes."""
    extra = content.get('extra')
    return extra if isinstance(extra, dict) and all(isinstance(size, int) for size in extra.values()) else {}


def label_values(content: dict | None) -> set[int]:
    """The values that masks may hold by the manifest; 0 and 1 without one."""
    if content is None or content['format'] == FORMAT:
        return {0, 1}
    return {*range(len(content['classes'])), content['ignore_index']}


def _check_classes(content: dict, path: Path) -> None:
    classes = content.get('classes')
    valid = isinstance(classes, list) and len(classes) > 1 and isinstance(content.get('ignore_index'), int)
    if content['format'] == LABELS_FORMAT and not valid:
        raise UserError(f'{path} is damaged: its "classes" and "ignore_index" are not as a converter writes them')


def _valid(entry: object) -> bool:
    """Whether an entry of ``files`` has what is read from it, and its paths stay in the folder."""
    if not isinstance(entry, dict) or not all(isinstance(entry.get(key), str) for key in ('name', 'split')):
        return False
    for kind in ('image', 'mask'):
        path, size = entry.get(kind), entry.get(f'{kind}_bytes')
        if not isinstance(size, int) or not isinstance(entry.get(f'{kind}_sha256'), str) or not isinstance(path, str):
            return False
        if path.split('/')[:-1] != [f'{kind}s', entry['split']] or '\\' in path or '..' in path.split('/'):
            return False
    return True
