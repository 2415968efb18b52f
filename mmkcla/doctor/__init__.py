"""``mmkcla doctor``: examine the installation and the machine, and say what is wrong and what to do about it.

It works without any other package, and when a package is missing or broken: the checks run in a child process
(:mod:`.worker`), and each imports what it needs itself.
"""
from __future__ import annotations

from collections.abc import Iterator

from .finding import LEVELS, NOTE, OK, PROBLEM, Finding
from .worker import TIMEOUT, Probe, run_isolated

__all__ = ['LEVELS', 'NOTE', 'OK', 'PROBLEM', 'PROBES', 'Finding', 'Probe', 'examine']

_HOST_NEEDS = ('torch', 'mmengine', 'mmcv')
_CRASHED = ('libraries', 'operators')  # what ends one process ends the next one, too


def _probe(section: str, name: str, run: str, needs: tuple[str, ...] = (), after: tuple[str, ...] = (),
           argument: str = '') -> Probe:
    return Probe(section, name, f'{__name__}.{run}', needs, after, argument)


PROBES = (
    _probe('Python', 'Python', 'interpreter:check'),
    _probe('Packages', 'packages', 'packages:check'),
    _probe('Packages', 'libraries', 'openmmlab:import_libraries'),
    _probe('PyTorch', 'torch', 'pytorch:check_torch'),
    _probe('PyTorch', 'torchvision', 'pytorch:check_torchvision', ('torch',)),
    _probe('PyTorch', 'devices', 'pytorch:check_devices', ('torch',)),
    _probe('OpenMMLab', 'line', 'openmmlab:check_line'),
    _probe('OpenMMLab', 'mmengine', 'openmmlab:imported', ('torch',), _CRASHED, 'mmengine'),
    _probe('OpenMMLab', 'mmcv', 'openmmlab:imported', ('torch', 'mmengine'), _CRASHED, 'mmcv'),
    _probe('OpenMMLab', 'operators', 'operators:check', ('torch', 'mmcv'), _CRASHED),
    *(_probe('OpenMMLab', host, 'openmmlab:imported', _HOST_NEEDS, _CRASHED, host)
      for host in ('mmdet', 'mmseg', 'mmpretrain')),
    _probe('Registered', 'registries', 'registries:check', ('torch', 'mmengine', 'mmcv', 'mmpretrain'), _CRASHED),
    _probe('Registered', 'layer attention', 'registries:check_layers', ('torch',)),
    _probe('Machine', 'machine', 'machine:check'),
    _probe('Self-test', 'layers', 'self_test:check_layers', ('torch',)),
    _probe('Self-test', 'detector', 'self_test:check_detector', (*_HOST_NEEDS, 'mmpretrain', 'mmdet'), _CRASHED),
    _probe('Self-test', 'checkpoint', 'self_test:check_checkpoint', ('torch',)),
)


def examine(timeout: float = TIMEOUT) -> Iterator[tuple[str, Finding]]:
    """Run all checks; yield (section, finding) as they are made.

    Args:
        timeout: seconds for one check; a check that takes longer is ended and reported.
    """
    for probe, finding in run_isolated(PROBES, timeout):
        yield probe.section, finding
