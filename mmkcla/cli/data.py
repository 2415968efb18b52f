"""Prepare data sets and check prepared ones.

  mmkcla data binary-seg photos/images photos/masks --out data/photos --split 8:1:1
  mmkcla data isic2018 ~/Downloads --out data/isic2018
  mmkcla data verify data/photos

The output is deterministic: the same options give the same bytes. A data set that already exists with the same options
is left unchanged. To resume an interrupted conversion, run the same command again. "mmkcla data NAME --help" shows the
options and an example.
"""
import argparse

from . import data_folders, data_medical, data_photographs, data_verify

SUMMARY = 'prepare data sets and check prepared ones'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``mmkcla data``: one sub-command per data set, and ``verify``."""
    kinds = parser.add_subparsers(dest='data', required=True, metavar='name')
    for module in (data_folders, data_medical, data_photographs, data_verify):
        module.add_kinds(kinds)


def run(args: argparse.Namespace) -> int:
    """Run ``mmkcla data``."""
    return args.run_kind(args)
