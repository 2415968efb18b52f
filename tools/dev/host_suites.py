"""Run a host library's own tests with classes of this project in place of the library's.

    python tools/dev/host_suites.py mmdet CHECKOUT        a checkout of the installed version; nothing is downloaded
    python tools/dev/host_suites.py mmdet CHECKOUT --plain     the library's own classes, for comparison

Libraries: mmengine, mmdet, mmseg, mmpretrain. The library itself is the installed one, not that of the checkout. Prints
a table of the counts, and every failure. Exit code 1 if a test fails.
"""
from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
# for the process that runs pytest
LIBRARY, PLAIN, LEFT_OUT = 'MMKCLA_HOST_SUITE', 'MMKCLA_HOST_SUITE_PLAIN', 'MMKCLA_HOST_SUITE_LEFT_OUT'


@dataclass
class Suite:
    """Test files below ``tests/``, and the tests that are left out, by name, each with the reason."""

    name: str
    files: list[str]
    left_out: dict[str, str] = field(default_factory=dict)


BACKBONES = 'test_models/test_backbones/'
CHECKPOINTING = 'asserts that the blocks checkpoint themselves; the mixin does it for them, without reentrance'
DOWNLOADS = 'downloads torchvision://resnet50'
SUITES = {
    'mmengine': [
        Suite('AtomicCheckpointHook', ['test_hooks/test_checkpoint_hook.py']),
        Suite('CheckedRunner', ['test_runner/test_runner.py'])],
    'mmdet': [
        Suite('LayerAttentionMixin', [BACKBONES + f'test_{name}.py' for name in (
            'resnet', 'renext', 'res2net', 'resnest', 'regnet', 'detectors_resnet', 'trident_resnet')],
            {'test_resnet_backbone': CHECKPOINTING}),
        Suite('KCLAFPN', ['test_models/test_necks/test_necks.py'],
              {'test_dyhead': 'needs the compiled operators of mmcv'}),
        Suite('CocoMetric', ['test_evaluation/test_metrics/test_coco_metric.py'])],
    'mmseg': [
        Suite('LayerAttentionMixin', [BACKBONES + f'test_{name}.py' for name in ('resnet', 'resnext', 'resnest')],
            {'test_resnet_backbone': 'downloads torchvision://resnet18, and ' + CHECKPOINTING}),
        Suite('KCLAFPN', ['test_models/test_necks/test_fpn.py'])],
    'mmpretrain': [
        Suite('LayerAttentionMixin', [BACKBONES + f'test_{name}.py' for name in (
            'resnet', 'resnext', 'res2net', 'resnest', 'regnet', 'resnet_cifar', 'seresnet', 'seresnext')],
            {'test_resnet': DOWNLOADS, 'test_seresnet': DOWNLOADS})],
}


# In the process that runs pytest, where this file is a plugin ------------------------------------------------------

def pytest_configure(config: Any) -> None:
    """Replace the classes before the tests are imported."""
    here = str(Path.cwd())
    sys.path[:] = [entry for entry in sys.path if entry not in ('', here)]  # the installed library, not the checkout
    sys.path.insert(0, str(ROOT))
    import mmkcla
    mmkcla.use_torchvision_ops()
    if os.environ.get(PLAIN):
        return
    library = os.environ[LIBRARY]
    for kind, ours in replacements(library):
        replace(library, kind, ours)


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Leave out tests by their exact name; ``--deselect`` goes by the start of an id."""
    names = os.environ.get(LEFT_OUT, '').split()
    config.hook.pytest_deselected(items=[item for item in items if item.name in names])
    items[:] = [item for item in items if item.name not in names]


def replacements(library: str) -> Iterator[tuple[type, type]]:
    """Each class of the library with the one to take its place."""
    if library == 'mmengine':
        from mmengine.hooks import CheckpointHook
        from mmengine.runner import Runner

        from mmkcla.runtime.hooks.checkpoint import AtomicCheckpointHook
        from mmkcla.runtime.runner import CheckedRunner
        yield from ((CheckpointHook, AtomicCheckpointHook), (Runner, CheckedRunner))
        return
    from mmkcla.models.backbones import LayerAttentionMixin
    backbones = importlib.import_module(f'{library}.models.backbones')
    importlib.import_module(f'{library}.models')
    for kind in list(vars(backbones).values()):
        if isinstance(kind, type) and issubclass(kind, backbones.ResNet):
            yield kind, type(kind.__name__, (LayerAttentionMixin, kind), {'__module__': kind.__module__})
    if library != 'mmpretrain':
        from mmkcla.models.necks import KCLAFPN
        if KCLAFPN.__mro__[1].__module__.startswith(f'{library}.'):  # it derives from mmdet's FPN where there is one
            yield KCLAFPN.__mro__[1], KCLAFPN
    if library == 'mmdet':
        from mmdet.evaluation import CocoMetric

        from mmkcla.evaluation.coco import CocoMetric as ours
        yield CocoMetric, ours


def replace(library: str, kind: type, ours: type) -> None:
    """Put a class in the place of another in the library's packages and registries.

    The defining module keeps its class: the library's ``super(ResNet, self)`` needs it.
    """
    for name, module in list(sys.modules.items()):
        package = getattr(module, '__path__', None) is not None
        if package and name.split('.')[0] == library and vars(module).get(kind.__name__) is kind:
            setattr(module, kind.__name__, ours)
    from mmengine.registry import Registry
    for registry in vars(importlib.import_module(f'{library}.registry')).values():
        if isinstance(registry, Registry):
            for name in [name for name, other in registry.module_dict.items() if other is kind]:
                registry.module_dict[name] = ours


# In the process that is called -------------------------------------------------------------------------------------

def run(library: str, suite: Suite, checkout: Path, plain: bool) -> tuple[list[str], list[str]]:
    """Run a suite; return the row of the table and the failures."""
    files = [f'tests/{file}' for file in suite.files if (checkout / 'tests' / file).is_file()]
    missing = len(suite.files) - len(files)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / 'report.xml'
        environment = os.environ | {LIBRARY: library, PLAIN: '1' if plain else '',
                                    LEFT_OUT: ' '.join(suite.left_out), 'PYTHONPATH': os.pathsep.join(
            [str(Path(__file__).parent), os.environ.get('PYTHONPATH', '')])}
        subprocess.run([sys.executable, '-c', 'import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))', '-q',
                        '-p', 'host_suites', '-p', 'no:cacheprovider', f'--junitxml={report}', '-c', os.devnull,
                        f'--rootdir={checkout}', *files],
                       cwd=checkout, env=environment, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        cases = list(ElementTree.parse(report).iter('testcase')) if report.is_file() else []
    if not cases:
        return [library, suite.name, '0', '0', '0', '0', str(missing)], [f'{suite.name}: no test ran']
    failures = [f'{case.get("classname")}::{case.get("name")}: {(case[0].get("message") or "").splitlines()[0]}'
                for case in cases if any(child.tag in ('failure', 'error') for child in case)]
    skipped = sum(any(child.tag == 'skipped' for child in case) for case in cases)
    counts = len(cases) - len(failures) - skipped, len(failures), skipped, len(suite.left_out), missing
    return [library, suite.name, *map(str, counts)], failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('library', choices=SUITES)
    parser.add_argument('checkout', type=Path, help='folder with the tests/ of the installed version')
    parser.add_argument('--plain', action='store_true', help='run the library\'s own classes')
    args = parser.parse_args()
    if not (args.checkout / 'tests').is_dir():
        parser.error(f'{args.checkout} has no folder tests')
    sys.path.insert(0, str(ROOT))
    from mmkcla.utils.tables import markdown_table
    rows, failures = [], []
    for suite in SUITES[args.library]:
        row, failed = run(args.library, suite, args.checkout.resolve(), args.plain)
        rows.append(row)
        failures += failed
    print('\n'.join(markdown_table(['library', 'in its place', 'passed', 'failed', 'skipped', 'left out',
                                    'files not found'], rows)))
    for suite in SUITES[args.library]:
        for test, reason in suite.left_out.items():
            print(f'left out: {test}: {reason}')
    for failure in failures:
        print(f'failed: {failure}')
    return int(bool(failures))


if __name__ == '__main__':
    sys.exit(main())
