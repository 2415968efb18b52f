"""Prepare data sets, and check prepared ones.

  mmkcla data binary-seg photos/images photos/masks --out data/photos --split 8:1:1
  mmkcla data isic2018 ~/Downloads --out data/isic2018
  mmkcla data verify data/photos

The same options give the same bytes. A data set that was already written with them is left unchanged, and a conversion
that was interrupted resumes when started again. "mmkcla data NAME --help" has the options and an example of each.
"""
import argparse

from . import data_folders, data_medical, data_photographs, data_verify

SUMMARY = 'prepare data sets, and check prepared ones'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``mmkcla data``: a sub-command a data set, and ``verify``."""
    kinds = parser.add_subparsers(dest='data', required=True, metavar='name')
    for module in (data_folders, data_medical, data_photographs, data_verify):
        module.add_kinds(kinds)


def run(args: argparse.Namespace) -> int:
    """Prepare or check; see :func:`add_arguments`."""
    return args.run_kind(args)
