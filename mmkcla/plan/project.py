"""The folder that a plan becomes."""
from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..datasets.sheet import Sample, draw_sheet
from ..errors import UserError
from ..utils.files import parse_json, whole_file, whole_folder, write_json
from ..utils.text import listed
from .config_text import COUNTERPART
from .fingerprint import Fingerprint

RECORD = 'fingerprint.json'
_TEST_SET = {'detection': 'give a third annotation file', 'segmentation': 'split the data with --split 8:1:1',
             'classification': 'add a folder test with the classes'}
_SAVE_BEST = re.compile(r"save_best='([^']+)'")  # the metric in the text of a config


@dataclass
class Plan:
    """What was found and decided.

    Attributes:
        fingerprint: of the data.
        config: text of ``kcla.py``.
        samples: for the picture sheet.
        classes: names by label, as the sheet's labels count.
        images: what the command to predict is shown with; a relative path is below the project.
        foreground: the first label that the sheet paints.
    """

    fingerprint: Fingerprint
    config: str
    samples: Sequence[Sample]
    classes: Sequence[str]
    images: Path
    foreground: int = 0


def write_project(out: Path, make: Callable[[Path], Plan], overwrite: bool = False) -> Plan:
    """Write a project atomically: what ``make`` writes, the configs, the sheet, the record, the commands.

    Args:
        out: folder of the project.
        make: given the folder to write data to, which becomes ``out``.
        overwrite: replace an earlier project.

    Raises:
        UserError: ``out`` holds something that would be lost, or cannot be written.
    """
    check_free(out, overwrite)
    try:
        with whole_folder(out, replace=overwrite) as new:
            plan = make(new)
            for name, text in (('kcla', plan.config), ('plain', COUNTERPART)):
                _write(new / f'{name}.py', f'{text}work_dir = {f"{_work_dir(out)}/{name}"!r}\n')
            draw_sheet(new / 'samples.png', plan.samples, plan.classes, plan.foreground)
            _write(new / 'README.md', readme(out, plan))
            files = sorted({path.name for path in new.iterdir()} | {RECORD})
            write_json(new / RECORD, {**plan.fingerprint.to_json(), 'files': files})
    except OSError as error:
        raise UserError(f'cannot write {out}: {error.strerror or error}') from error
    return plan


def check_free(out: Path, overwrite: bool) -> None:
    """See that nothing is lost.

    Raises:
        UserError: ``out`` is a file, or not empty without ``overwrite``, or has files that no plan wrote.
    """
    if out.exists() and not out.is_dir():
        raise UserError(f'--out {out} is a file; choose a folder')
    present = {path.name for path in out.iterdir()} if out.is_dir() else set()
    if not present:
        return
    try:
        record = parse_json((out / RECORD).read_text(encoding='utf-8'))
        known = {*record['files'], '__pycache__'}
    except (OSError, ValueError, LookupError, TypeError):
        raise UserError(f'{out} is not empty and not a project of mmkcla plan; choose another --out') from None
    if not overwrite:
        raise UserError(f'{out} already contains a project; --overwrite replaces it and all changes made there, or '
                        'choose another --out')
    if foreign := sorted(present - known):
        raise UserError(f'{out} has files that would be lost: {listed(foreign)}; move them, or choose another --out')


def commands(out: Path, images: Path) -> list[tuple[str, str]]:
    """Train, resume, test, compare, predict: a title and a line of shell each."""
    images = images if images.is_absolute() else out / images
    project, work = shlex.quote(str(out)), shlex.quote(_work_dir(out))
    train = f'mmkcla train {project}/kcla.py --work-dir {work}/kcla'
    best = f'{work}/kcla/best_*.pth'
    return [('Train', train),
            ('Resume after an interruption', f'{train} --resume'),
            ('Test the best checkpoint', f'mmkcla test {project}/kcla.py {best} --work-dir {work}/kcla'),
            ('Compare with the plain counterpart over three seeds',
             f'mmkcla sweep {project}/kcla.py {project}/plain.py --seeds 0 1 2 --work-dir {work}/sweep'),
            ('Predict', f'mmkcla infer {project}/kcla.py {best} {shlex.quote(str(images))} '
                        f'--out-dir {work}/predictions')]


def _work_dir(out: Path) -> str:
    """The folder of the runs of a project, relative to where its commands are run."""
    return f'work_dirs/{out.resolve().name}'


def optimism(plan: Plan) -> str:
    """What a project without a test set must say about its figures; empty if it has one."""
    if 'test' in plan.fingerprint.splits:
        return ''
    return ('there is no test set: the checkpoint is chosen on the images it is tested on, and the figures are '
            f'optimistic; for a final result, {_TEST_SET[plan.fingerprint.task]}')


def readme(out: Path, plan: Plan) -> str:
    """What is in the folder, and the commands."""
    found = plan.fingerprint
    lines = [f'# {out.resolve().name}', '', f'A {found.task} project written by `mmkcla plan`. Look at `samples.png` '
             'first: do the labels fit?', '', *(f'* {name}: {value}' for name, value in found.rows()), '']
    if found.problems:
        lines += ['Noticed in the data:', '', *(f'* {problem}' for problem in found.problems), '']
    for title, line in commands(out, plan.images):
        lines += [f'{title}:', '', f'    {line}', '']
    metric = _SAVE_BEST.search(plan.config)
    lines += ['The best checkpoint, `best_*.pth`, is that with the highest '
              f'`{metric[1] if metric else "score"}` on the validation images. `last_checkpoint` names the last one.'
              + (f' Note that {optimism(plan)}.' if optimism(plan) else ''), '']
    lines += ['`kcla.py` is the config with the reason beside each setting, `plain.py` the same network without the '
              'layer attention, `fingerprint.json` what was found in the data.', '']
    return '\n'.join(lines)


def report(out: Path, plan: Plan) -> str:
    """What was written, and what to do next, for the terminal."""
    lines = [f'warning: {optimism(plan)}'] if optimism(plan) else []
    lines += [f'{out / "samples.png"}: do the labels fit?', f'{out / "kcla.py"}, {out / "plain.py"}: the configs']
    return '\n'.join(lines + [f'{title}: {line}' for title, line in commands(out, plan.images)])


def _write(path: Path, text: str) -> None:
    with whole_file(path, 'w') as file:
        file.write(text)


