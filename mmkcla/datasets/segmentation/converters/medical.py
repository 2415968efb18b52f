"""Prepare a medical data set of two classes, from the files as published."""
from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from mmkcla.datasets.segmentation.converters.layout import MISSING_PART, NOT_THERE, Layout, Pair, Problem, find_pairs
from mmkcla.datasets.segmentation.converters.mask_rules import THRESHOLD, GreyMasks
from mmkcla.datasets.segmentation.converters.sources import list_files
from mmkcla.datasets.segmentation.converters.splits import (
    SPLITS,
    draw_split,
    names_digest,
    parse_ratio,
    read_split_file,
)
from mmkcla.datasets.segmentation.converters.workspace import partial_folder
from mmkcla.datasets.segmentation.converters.writing import Job, Options, Outcome, cannot_write, write_data_set
from mmkcla.errors import UserError

VERSION = 2  # stored with the data: count up when the same arguments give other files


def convert(layout: Layout, source: str | os.PathLike, out: str | os.PathLike, split: str | None = None,
            seed: int = 0, split_file: str | os.PathLike | None = None, workers: int | None = None,
            strict: bool = False, overwrite: bool = False, progress: bool | None = None) -> Outcome:
    """Write a prepared data set to ``out``, completely or not at all; the same arguments give the same bytes.

    A run that was killed resumes where it stopped (its work is in ``<out>.partial``; each file taken over is checked
    by its sha256). A data set already written with the same arguments is left unchanged.

    Args:
        layout: of the download.
        source: the folder with the downloaded zip files or the folders unpacked from them, or one such zip file.
        out: the folder to write.
        split: ``'official'``, or a ratio like ``'7:3'`` or ``'8:1:1'``; None: the layout's default.
        seed: of a ratio, 0 or more.
        split_file: names and their splits (:func:`~.splits.read_split_file`), in place of ``split``.
        workers: threads; None: one a processor.
        strict: any problem is an error, and nothing is written to ``out``.
        overwrite: write again where a converter of this project wrote before (and only there).
        progress: show a bar on stderr; None: if that is a terminal.

    Returns:
        What was done. Pairs with problems are left out, except where the problem says ``kept``.

    Raises:
        UserError: an argument is out of range; the source lacks what is needed or is damaged; ``out`` holds something
            else; ``strict`` and there are problems.
    """
    source, out = Path(source), Path(out)
    plan = _plan_split(layout, split, seed, split_file)
    options = Options(workers, strict, overwrite, progress)
    try:
        files = list_files(source, layout.archives, skip=(out, partial_folder(out)))
        pairs, problems, remarks = find_pairs(layout, files, source)
        splits, problems, notes = _assign(layout, plan, pairs, problems)
        job = Job(layout.name, layout.title, str(source), [pair for pair in pairs if pair.name in splits], splits,
                  GreyMasks(THRESHOLD), {'converter': f'mmkcla {layout.name} {VERSION}', **plan.parameters},
                  {'protocol': plan.protocol, 'seed': plan.seed, 'about': layout.about_splits, 'notes': notes})
        return write_data_set(job, out, problems, remarks, options)
    except OSError as error:
        raise cannot_write(out, error) from None


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
