"""Collect and write the reports on the data sets of a config, or on a file or folder."""
from __future__ import annotations

import base64
import contextlib
import html
import io
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..registry import DATA_REPORTS, PATH_REPORTS
from ..utils.files import whole_file, write_json
from ..utils.text import note
from .check import check_dataset, compare_datasets, datasets_of
from .prefixes import check_prefix_keys
from .report import REFUSED, Fault, Report, conclusion
from .sheet import draw_sheet


def config_reports(config: Any) -> list[Report]:
    """The reports on all data sets of a config; the hosts must be imported.

    What the check before a run refuses (:func:`~mmkcla.datasets.check.check_config`) is refused in the reports, too.

    Raises:
        UserError: a file is missing or unreadable, or no data set has a report.
    """
    DATA_REPORTS.import_from_location()
    known, reports, seen, cache = DATA_REPORTS.module_dict, [], [], {}
    splits = [split for split in ('train', 'val', 'test') if config.get(f'{split}_dataloader')]
    for split in splits:
        for dataset in datasets_of(config, split, cache):
            same = (dataset.config, split == 'train', [evaluator for evaluator, _ in dataset.evaluators])
            if same in seen:  # most configs test on the validation set
                note(f'{dataset.where} is the same as an earlier data set')
                continue
            seen.append(same)
            if refusal := _refusal(partial(check_prefix_keys, dataset)):
                reports.append(Report(dataset.where, faults=[refusal]))
                continue
            write = next((known[name] for name in dataset.ancestors if name in known), None)
            report = write(dataset, config) if write else None
            refusal = None if report and report.of(REFUSED) else _refusal(partial(check_dataset, dataset, config))
            if report is None:
                note(f'{dataset.where}: no report for {dataset.ancestors[0]}')
                reports += [Report(dataset.where, faults=[refusal])] if refusal else []
            else:
                report.faults[:0] = [refusal] if refusal else []
                reports.append(report)
    together = _refusal(partial(compare_datasets, config, splits, cache), quiet=False)
    if together is not None:
        reports.append(Report('train, val and test compared', faults=[together]))
    if not reports:
        raise UserError('there is no report for the data sets of this config')
    return reports


def _refusal(check: Callable[[], None], quiet: bool = True) -> Fault | None:
    """What a check refuses. ``quiet``: the report has the notes of the check already."""
    try:
        with contextlib.redirect_stderr(io.StringIO()) if quiet else contextlib.nullcontext():
            check()
    except UserError as error:
        return Fault(str(error), REFUSED, 1, [])
    return None


def path_reports(path: Path) -> list[Report] | None:
    """The reports on a file or folder; None if no kind of data set is recognised."""
    PATH_REPORTS.import_from_location()
    for write in PATH_REPORTS.module_dict.values():
        found = write(path)
        if found is not None:
            return found if isinstance(found, list) else [found]
    return None


def write_report_json(path: Path, reports: Sequence[Report]) -> None:
    """Write the reports as a JSON list."""
    write_json(path, [report.to_json() for report in reports])


def write_page(path: Path, reports: Sequence[Report]) -> None:
    """Write one HTML page with the reports and, embedded, a sheet of pictures for each."""
    parts = ['<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>mmkcla data verify</title>'
             '<style>body{font-family:sans-serif;margin:2em;max-width:1320px}td{padding:.2em .8em .2em 0;'
             'vertical-align:top}img{max-width:100%}.refused{color:#b00020}.dropped,.repaired{color:#8a5a00}</style>',
             f'<p>{html.escape(conclusion(reports))}</p>']
    for report in reports:
        parts.append(f'<h2>{html.escape(report.title)}</h2><table>')
        for name, value in report.counts.items():
            shown = ', '.join(f'{key} {count}' for key, count in value.items()) if isinstance(value, dict) else value
            parts.append(f'<tr><td>{html.escape(name)}</td><td>{html.escape(str(shown))}</td></tr>')
        parts.append('</table>')
        parts += [f'<p class="{fault.severity}"><b>{fault.severity}</b>: {html.escape(str(fault))}</p>'
                  for fault in report.faults] or ['<p>no faults</p>']
        samples = report.samples()
        if samples:
            picture = io.BytesIO()
            draw_sheet(picture, samples, report.classes, report.foreground)
            data = base64.b64encode(picture.getvalue()).decode()
            parts.append(f'<img alt="samples with their labels" src="data:image/png;base64,{data}">')
    with whole_file(path, 'w') as file:
        file.write('\n'.join([*parts, '</html>\n']))


def write_pictures(folder: Path, reports: Sequence[Report]) -> list[Path]:
    """Write the sheet of each report as ``<number>.png``; return the files."""
    written = []
    for number, report in enumerate(reports):
        samples = report.samples()
        if samples:
            written.append(folder / f'{number}.png')
            draw_sheet(written[-1], samples, report.classes, report.foreground)
    return written
