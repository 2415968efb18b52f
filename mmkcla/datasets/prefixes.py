"""Check ``data_prefix`` of a data set: its keys must be read by the class, its folders must exist."""
from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from ..errors import UserError
from ..utils.text import did_you_mean, listed, note
from .pipelines import steps_of

_READ = re.compile(r"""data_prefix(?:\[|\.(?:get|pop)\(\s*)\s*['"](\w+)['"]|['"](\w+)['"] in (?:self\.)?data_prefix""")
_DYNAMIC = re.compile(r"""data_prefix(?:\.(?:items|keys|values)\(|\[\s*(?!['"]))|\*\*(?:self\.)?data_prefix""")
_FOLDERS = ('BaseSegDataset', 'BaseDetDataset')  # classes whose prefixes are folders that exist before a run
_LABELS = {'seg_map_path': r'LoadAnnotations|LoadBinaryMask', 'depth_map_path': 'LoadDepthAnnotation',
           'seg': 'LoadAnnotations|Panoptic'}  # keys of labels: steps that read them


def check_prefix_keys(dataset: Any) -> None:
    """Check that the class of the data set reads every key of ``data_prefix``.

    Args:
        dataset: a :class:`mmkcla.datasets.check.Dataset`.

    Raises:
        UserError: it does not, or ``data_prefix`` has the wrong type.
    """
    prefix, where = dataset.config.get('data_prefix'), f'{dataset.where}.data_prefix'
    known = prefix_keys(dataset.kind)
    if prefix is None or known is None:
        return
    if not isinstance(prefix, dict):
        if 'mmpretrain' in {parent.__module__.partition('.')[0] for parent in dataset.kind.__mro__}:
            return  # one string is the folder of the images
        key = _image_key(known) or known[0]
        raise UserError(f'{where}={prefix!r} must be a dict; write data_prefix=dict({key}={prefix!r})')
    unknown = [key for key in prefix if key not in known]
    if not unknown:
        return
    remedy = f'it reads {listed(known, 5)}' if known else 'it reads none'
    image = _image_key(known)
    hint = did_you_mean(unknown[0], set(known) - prefix.keys())
    if image and image not in prefix and (not hint or image in hint):
        remedy = f'write data_prefix=dict({image}={prefix[unknown[0]]!r})'
    elif hint:
        remedy = f'{remedy}{hint}'
    raise UserError(f'{where} has the key {listed(map(repr, unknown))}, which {dataset.ancestors[0]} does not read; '
                    f'{remedy}')


def check_prefix_folders(dataset: Any) -> None:
    """Check that the folders of ``data_prefix`` exist, for data sets of mmseg and mmdet.

    Args:
        dataset: a :class:`mmkcla.datasets.check.Dataset`.

    Raises:
        UserError: one that the run reads does not; of folders of labels that the pipeline does not load, a note.
    """
    prefix = dataset.config.get('data_prefix')
    if not isinstance(prefix, dict) or not set(_FOLDERS) & set(dataset.ancestors):
        return
    if not dataset.path(None).is_dir():  # no data_root at all: the host says so
        return
    remote = (dataset.config.get('backend_args') or {}).get('backend', 'local') != 'local'
    for key, name in prefix.items():
        path = dataset.path(name)
        if remote or not name or '://' in str(path) or path.exists():
            continue
        if key in _LABELS and not _loads(dataset.config.get('pipeline'), key):
            note(f'{dataset.where}.data_prefix.{key}: no folder {path}; the pipeline does not load these labels')
        else:
            raise UserError(f'no folder {path} ({dataset.where}.data_prefix.{key})')


@lru_cache
def prefix_keys(kind: Any) -> tuple[str, ...] | None:
    """Keys of ``data_prefix`` that the methods of a data set class read, from their source; None if that is unknown."""
    found: dict[str, None] = {}
    try:
        for source in _sources(kind):
            if _DYNAMIC.search(source):
                return None
            found.update(dict.fromkeys(key or other for key, other in _READ.findall(source)))
    except (OSError, TypeError):  # no source
        return None
    return tuple(found) or None


def _sources(kind: type) -> Iterator[str]:
    """The source of each method, with those that it calls by ``super()``; without mmengine's, which handle any key."""
    for name in dir(kind):
        for parent in kind.__mro__:
            method = vars(parent).get(name)
            method = getattr(method, 'fget', None) or getattr(method, '__func__', method)
            if not inspect.isfunction(method):
                continue
            if parent.__module__.startswith('mmengine.'):
                break
            source = re.sub(r'#.*', '', inspect.getsource(method))
            yield source
            if f'super().{name}(' not in source:
                break


def _image_key(keys: tuple[str, ...]) -> str | None:
    return next((key for key in keys if key.startswith('img')), None)


def _loads(pipeline: Any, key: str) -> bool:
    """Whether a step of the pipeline reads the labels of a key."""
    for step in steps_of(pipeline):
        if re.search(_LABELS[key], str(step.get('type'))) and (
                key != 'seg' or step.get('with_seg') or 'Panoptic' in str(step.get('type'))):
            return True
    return False
