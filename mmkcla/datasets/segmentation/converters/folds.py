"""The file that lists the names of each fold, and how a data set reads it."""
from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from mmkcla.datasets.segmentation.converters.groups import draw_folds
from mmkcla.errors import UserError
from mmkcla.utils.files import parse_json

FOLDS = 'folds.json'
FORMAT = 'mmkcla folds 1'


def write_folds(count: int, seed: int, groups: Mapping[str, str] | None, lists: bool, folder: Path,
                records: Sequence[dict]) -> list[str]:
    """Write ``folds.json``, and the names of each fold as text files; returns the names of what was written.

    Args:
        count: how many folds.
        seed: 0 or more.
        groups: the group of each name, which stays in one fold; None: none.
        lists: also write ``folds/<i>_train.txt`` and ``folds/<i>_val.txt``, an ``ann_file`` of mmseg's data set.
        folder: of the data set.
        records: of its pairs; those of train are divided. Images that are the same stay in one fold.
    """
    train = [record for record in records if record['split'] == 'train']
    same = defaultdict(list)
    for record in train:
        same[record['image_sha256']].append(record['name'])
    folds = draw_folds([record['name'] for record in train], count, seed, groups, same.values())
    (folder / FOLDS).write_text(json.dumps({'format': FORMAT, 'seed': seed, 'folds': folds}, ensure_ascii=False,
                                           indent=1) + '\n', encoding='utf-8', newline='\n')
    written = [FOLDS]
    if lists:
        (folder / 'folds').mkdir(exist_ok=True)
        for number, held_out in enumerate(folds):
            rest = sorted(name for other in folds if other is not held_out for name in other)
            for part, names in (('train', rest), ('val', held_out)):
                written.append(f'folds/{number}_{part}.txt')
                text = ''.join(f'{name}\n' for name in names)
                (folder / written[-1]).write_text(text, encoding='utf-8', newline='\n')
    return written


def read_folds(folder: str | os.PathLike) -> list[list[str]]:
    """The names of each fold of a prepared data set.

    Raises:
        UserError: there is no such file, or it is damaged.
    """
    path = Path(folder) / FOLDS
    try:
        content = parse_json(path.read_text(encoding='utf-8'))
    except FileNotFoundError:
        raise UserError(f'no file {path}: the data set has no folds; prepare it with --folds K') from None
    except (OSError, ValueError) as error:
        raise UserError(f'cannot read {path}: {error}') from None
    folds = content.get('folds') if isinstance(content, dict) else None
    if not isinstance(folds, list) or not all(isinstance(fold, list) and fold and all(
            isinstance(name, str) for name in fold) for fold in folds) or content.get('format') != FORMAT:
        raise UserError(f'{path} is not as a converter writes it ("format": "{FORMAT}", "folds": [[names], ...])')
    names = [name for fold in folds for name in fold]
    if len(set(names)) < len(names):
        raise UserError(f'{path} is damaged: {next(name for name in names if names.count(name) > 1)} is there twice')
    return folds


def names_of_fold(folder: str | os.PathLike, fold: int, split: str) -> tuple[set[str], set[str]]:
    """The names of ``train`` (all folds but ``fold``) or ``val`` (only that), and the names of all folds.

    Raises:
        UserError: there is no such fold.
    """
    folds = read_folds(folder)
    if isinstance(fold, bool) or not isinstance(fold, int) or not 0 <= fold < len(folds):
        raise UserError(f'fold {fold!r}: {Path(folder) / FOLDS} has the folds 0 to {len(folds) - 1}')
    everything = {name for names in folds for name in names}
    return (set(folds[fold]) if split == 'val' else everything - set(folds[fold])), everything
