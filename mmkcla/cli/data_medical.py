"""``mmkcla data isic2017 | isic2018 | kvasir``: medical data sets, from the downloaded files."""
import argparse
import importlib
import textwrap
from typing import TYPE_CHECKING, NamedTuple

from .data_report import add_conversion_options, add_kind, options_of, run_conversion

if TYPE_CHECKING:
    from ..datasets.segmentation.converters.layout import Layout


class _Kind(NamedTuple):
    """A data set. Its layout is read on demand, since that imports the converters."""

    what: str
    module: str
    layout: str
    out: str
    split: str

    def read(self) -> 'Layout':
        module = importlib.import_module(f'..datasets.segmentation.converters.{self.module}', __package__)
        return getattr(module, self.layout)


KINDS = {
    'isic2017': _Kind('ISIC 2017 (part 1, skin lesions)', 'isic', 'ISIC2017', 'data/isic2017', 'official'),
    'isic2018': _Kind('ISIC 2018 (task 1, skin lesions)', 'isic', 'ISIC2018', 'data/isic2018', 'official'),
    'kvasir': _Kind('Kvasir-SEG (polyps)', 'kvasir', 'KVASIR_SEG', 'data/kvasir_seg', '8:1:1'),
}
_DESCRIPTION = """\
Prepare {what} for training.

Written are images/{{train,val,test}}, masks/{{train,val,test}} (PNG, values 0 and 1) and manifest.json. Images and
masks are paired by name. Image files are copied unchanged, except those with an EXIF rotation, which are rotated and
written as PNG. Pairs with problems are skipped and reported (a mask without foreground is kept)."""
_EPILOG = """\
The same options give the same bytes; a data set that already exists with the same options is left unchanged. To resume
an interrupted conversion, run the same command again. On an error one line "error: ..." is printed and the exit code
is 2.

  mmkcla data {name} ~/Downloads --out {out}"""


def add_kinds(kinds: 'argparse._SubParsersAction') -> None:
    """Add one sub-command per data set."""
    for name, kind in KINDS.items():
        parser = add_kind(kinds, name, kind.what, _DESCRIPTION.format(what=kind.what),
                          _EPILOG.format(name=name, out=kind.out), run)
        parser.add_argument('source', metavar='SOURCE', help='a downloaded zip file, or a folder with the zip files or '
                                                             'their unpacked contents')
        parser.add_argument('--out', default=kind.out, metavar='DIR', help='output folder (default: %(default)s)')
        choices = 'official, or a ratio' if kind.split == 'official' else 'a ratio'
        parser.add_argument('--split', metavar='SPLIT', help=f'{choices}: 7:3 (train and test), 8:1:1 (train, val and '
                                                             f'test) (default: {kind.split})')
        parser.add_argument('--seed', type=int, default=0, help='random seed of a ratio (default: %(default)s)')
        parser.add_argument('--split-file', metavar='FILE',
                            help='instead of --split: lines "split name", or JSON {"train": [names], "val": [names], '
                                 '"test": [names]}, or a folder with train.txt, val.txt, test.txt')
        add_conversion_options(parser)
        _describe_layout_in_help(parser, kind)


def _describe_layout_in_help(parser: argparse.ArgumentParser, kind: _Kind) -> None:
    """Append the zip files and the splits to the output of ``--help``, on demand."""
    plain = parser.format_help

    def format_help() -> str:
        layout = kind.read()
        archives = f'Zip files: {", ".join(f"{name}.zip" for name in layout.archives)}.'
        text = '\n'.join([*textwrap.wrap(archives, 118), '', *textwrap.wrap(f'Splits: {layout.about_splits}', 118)])
        return f'{plain()}\n{text}\n'

    parser.format_help = format_help


def run(args: argparse.Namespace) -> int:
    """Convert."""
    from ..datasets.segmentation.converters.medical import convert
    options = options_of(args, 'split', 'seed', 'split_file', 'workers', 'strict', 'overwrite')
    return run_conversion(lambda: convert(KINDS[args.data].read(), args.source, args.out, **options), args.out)
