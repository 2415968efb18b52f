"""Write a prepared segmentation data set: check, convert, and write down what was done.

The result is what :class:`mmkcla.datasets.segmentation.binary_seg.BinarySegDataset` reads, and for more classes mmseg's
own ``BaseSegDataset``::

    images/{train,val,test}/<name>.jpg    byte for byte as found (upright PNG where EXIF data turned it)
    masks/{train,val,test}/<name>.png     the class of each pixel
    manifest.json                         parameters, counts, names, sizes and sha256 of all files
    problems.txt                          what was found wrong, by name; only if something was
"""
from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from mmkcla.datasets.findings import turned_unseen
from mmkcla.datasets.segmentation import masks as pixels
from mmkcla.datasets.segmentation.converters.layout import Pair, Problem, label
from mmkcla.datasets.segmentation.converters.manifest import prepared_before, write_manifest
from mmkcla.datasets.segmentation.converters.mask_rules import MaskRefused, MaskRule
from mmkcla.datasets.segmentation.converters.sources import MAX_BYTES, Reader, SourceFile
from mmkcla.datasets.segmentation.converters.splits import SPLITS, names_digest
from mmkcla.datasets.segmentation.converters.workspace import Workspace, partial_folder, remove_partial
from mmkcla.errors import UserError
from mmkcla.utils.images import turn, upright, upright_size
from mmkcla.utils.parallel import run_parallel
from mmkcla.utils.text import plural

FOLDERS = 'folders'  # name of the user's own data in the manifest
SHORT_SUFFIX = {'.jpeg': '.jpg', '.tiff': '.tif'}


@dataclass(frozen=True)
class Outcome:
    """What a conversion did: one line for people, notes, the problems found, and what was kept of a killed run."""

    text: str
    notes: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    reused: int = 0


@dataclass(frozen=True)
class Job:
    """What is to be written.

    Attributes:
        dataset, title: the data set's name in the manifest, and for people.
        source: where the pairs are from, for errors.
        pairs: all of them are converted.
        splits: the split of each pair, by its name.
        rule: reads the masks.
        parameters: decide what is written, together with the files of the source.
        head: more entries of the manifest: ``protocol`` (for people), ``seed``, ``about``, ``notes``.
        label: a source file's name in problems.
        as_png: encode all images as PNG, so that they have one suffix.
        one_suffix: write ``.jpeg`` as ``.jpg`` and ``.tiff`` as ``.tif``.
        extra: writes more files into the folder from the records of the pairs, and returns their names.
    """

    dataset: str
    title: str
    source: str
    pairs: Sequence[Pair]
    splits: dict[str, str]
    rule: MaskRule
    parameters: dict
    head: dict
    label: Callable[[SourceFile], str] = label
    as_png: bool = False
    one_suffix: bool = False
    extra: Callable[[Path, list[dict]], list[str]] | None = None


@dataclass(frozen=True)
class Options:
    """How a conversion runs; see :func:`mmkcla.datasets.segmentation.converters.medical.convert`."""

    workers: int | None = None
    strict: bool = False
    overwrite: bool = False
    progress: bool | None = None

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise UserError(f'workers {self.workers}: must be 1 or more')


def write_data_set(job: Job, out: Path, problems: Sequence[Problem], remarks: Sequence[str],
                   options: Options) -> Outcome:
    """Write a prepared data set to ``out``, completely or not at all; the same arguments give the same bytes.

    Args:
        job: what to write.
        out: the folder.
        problems: found so far; they are reported with those found here.
        remarks: for people, not for the manifest.
        options: how to run.

    Raises:
        UserError: as :func:`mmkcla.datasets.segmentation.converters.medical.convert`.
        OSError: ``out`` cannot be written.
    """
    problems, remarks = list(problems), list(remarks)
    reader = Reader()
    fingerprint = partial(_fingerprint, job, tuple(problems), reader, options)
    if prepared_before(out, job.parameters, fingerprint, options.overwrite):
        remove_partial(out)
        return Outcome(f'{out}: already there')
    _fail_if_strict(options.strict, job.title, problems)
    with Workspace(out, {**job.parameters, 'stamp': _stamp(job.pairs)}) as work, reader:
        if work.restarted:
            remarks.append(f'{partial_folder(out)} was started with other arguments or files; starting again')
        for kind in ('images', 'masks'):
            for part in set(job.splits.values()):
                (work.data / kind / part).mkdir(parents=True, exist_ok=True)
        with work.discarded_if_refused():
            results = run_parallel(partial(_convert_pair, job, work, reader), job.pairs, options.workers,
                                   options.progress, job.title)
            records = [result for result in results if isinstance(result, dict)]
            problems += [result for result in results if isinstance(result, Problem)]
            reused = sum(record.pop('reused', False) for record in records)
            unseen = [record['image'] for record in records if record.pop('unseen', False)]
            if unseen and job.dataset == FOLDERS:  # of the published data sets, the masks are upright
                remarks.append(turned_unseen(unseen).line())
            records = _without_leaks(work.data, records, problems)
            found, facts, notes = job.rule.settle(records, job.source)
        problems = sorted([*problems, *found])
        _fail_if_strict(options.strict, job.title, problems, f'; what is done is kept in {partial_folder(out)}')
        counts = Counter(record['split'] for record in records)
        with work.discarded_if_refused():
            _refuse_nothing(job, counts, problems)
        notes = [*job.head['notes'], *notes]
        extra = job.extra(work.data, records) if job.extra else []
        write_manifest(work.data, {
            'dataset': job.dataset, **job.head, 'notes': notes, **facts,
            'parameters': {**job.parameters, 'source': fingerprint()},
            'counts': {part: counts[part] for part in SPLITS},
            'empty_masks': sum(record.get('foreground') == 0 for record in records),
            'names_sha256': {part: names_digest(record['name'] for record in records if record['split'] == part)
                             for part in SPLITS if counts[part]},
            **({'extra': {name: (work.data / name).stat().st_size for name in extra}} if extra else {}),
        }, problems, records)
        work.publish(replace=options.overwrite)
    numbers = ', '.join(f'{counts[part]} {part}' for part in SPLITS if counts[part])
    return Outcome(f'{out}: {numbers} images with masks ({job.head["protocol"]})', (*remarks, *notes),
                   tuple(problems), reused)


def cannot_write(out: Path, error: OSError) -> UserError:
    """One line for an error of the file system."""
    where = error.filename or out
    return UserError(f'cannot write {out}: {error.strerror or error}'
                     + (f' ({where})' if str(where) != str(out) else ''))


def _refuse_nothing(job: Job, counts: Counter, problems: list[Problem]) -> None:
    if 'train' in job.splits.values() and not counts['train']:
        raise UserError(f'{job.source}: no pair is left for training ({_summary(problems, 3)})')
    if not counts:
        raise UserError(f'{job.source}: no pair is left ({_summary(problems, 3)})')


def _convert_pair(job: Job, work: Workspace, reader: Reader, pair: Pair) -> dict | Problem:
    """Write one pair, or take it over from an earlier run; the record for the manifest, or what is wrong."""
    known = work.done.get(pair.name)
    if known is not None and all(_intact(work.data / known[kind], known[f'{kind}_bytes'], known[f'{kind}_sha256'])
                                 for kind in ('image', 'mask')):
        return {**known, 'reused': True}
    with reader.budget.reserve(reader.memory(pair.image) + reader.memory(pair.mask)):
        return _write_pair(job, work, reader, pair)


def _write_pair(job: Job, work: Workspace, reader: Reader, pair: Pair) -> dict | Problem:
    at = pair.image
    try:
        image_bytes, suffix, size, stored, turned = _read_image(job, reader, pair.image)
        at = pair.mask
        decoded = pixels.decode(_read(reader, pair.mask, 'mask'), 'mask')
        mask = upright(decoded)
        if mask.size != size:
            exif = turned and mask.size == stored
            hint = ', but turned as the EXIF data of the image say' if exif else ''
            sizes = f'mask {mask.width}x{mask.height}, image {size[0]}x{size[1]}'
            raise pixels.PixelError('size mismatch', sizes + hint)
        labels, facts = job.rule.read(mask)
    except MaskRefused as error:
        raise UserError(f'{job.label(at)}: {error}') from None
    except pixels.PixelError as error:
        return Problem(error.kind, job.label(at), error.detail)
    split = job.splits[pair.name]
    record = {'name': pair.name, 'split': split, 'width': size[0], 'height': size[1], **facts}
    if turned:
        record['turned_upright'] = True
        record['unseen'] = stored == size and turn(decoded) is None
    for kind, content, end in (('image', image_bytes, suffix), ('mask', pixels.mask_png(labels), '.png')):
        record[kind] = f'{kind}s/{split}/{pair.name}{end}'
        record[f'{kind}_bytes'] = len(content)
        record[f'{kind}_sha256'] = hashlib.sha256(content).hexdigest()
        (work.data / record[kind]).write_bytes(content)
    work.record(record)
    return record


def _read_image(job: Job, reader: Reader, file: SourceFile) -> tuple[bytes, str, tuple[int, int], tuple[int, int],
                                                                     bool]:
    """The bytes to write, their suffix, the upright size, the stored size, and whether EXIF data turned the image."""
    data = _read(reader, file, 'image')
    image = pixels.decode(data, 'image')
    size, turned = upright_size(image), turn(image) is not None
    suffix = PurePosixPath(file.name).suffix.lower()
    if turned or job.as_png and image.format != 'PNG':
        data, suffix = pixels.upright_png(image), '.png'
    elif job.as_png:
        suffix = '.png'
    elif job.one_suffix:
        suffix = SHORT_SUFFIX.get(suffix, suffix)
    return data, suffix, size, image.size, turned


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


def _fail_if_strict(strict: bool, title: str, problems: list[Problem], more: str = '') -> None:
    if strict and problems:
        raise UserError(f'{title}: {_summary(problems)} (--strict{more})')


def _summary(problems: list[Problem], most: int = 10) -> str:
    """All problems in one line."""
    shown = '; '.join(map(str, sorted(problems)[:most]))
    rest = f'; and {len(problems) - most} more' if len(problems) > most else ''
    return f'{plural(len(problems), "problem")}: {shown}{rest}'


def _fingerprint(job: Job, problems: Sequence[Problem], reader: Reader, options: Options) -> str:
    """Of the names and CRCs of what is converted: the same for a zip file and the folder unpacked from it.

    A zip file has them; files of a folder that ``reader`` did not read before are read.
    """
    files = [file for pair in job.pairs for file in (pair.image, pair.mask)]
    crcs = run_parallel(reader.crc32, files, options.workers, options.progress, 'compare')
    lines = [f'{part} {job.label(file)} {file.size} {crc:08x}' for part, file, crc in
             zip((pair.part for pair in job.pairs for _ in range(2)), files, crcs, strict=True)]
    return _digest([*lines, *map(str, sorted(problems))])


def _stamp(pairs: Sequence[Pair]) -> str:
    """Of where the files are and when they changed: another download ends what a killed run began."""
    files = [file for pair in pairs for file in (pair.image, pair.mask)]
    places = {file.path: file.path.resolve() for file in files}
    return _digest(sorted(f'{places[file.path]} {file.changed} {"/".join(file.parts)} {file.size}' for file in files))


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256('\n'.join(lines).encode()).hexdigest()
