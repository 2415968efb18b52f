"""Examine the installation and the machine; run this first when something is wrong.

Checks Python, the installed packages, PyTorch and the devices, OpenMMLab, mmcv's operators, the registries, disks and
shared memory, and runs a short self-test: the layers against stored values, a small detector, a checkpoint. Each line
is ok, note (optional or unusual) or problem; a problem comes with its remedy. It also works when packages are missing
or broken. Nothing is changed, installed or downloaded.

With NAME, explain names instead: a type of a config, or a package.

exit code: 0 no problem, 1 at least one problem

examples:
  mmkcla doctor
  mmkcla doctor --json > doctor.json
  mmkcla doctor mmkcla.KCLAResNet mmsegmentation
"""
import argparse
import json
from collections.abc import Iterable

from ..doctor.finding import PROBLEM, Finding, problem

SUMMARY = 'examine the installation and the machine'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``mmkcla doctor``."""
    parser.add_argument('names', nargs='*', metavar='NAME',
                        help='a type such as mmkcla.KCLAResNet, or a package such as mmdet')
    parser.add_argument('--json', action='store_true', help='print JSON: counts, and a list of findings')


def run(args: argparse.Namespace) -> int:
    """Run ``mmkcla doctor``."""
    from ..doctor import examine
    return report((pair for name in args.names for pair in _explained(name)) if args.names else examine(), args.json)


def _explained(name: str) -> Iterable[tuple[str, Finding]]:
    try:
        from ..doctor.names import explain
        return [('Names', finding) for finding in explain(name)]
    except ImportError as error:
        return [('Names', problem(name, f'cannot be examined: {error}', 'run mmkcla doctor without a name'))]


def report(found: Iterable[tuple[str, Finding]], with_json: bool) -> int:
    """Print findings as they are made, or all at once as JSON. Returns the exit code."""
    from ..doctor.report import as_json, lines_of, summary
    pairs: list[tuple[str, Finding]] = []
    for section, finding in found:
        if not with_json:
            if not pairs or pairs[-1][0] != section:
                print(section if not pairs else f'\n{section}')
            print(lines_of(finding), flush=True)
        pairs.append((section, finding))
    findings = [finding for _, finding in pairs]
    print(json.dumps(as_json(pairs), indent=2) if with_json else f'\n{summary(findings)}')
    return int(any(finding.level == PROBLEM for finding in findings))
