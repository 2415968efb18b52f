"""Compare the rows of a sweep, or the seeds of folders: write the files, and return the sentences."""
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import UserError
from ...utils.files import parse_json
from ...utils.text import note, plural
from ..seeds.records import RECORD, other_seeds
from ..sweep import labels
from .compare import Candidate, compare, preferred
from .report import comparison_lines, write_comparisons

if TYPE_CHECKING:
    from ..sweep import SweepRow


def compare_and_write(stem: Path, candidates: Sequence[Candidate], baseline: str | None = None,
                      metrics: Collection[str] | None = None) -> tuple[list[str], list[Path]]:
    """Compare candidates and write ``<stem>.csv``, ``.json`` and ``.png``.

    Returns:
        the lines of the report, as Markdown, and the files; nothing with fewer than two candidates.
    """
    if sum(bool(each.metrics) for each in candidates) < 2:
        return [], []
    if baseline is not None and not any(each.name == baseline and each.metrics for each in candidates):
        return [f'The baseline {baseline} has no results, so nothing is compared.'], []
    found = compare(candidates, baseline, metrics)
    shown = list(metrics or preferred(candidates))
    return comparison_lines(found, shown), write_comparisons(stem, found, shown)


def candidates_of(work_dir: Path, rows: 'Sequence[SweepRow]') -> list[Candidate]:
    """Return the rows with results as candidates for :func:`~.compare.compare`."""
    found = []
    for row, label in zip(rows, labels(rows), strict=True):
        if not row.done:
            continue
        folders = {result.seed: work_dir / row.config / f'seed_{result.seed}' for result in row.done}
        found.append(Candidate(
            label, folders, {result.seed: result.metrics for result in row.done}, row.tested_on.get('evaluator'),
            row.tested_on.get('data'), _replaced(row, folders)))
    return found


def _replaced(row: 'SweepRow', folders: dict[int, Path]) -> str:
    """Why the folders of the seeds do not hold the records of this row; empty if they do."""
    for seed, folder in folders.items():
        try:
            test = parse_json((folder / RECORD).read_text(encoding='utf-8')).get('test')
        except FileNotFoundError:
            if folder.is_dir():  # a training started by hand has no record
                continue
            return f'the folder of {row.config}, seed {seed} no longer exists'
        except (OSError, ValueError, AttributeError):
            return f'{folder / RECORD} cannot be read'
        if test != row.test:
            return f'{row.config}, seed {seed} was tested again with other settings; its scores per image were replaced'
    return ''


def candidate_in(work_dir: Path, name: str) -> Candidate:
    """Return the seeds of ``mmkcla seeds`` in a folder, of the test that most of them have.

    Raises:
        UserError: no seed in the folder has been tested.
    """
    folders = [folder for folder in other_seeds(work_dir, ()) if folder.trained and folder.metrics]
    tests = Counter(str(folder.record['test']) for folder in folders if folder.record.get('test'))
    if not tests:
        raise UserError(f'{work_dir} has no tested seeds; give the --work-dir of an earlier "mmkcla seeds"')
    test = tests.most_common(1)[0][0]
    chosen = {folder.seed: folder for folder in folders if folder.record.get('test') == test}
    if len(tests) > 1:
        note(f'{work_dir} has tests with {len(tests)} different settings; the {plural(len(chosen), "seed")} of the '
             'most common one are compared')
    settings = next(iter(chosen.values())).record.get('tested_on') or {}
    return Candidate(name, {seed: folder.path for seed, folder in chosen.items()},
                     {seed: folder.metrics for seed, folder in chosen.items()}, settings.get('evaluator'),
                     settings.get('data'))
