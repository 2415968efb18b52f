"""Prepare a medical data set of two classes: pair, check, convert, split, write down.

The result is what :class:`mmkcla.datasets.segmentation.binary_seg.BinarySegDataset` reads::

    images/{train,val,test}/<name>.jpg    as published, byte for byte (upright PNG where EXIF data turned it)
    masks/{train,val,test}/<name>.png     values 0 and 1
    manifest.json                         parameters, counts, names, sizes and sha256 of all files
    problems.txt                          what was found wrong, by name; only if something was
"""
from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from mmkcla.datasets.segmentation import masks as pixels
from mmkcla.datasets.segmentation.converters.layout import (
    MISSING_PART,
    NOT_THERE,
    Layout,
    Pair,
    Problem,
    find_pairs,
    label,
)
from mmkcla.datasets.segmentation.converters.manifest import prepared_before, write_manifest
from mmkcla.datasets.segmentation.converters.sources import MAX_BYTES, Reader, SourceFile, list_files
from mmkcla.datasets.segmentation.converters.splits import (
    SPLITS,
    draw_split,
    names_digest,
    parse_ratio,
    read_split_file,
)
from mmkcla.datasets.segmentation.converters.workspace import Workspace, partial_folder, remove_partial
from mmkcla.errors import UserError
from mmkcla.utils.images import turn, upright, upright_size
from mmkcla.utils.parallel import run_parallel

THRESHOLD = 127
VERSION = 2  # stored with the data: count up when the same arguments give other files


@dataclass(frozen=True)
class Outcome:
    """What a conversion did: one line for people, notes, the problems found, and what was kept of a killed run."""

    text: str
    notes: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    reused: int = 0


def convert(layout: Layout, source: str | os.PathLike, out: str | os.PathLike, split: str | None = None,
            seed: int = 0, split_file: str | os.PathLike | None = None, workers: int | None = None,
            strict: bool = False, overwrite: bool = False, progress: bool | None = None) -> Outcome:
    """Write a prepared data set to ``out``, whole or not at all; the same arguments give the same bytes.

    A run that was killed goes on where it stopped (its work is in ``<out>.partial``; each file taken over is checked
    by its sha256). A data set already written with the same arguments is left alone.

    Args:
        layout: of the download.
        source: the folder with the downloaded zip files or the folders unpacked from them, or one such zip file.
        out: the folder to write.
        split: ``'official'``, or a ratio like ``'7:3'`` or ``'8:1:1'``; None: the layout's default.
        seed: of a ratio, 0 or more.
        split_file: names and their splits (:func:`~.splits.read_split_file`), in place of ``split``.
        workers: threads; None: one a processor.
        strict: any problem is an error, and nothing is written to ``out``.
        overwrite: write anew where a converter of this project wrote before (and only there).
        progress: show a bar on stderr; None: if that is a terminal.

    Returns:
        What was done. Pairs with problems are left out, except where the problem says ``kept``.

    Raises:
        UserError: an argument is out of range; the source lacks what is needed or is damaged; ``out`` holds something
            else; ``strict`` and there are problems.
    """
    source, out = Path(source), Path(out)
    plan = _plan_split(layout, split, seed, split_file)
    if workers is not None and workers < 1:
        raise UserError(f'workers {workers}: must be 1 or more')
    try:
        files = list_files(source, layout.archives, skip=(out, partial_folder(out)))
        pairs, problems, remarks = find_pairs(layout, files, source)
        splits, problems, notes = _assign(layout, plan, pairs, problems)
        pairs = [pair for pair in pairs if pair.name in splits]
        parameters = {'converter': f'mmkcla {layout.name} {VERSION}', **plan.parameters}
        reader = Reader()
        fingerprint = partial(_fingerprint, pairs, tuple(problems), reader, workers, progress)
        if prepared_before(out, parameters, fingerprint, overwrite):
            remove_partial(out)
            return Outcome(f'{out}: already there')
        _fail_if_strict(strict, layout, problems)
        with Workspace(out, {**parameters, 'stamp': _stamp(pairs)}) as work, reader:
            if work.restarted:
                remarks.append(f'{partial_folder(out)} was begun with other arguments or files, and is begun anew')
            for kind in ('images', 'masks'):
                for part in set(splits.values()):
                    (work.data / kind / part).mkdir(parents=True, exist_ok=True)
            results = run_parallel(partial(_convert_pair, work, reader, splits), pairs, workers, progress, layout.title)
            records = [result for result in results if isinstance(result, dict)]
            problems += [result for result in results if isinstance(result, Problem)]
            reused = sum(record.pop('reused', False) for record in records)
            records = _without_leaks(work.data, records, problems)
            problems += _empty_masks(records)
            problems.sort()
            _fail_if_strict(strict, layout, problems, f'; what is done is kept in {partial_folder(out)}')
            counts = Counter(record['split'] for record in records)
            if not counts['train']:
                raise UserError(f'{source}: no pair is left for training ({_summary(problems, 3)})')
            if not any(record['foreground'] for record in records):
                largest = max(record['mask_maximum'] for record in records)
                raise UserError(f'{source}: not one of the {len(records)} masks has foreground: no value is above '
                                f'{THRESHOLD}, the largest is {largest}; masks are grey, with a foreground of 255')
            write_manifest(work.data, {
                'dataset': layout.name, 'protocol': plan.protocol, 'seed': plan.seed, 'about': layout.about_splits,
                'notes': notes, 'parameters': {**parameters, 'source': fingerprint()},
                'counts': {part: counts[part] for part in SPLITS},
                'empty_masks': sum(not record['foreground'] for record in records),
                'names_sha256': {part: names_digest(record['name'] for record in records if record['split'] == part)
                                 for part in SPLITS if counts[part]}}, problems, records)
            work.publish(replace=overwrite)
    except OSError as error:
        where = error.filename or out
        raise UserError(f'cannot write {out}: {error.strerror or error}'
                        + (f' ({where})' if str(where) != str(out) else '')) from None
    numbers = ', '.join(f'{counts[part]} {part}' for part in SPLITS if counts[part])
    return Outcome(f'{out}: {numbers} images with masks ({plan.protocol})', (*remarks, *notes), tuple(problems), reused)


@dataclass(frozen=True)
class _SplitPlan:
    protocol: str  # for people
    seed: int | None
    ratio: tuple[int, ...] | None = None
    listed: dict[str, str] | None = None
    parameters: dict | None = None


def _plan_split(layout: Layout, split: str | None, seed: int, split_file: str | os.PathLike | None) -> _SplitPlan:
    """Check the arguments about splits."""
    if seed < 0:
        raise UserError(f'seed {seed}: must be 0 or more')
    if split_file is not None:
        if split is not None:
            raise UserError(f'split {split} and split file {split_file}: give one of them')
        listed = read_split_file(split_file)
        digests = {part: names_digest(name for name, at in listed.items() if at == part) for part in SPLITS}
        return _SplitPlan(f'split file {Path(split_file).name}', None, listed=listed,
                          parameters={'split': 'file', 'seed': None, 'split_file': digests})
    split = split or layout.split
    if split == 'official':
        if not layout.official:
            raise UserError(f'{layout.title} has no official split; give a ratio like {layout.split}, or a split file')
        return _SplitPlan('official', None, parameters={'split': split, 'seed': None, 'split_file': None})
    ratio = parse_ratio(split)
    return _SplitPlan(f'{split} drawn by seed {seed}', seed, ratio,
                      parameters={'split': ':'.join(map(str, ratio)), 'seed': seed, 'split_file': None})


def _assign(layout: Layout, plan: _SplitPlan, pairs: list[Pair], problems: list[Problem]) -> tuple[
        dict[str, str], list[Problem], list[str]]:
    """The split of each pair that is used, by name; the problems that matter; notes for the manifest."""
    if plan.listed is not None:
        there, notes = {pair.name for pair in pairs}, []
        absent = [Problem(NOT_THERE, name, split)
                  for name, split in plan.listed.items() if name not in there]
        if unlisted := len(there - plan.listed.keys()):
            them = 'image is left out: the split file does not name it' if unlisted == 1 else (
                'images are left out: the split file does not name them')
            notes.append(f'{unlisted} {them}')
        named = {name: split for name, split in plan.listed.items() if name in there}
        # A part that no one asked for may be missing.
        return named, [problem for problem in problems if problem.kind != MISSING_PART] + absent, notes
    if plan.ratio is None:
        return {pair.name: pair.part for pair in pairs}, problems, []
    unused = [part for part in layout.parts if part.name not in layout.drawn]
    notes = [f'the official {part.name} set is not used: the split is drawn from {" and ".join(layout.drawn)}'
             for part in unused]
    if len(plan.ratio) == 2:
        notes.append('there is no val: a ratio of two parts is train and test')
    folders = {folder for part in unused for folder in (part.images, part.masks)}
    problems = [problem for problem in problems if folders.isdisjoint({problem.file.removesuffix('.zip'),
                                                                       problem.file.split('/')[0]})]
    drawn = draw_split([pair.name for pair in pairs if pair.part in layout.drawn], plan.ratio, plan.seed)
    return drawn, problems, notes


def _convert_pair(work: Workspace, reader: Reader, splits: dict[str, str], pair: Pair) -> dict | Problem:
    """Write one pair, or take it over from an earlier run; the record for the manifest, or what is wrong."""
    known = work.done.get(pair.name)
    if known is not None and all(_intact(work.data / known[kind], known[f'{kind}_bytes'], known[f'{kind}_sha256'])
                                 for kind in ('image', 'mask')):
        return {**known, 'reused': True}
    at = pair.image
    try:
        image_bytes = _read(reader, pair.image, 'image')
        image = pixels.decode(image_bytes, 'image')
        size, turned = upright_size(image), turn(image)
        suffix = PurePosixPath(pair.image.name).suffix.lower()
        if turned is not None:
            image_bytes, suffix = pixels.upright_png(image), '.png'
        stored = image.size
        del image
        at = pair.mask
        mask = upright(pixels.decode(_read(reader, pair.mask, 'mask'), 'mask'))
        if mask.size != size:
            exif = turned is not None and mask.size == stored
            hint = ', but turned as the EXIF data of the image say' if exif else ''
            sizes = f'mask {mask.width}x{mask.height}, image {size[0]}x{size[1]}'
            raise pixels.PixelError('size mismatch', sizes + hint)
        values = pixels.grey(mask)
        if values.max(initial=0) == 1:
            found = 'only the value 1' if values.min() else 'values 0 and 1'
            raise pixels.PixelError('0/1 mask', f'{found}: not a grey mask of 0 to 255; multiply it by 255')
    except pixels.PixelError as error:
        return Problem(error.kind, label(at), error.detail)
    foreground = values > THRESHOLD
    mask_bytes = pixels.mask_png(foreground)
    split = splits[pair.name]
    record = {'name': pair.name, 'split': split, 'width': size[0], 'height': size[1],
              'foreground': int(foreground.sum())}
    if not record['foreground']:
        record['mask_maximum'] = int(values.max(initial=0))
    if turned is not None:
        record['turned_upright'] = True
    for kind, content, end in (('image', image_bytes, suffix), ('mask', mask_bytes, '.png')):
        record[kind] = f'{kind}s/{split}/{pair.name}{end}'
        record[f'{kind}_bytes'] = len(content)
        record[f'{kind}_sha256'] = hashlib.sha256(content).hexdigest()
        (work.data / record[kind]).write_bytes(content)
    work.record(record)
    return record


def _read(reader: Reader, file: SourceFile, what: str) -> bytes:
    if file.size > MAX_BYTES:
        raise pixels.PixelError(f'corrupt {what}', f'{file.size} bytes are more than {MAX_BYTES}')
    return reader.read(file)


def _intact(path: Path, size: int, sha256: str) -> bool:
    try:
        content = path.read_bytes() if path.stat().st_size == size else None
    except OSError:
        return False
    return content is not None and hashlib.sha256(content).hexdigest() == sha256


def _empty_masks(records: Iterable[dict]) -> list[Problem]:
    return [Problem('all-zero mask', record['mask'], f'kept; no value above {THRESHOLD}'
                    + (f', the largest is {record["mask_maximum"]}' if record['mask_maximum'] else ''), True)
            for record in records if not record['foreground']]


def _without_leaks(data: Path, records: list[dict], problems: list[Problem]) -> list[dict]:
    """Report images that are there twice; leave them out of train if val or test has them, and out of val if test."""
    kept, first = [], {}
    for record in sorted(records, key=lambda record: (-SPLITS.index(record['split']), record['name'])):
        other = first.setdefault(record['image_sha256'], record)
        if other is record or other['split'] == record['split']:
            if other is not record:
                detail = f'kept; the same as {other["image"]}'
                problems.append(Problem('duplicate image', record['image'], detail, True))
            kept.append(record)
            continue
        problems.append(Problem('duplicate image across splits', record['image'],
                                f'left out; the same as {other["image"]}'))
        for kind in ('image', 'mask'):
            (data / record[kind]).unlink()
    return sorted(kept, key=lambda record: (SPLITS.index(record['split']), record['name']))


def _fail_if_strict(strict: bool, layout: Layout, problems: list[Problem], more: str = '') -> None:
    if strict and problems:
        raise UserError(f'{layout.title}: {_summary(problems)} (--strict{more})')


def _summary(problems: list[Problem], most: int = 10) -> str:
    """All problems in one line."""
    shown = '; '.join(map(str, sorted(problems)[:most]))
    rest = f'; and {len(problems) - most} more' if len(problems) > most else ''
    return f'{len(problems)} problem{"s" * (len(problems) != 1)}: {shown}{rest}'


def _fingerprint(pairs: list[Pair], problems: Sequence[Problem], reader: Reader, workers: int | None,
                 progress: bool | None) -> str:
    """Of the names and CRCs of what is converted: the same for a zip file and the folder unpacked from it.

    A zip file tells them; files of a folder that ``reader`` did not read before are read.
    """
    files = [file for pair in pairs for file in (pair.image, pair.mask)]
    crcs = run_parallel(reader.crc32, files, workers, progress, 'compare')
    lines = [f'{part} {label(file)} {file.size} {crc:08x}' for part, file, crc in
             zip((pair.part for pair in pairs for _ in range(2)), files, crcs, strict=True)]
    return _digest([*lines, *map(str, sorted(problems))])


def _stamp(pairs: list[Pair]) -> str:
    """Of where the files are and when they changed: another download ends what a killed run began."""
    files = [file for pair in pairs for file in (pair.image, pair.mask)]
    places = {file.path: file.path.resolve() for file in files}
    return _digest(sorted(f'{places[file.path]} {file.changed} {"/".join(file.parts)} {file.size}' for file in files))


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256('\n'.join(lines).encode()).hexdigest()
