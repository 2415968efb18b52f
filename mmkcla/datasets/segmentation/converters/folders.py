"""Prepare one's own data: any folder of images and any folder of masks."""
from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from PIL import Image

from mmkcla.datasets.segmentation.converters.class_names import Palette, choose_rule
from mmkcla.datasets.segmentation.converters.folds import write_folds
from mmkcla.datasets.segmentation.converters.groups import Names, draw_grouped, find_groups, refuse_crossing
from mmkcla.datasets.segmentation.converters.layout import NOT_THERE, Pair, Problem
from mmkcla.datasets.segmentation.converters.mask_rules import LabelMasks, MaskRule
from mmkcla.datasets.segmentation.converters.pairing import Pairing, label, pair_folders
from mmkcla.datasets.segmentation.converters.splits import (
    SPLITS,
    draw_split,
    names_digest,
    parse_ratio,
    read_split_file,
)
from mmkcla.datasets.segmentation.converters.workspace import partial_folder
from mmkcla.datasets.segmentation.converters.writing import (
    FOLDERS,
    SHORT_SUFFIX,
    Job,
    Options,
    Outcome,
    cannot_write,
    write_data_set,
)
from mmkcla.errors import UserError
from mmkcla.utils.images import turn
from mmkcla.utils.parallel import run_parallel
from mmkcla.utils.text import listed, plural

VERSION = 1  # stored with the data: count up when the same arguments give other files
RATIO, GIVEN = '8:1:1', 'given'


def convert_folders(images: str | os.PathLike, masks: str | os.PathLike, out: str | os.PathLike, *,
                    split: str | None = None, seed: int = 0, split_file: str | os.PathLike | None = None,
                    groups: str | os.PathLike | None = None, folds: int | None = None, threshold: int | None = None,
                    classes: str | Sequence[str] | None = None, palette: str | os.PathLike | Palette | None = None,
                    num_classes: int | None = None, workers: int | None = None, strict: bool = False,
                    overwrite: bool = False, progress: bool | None = None) -> Outcome:
    """Write a prepared data set to ``out``, completely or not at all; the same arguments give the same bytes.

    Files are paired by their names (:func:`~.pairing.pair_folders`). A run that was killed resumes; a data set already
    written with the same arguments is left unchanged.

    Args:
        images, masks: folders, flat or nested.
        out: the folder to write.
        split: a ratio like ``'8:1:1'`` (train, val, test) or ``'7:3'`` (train, test); ``'given'``: by the sub-folders
            train, val, test of ``images`` and ``masks``; ``'train'``, ``'val'`` or ``'test'``: all in that one. None:
            ``'given'`` where there are such sub-folders on both sides, else ``'8:1:1'``.
        seed: of a ratio and of folds, 0 or more.
        split_file: names and their splits (:func:`~.splits.read_split_file`), in place of ``split``.
        groups: what belongs together, as :func:`~.groups.find_groups` takes it; no group is in two splits or folds.
        folds: divide all images but those of test into so many folds: all are written to train, and ``folds.json``
            lists the names of each. ``split=None`` is then: no test set, unless given by sub-folders.
        threshold: of masks of two classes: foreground is above it, 0 to 254. None: masks hold 0/1, or 0/255.
        classes: names, in the order of the labels, as a sequence or separated by commas; two are background and
            foreground, more are labels 0 to K-1.
        palette: the colours of the classes: a file with lines ``name,#rrggbb`` or JSON ``{"name": "#rrggbb"}``, or such
            pairs. The name ``ignore`` is for pixels that do not count (255).
        num_classes: masks hold labels 0 to K-1, and 255 to ignore.
        workers: threads; None: one a processor.
        strict: any problem is an error, and nothing is written to ``out``.
        overwrite: write again where a converter of this project wrote before (and only there).
        progress: show a bar on stderr; None: if that is a terminal.

    Returns:
        What was done. Pairs with problems are left out, except where the problem says ``kept``.

    Raises:
        UserError: an argument is out of range; nothing pairs; masks do not fit the classes; a group is in two splits;
            ``out`` holds something else; ``strict`` and there are problems.
    """
    images, masks, out = Path(images), Path(masks), Path(out)
    options, rule = Options(workers, strict, overwrite, progress), choose_rule(threshold, classes, palette, num_classes)
    _check_split(split, seed, split_file, folds)
    try:
        # A ratio, or a list, over folders that are split already draws over all of them.
        pairing = pair_folders(images, masks, (out, partial_folder(out)), {GIVEN: True, None: None}.get(split))
        if not pairing.pairs:
            raise UserError(f'no pair of {images} and {masks} is left: {listed(sorted(map(str, pairing.problems)))}')
        plan = _Plan(pairing, seed, groups, folds)
        plan.choose(split, split_file)
        pairs = [pair for pair in pairing.pairs if pair.name in plan.splits]
        as_png = isinstance(rule, LabelMasks) and _need_png(pairs, options, plan.notes)
        job = Job(FOLDERS, f'{images.name} and {masks.name}', f'{images} and {masks}', pairs, plan.splits, rule,
                  {'converter': f'mmkcla folders {VERSION}', **plan.parameters, **_rule_parameters(rule)},
                  {'protocol': plan.protocol, 'seed': plan.seed, 'about': '', 'notes': [*pairing.notes, *plan.notes]},
                  label, as_png, isinstance(rule, LabelMasks),
                  partial(write_folds, folds, seed, plan.groups, isinstance(rule, LabelMasks)) if folds else None)
        return write_data_set(job, out, [*pairing.problems, *plan.problems], (), options)
    except OSError as error:
        raise cannot_write(out, error) from None


def _check_split(split: str | None, seed: int, split_file: str | os.PathLike | None, folds: int | None) -> None:
    if seed < 0:
        raise UserError(f'seed {seed}: must be 0 or more')
    if split_file is not None and split is not None:
        raise UserError(f'split {split} and split file {split_file}: give one of them')
    if split not in (None, GIVEN, *SPLITS):
        try:
            parse_ratio(split)
        except UserError:
            raise UserError(f'split {split!r}: must be like 7:3 (train and test) or 8:1:1 (train, val and test), or '
                            f'{GIVEN}, or one of {", ".join(SPLITS)} for all images') from None
    if folds is not None and folds < 2:
        raise UserError(f'folds {folds}: must be 2 or more')
    if folds is not None and split in ('val', 'test'):
        raise UserError(f'folds {folds}: split {split} leaves no images for folds')


@dataclass
class _Plan:
    """Which pair is in which split, and why."""

    pairing: Pairing
    seed: int | None
    group_source: str | os.PathLike | None
    folds: int | None
    groups: dict[str, str] | None = None
    splits: dict[str, str] = field(default_factory=dict)
    protocol: str = ''
    parameters: dict = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def choose(self, split: str | None, split_file: str | os.PathLike | None) -> None:
        """Fill in everything."""
        names = [pair.name for pair in self.pairing.pairs]
        if self.group_source is not None:
            self.groups, notes = find_groups(self.group_source, names)
            count = len(set(self.groups.values()))
            self.notes += [*notes, f'{plural(count, "group")}; none is in two splits' if not self.folds else
                           f'{plural(count, "group")}; none is in two folds']
        if split is None and split_file is None:
            split = GIVEN if self.pairing.given else 'train' if self.folds else RATIO
        if split_file is not None:
            self._listed(Path(split_file), names)
        elif split == GIVEN:
            self._fixed({pair.name: pair.part for pair in self.pairing.pairs}, split, 'split as given')
        elif split in SPLITS:
            self._fixed(dict.fromkeys(names, split), split, f'all in {split}')
        else:
            self._drawn(names, parse_ratio(split), split)
        if self.groups:
            refuse_crossing(self.groups, self.splits)
        if self.folds:
            self.splits = {name: 'test' if part == 'test' else 'train' for name, part in self.splits.items()}
            if 'train' not in self.splits.values():
                raise UserError(f'folds {self.folds}: no image is outside of test')
            self.protocol += f', {self.folds} folds'
        digest = self.groups and names_digest(f'{name}\t{group}' for name, group in self.groups.items())
        self.parameters.update(seed=self.seed, groups=digest, folds=self.folds)

    def _fixed(self, splits: dict[str, str], split: str, protocol: str) -> None:
        self.splits, self.protocol = splits, protocol
        if not self.folds:
            self.seed = None
        self.parameters.update(split=split, split_file=None)

    def _drawn(self, names: Sequence[str], ratio: tuple[int, ...], split: str) -> None:
        self.splits = draw_grouped(self.groups, ratio, self.seed) if self.groups else draw_split(
            names, ratio, self.seed)
        self.protocol = f'{split} drawn by seed {self.seed}' + (' in groups' if self.groups else '')
        if len(ratio) == 2 and not self.folds:
            self.notes.append('there is no val: a ratio of two parts is train and test')
        if self.pairing.given:
            self.notes.append('the sub-folders train, val, test are not used: the split is drawn from all images')
        self.parameters.update(split=':'.join(map(str, ratio)), split_file=None)

    def _listed(self, path: Path, names: Sequence[str]) -> None:
        known = Names(names)
        for written, part in read_split_file(path, folders=True, train=False).items():
            name = known.find(written)
            if name is None:
                self.problems.append(Problem(NOT_THERE, written, part))
            elif self.splits.setdefault(name, part) != part:
                raise UserError(f'{path}: {written} is in {self.splits[name]} and in {part}')
        if not self.splits:
            raise UserError(f'{path}: not one of its names is of an image here; names: '
                            f'{listed(problem.file for problem in self.problems)}; images: {listed(names)}')
        if unlisted := len(names) - len(self.splits):
            them = 'image is left out: the split file does not name it' if unlisted == 1 else (
                'images are left out: the split file does not name them')
            self.notes.append(f'{unlisted} {them}')
        if not self.folds:
            self.seed = None
        digests = {part: names_digest(name for name, at in self.splits.items() if at == part) for part in SPLITS}
        self.protocol = f'split file {path.name}'
        self.parameters.update(split='file', split_file=digests)


def _rule_parameters(rule: MaskRule) -> Mapping[str, object]:
    if isinstance(rule, LabelMasks):
        colours = rule.colours and hashlib.sha256(repr(sorted(rule.colours.items())).encode()).hexdigest()
        return {'threshold': None, 'classes': list(rule.classes), 'labels': 'colours' if colours else 'values',
                'palette': colours}
    return {'threshold': rule.threshold, 'classes': list(rule.classes), 'labels': None, 'palette': None}


def _need_png(pairs: Sequence[Pair], options: Options, notes: list[str]) -> bool:
    """Whether images must be encoded as PNG to have one suffix, as mmseg's data set needs it."""
    kinds = defaultdict(list)
    for pair in pairs:
        suffix = os.path.splitext(pair.image.name)[1].lower()
        kinds[SHORT_SUFFIX.get(suffix, suffix)].append(pair)
    if len(kinds) > 1:
        notes.append(f'images of {", ".join(sorted(kinds))} are all written as PNG (lossless), for one img_suffix')
    elif '.png' not in kinds and any(run_parallel(_is_turned, pairs, options.workers, options.progress, 'EXIF')):
        notes.append('some images are turned by EXIF data: all are written as PNG (lossless), for one img_suffix')
    else:
        notes.append(f"images have one suffix: img_suffix='{next(iter(kinds))}'")
        return False
    notes.append("images have one suffix: img_suffix='.png'")
    return True


def _is_turned(pair: Pair) -> bool:
    try:
        with Image.open(pair.image.path) as image:
            return turn(image) is not None
    except Exception:  # damaged: reported when it is converted
        return False
