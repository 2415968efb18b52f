"""``mmkcla data verify``: report on data sets: of a config, a COCO file, or a folder of classes or masks."""
import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError
from .data_report import add_kind, options_of

if TYPE_CHECKING:
    from ..datasets.report import Report

_DESCRIPTION = """\
Report on data: what they contain, and every fault with its number and first places. WHAT is one of

  a config (.py)        all its data sets, as the run uses them
  a COCO file (.json)   annotations, and images beside the file
  a folder of these     <folder>/annotations/*.json, <folder>/*.json or <folder>/<split>/_annotations.coco.json
  an image or mask      format, size, orientation, and values or colours with their shares
  a class folder        <class>/<image> or <split>/<class>/<image>
  a mask folder         a segmentation data set written by "mmkcla data", or any in the same layout:
                        images/{train,val,test} and masks/{train,val,test}. Checked: each image has a mask of the same
                        size; masks contain only the labels of the classes (0 and 1 without a manifest); all files can
                        be decoded; files and counts match manifest.json (sha256); no image is in two splits.

Faults are refused (a result would be wrong, or the run would fail), dropped (left out by the host without a message),
repaired (in memory) or notes."""
_EPILOG = """\
Exit codes: 0: nothing is refused; 1: something is, one line each; 2: the check could not run (one line "error: ...").

  mmkcla data verify data/isic2017 --html report.html
  mmkcla data verify data/flowers --pictures pictures
  mmkcla data verify config.py --html report.html
  mmkcla data verify annotations/instances_train.json --json report.json"""


def add_kinds(kinds: 'argparse._SubParsersAction') -> None:
    """Add the sub-command."""
    parser = add_kind(kinds, 'verify', 'report on a config, a COCO file, an image, or a folder of classes or masks',
                      _DESCRIPTION, _EPILOG, run)
    parser.add_argument('root', metavar='WHAT', help='config, COCO file, image, class folder, or mask folder')
    parser.add_argument('--cfg-options', nargs='+', action='extend', default=[], metavar='KEY=VALUE',
                        help='override entries of the config')
    parser.add_argument('--json', metavar='FILE', help='also write the report as JSON')
    parser.add_argument('--html', metavar='FILE', help='also write one page with pictures and their labels')
    parser.add_argument('--pictures', metavar='FOLDER', help='also write the pictures as PNG')
    folders = parser.add_argument_group('options for mask folders')
    folders.add_argument('--quick', action='store_true',
                         help='check only pairs, file sizes and 16 masks; decode and hash nothing else')
    folders.add_argument('--near', action='store_true', help='also find near-duplicate images in different splits')
    folders.add_argument('--workers', type=int, metavar='N', help='number of threads (default: one per processor)')


def run(args: argparse.Namespace) -> int:
    """Report; return 1 if something is refused."""
    from ..datasets.report import REFUSED, conclusion
    reports = _reports(args)
    if reports is None:
        return _verify_folder(args)
    for report in reports:
        print(report.text())
    _write(args, reports)
    print(conclusion(reports))
    return 1 if any(report.of(REFUSED) for report in reports) else 0


def _reports(args: argparse.Namespace) -> 'list[Report] | None':
    """The reports; None for a prepared segmentation folder."""
    what = Path(args.root)
    if what.suffix == '.py':
        from ..datasets.verify import config_reports
        from ..runtime.config import load_config
        from ..runtime.hosts import prepare_hosts
        config = load_config(args.root, args.cfg_options)
        prepare_hosts(config)
        from ..datasets.palettes import fit_palettes
        fit_palettes(config)
        return config_reports(config)
    from ..datasets.verify import path_reports
    reports = path_reports(what)
    if reports is None and what.is_file():
        raise UserError(f'{what} is neither a config (.py), a COCO file (.json) nor an image')
    return reports


def _write(args: argparse.Namespace, reports: 'list[Report]') -> None:
    from ..datasets.verify import write_page, write_pictures, write_report_json
    try:
        if args.json:
            write_report_json(Path(args.json), reports)
            print(f'JSON: {args.json}')
        if args.html:
            write_page(Path(args.html), reports)
            print(f'page: {args.html}')
        if args.pictures:
            for path in write_pictures(Path(args.pictures), reports):
                print(f'pictures: {path}')
    except OSError as error:
        raise UserError(f'cannot write {error.filename or "the report"}: {error.strerror or error}') from error


def _verify_folder(args: argparse.Namespace) -> int:
    from ..datasets.segmentation.verify import check, summary
    report = check(**options_of(args, 'root', 'quick', 'near', 'workers'))
    for problem in report.problems:
        print(problem)
    for note in report.notes:
        print(f'note: {note}', file=sys.stderr)
    if args.json or args.html or args.pictures:
        from ..datasets.segmentation.folder_report import folder_report
        _write(args, [folder_report(Path(args.root), report)])
    print(summary(report))
    return 1 if report.problems else 0
