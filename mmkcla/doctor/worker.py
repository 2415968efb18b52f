"""Run the checks in a child process, so that a crash or a hang of one check is a finding and the others still run.

This module and everything it imports at its top need the standard library only.
"""
from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

from ..utils.text import listed, one_line
from .finding import Finding, note, problem

TIMEOUT = 180.  # seconds for one check; the first import of torch from a network disk takes a minute


@dataclass(frozen=True)
class Probe:
    """One check.

    Attributes:
        section: heading in the report.
        name: name of the check in the report; for a check that imports a package, its import name.
        run: ``module:function`` in :mod:`mmkcla.doctor`; the function yields findings.
        needs: packages that the check imports. If one cannot be imported, the check is skipped with a note.
        after: names of checks; if one of them ended its process, this check is skipped with a note.
        argument: passed to the function, if not empty.
    """

    section: str
    name: str
    run: str
    needs: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    argument: str = ''

    def __call__(self) -> Iterable[Finding]:
        module, function = self.run.split(':')
        call: Callable[..., Iterable[Finding]] = getattr(importlib.import_module(module), function)
        return call(self.argument) if self.argument else call()


def run_isolated(probes: Sequence[Probe], timeout: float = TIMEOUT) -> Iterator[tuple[Probe, Finding]]:
    """Run checks in order in a child process, which is replaced when a check ends it or exceeds ``timeout`` seconds."""
    failed: list[str] = []
    remaining = list(probes)
    while remaining:
        for probe, finding in _run_child(tuple(remaining), failed, timeout):
            if finding is None:
                remaining.remove(probe)
            else:
                yield probe, finding


def _run_child(probes: Sequence[Probe], failed: list[str],
               timeout: float) -> Iterator[tuple[Probe, Finding | None]]:
    """Run checks until the child ends. A check without further findings is followed by None; the name of one that
    ended the child is added to ``failed``."""
    spawn = multiprocessing.get_context('spawn')  # a fork would inherit what the parent has imported
    receiver, sender = spawn.Pipe(duplex=False)
    child = spawn.Process(target=_work, args=(sender, tuple(probes), tuple(failed)), daemon=True)
    child.start()
    sender.close()  # only the child's end is open now, so that its death ends the pipe
    try:
        for probe in probes:
            ended = ''
            while not ended:
                try:
                    if not receiver.poll(timeout):
                        ended = f'the check did not finish within {timeout:g} s'
                        break
                    finding = receiver.recv()
                except EOFError:
                    child.join()
                    ended = f'the check ended the process ({_reason(child.exitcode)})'
                    break
                yield probe, finding
                if finding is None:
                    break
            if ended:
                failed.append(probe.name)
                yield probe, _crashed(probe, ended)
                yield probe, None
                return
    finally:
        if child.is_alive():
            child.kill()
        child.join()
        receiver.close()


def run_here(probe: Probe, failed: Iterable[str] = ()) -> Iterator[Finding]:
    """Run one check in this process. An exception becomes a finding."""
    missing = [package for package in probe.needs if package in failed or not _importable(package)]
    if missing:
        yield note(probe.name, f'not checked: {listed(missing)} cannot be imported')
        return
    if crashed := [name for name in probe.after if name in failed]:
        yield note(probe.name, f'not checked: the check {listed(crashed)!r} ended its process')
        return
    try:
        yield from probe()
    except Exception as error:  # whatever a broken installation raises
        yield problem(probe.name, f'the check failed ({type(error).__name__}: {one_line(error, 200)})',
                      'remedy the problems above first; if there are none, report this as a bug')


def _work(sender: Connection, probes: Sequence[Probe], failed: Sequence[str]) -> None:
    _silence()
    for probe in probes:
        for finding in run_here(probe, failed):
            sender.send(finding)
        sender.send(None)
    sender.close()


def _silence() -> None:
    """Libraries print notes at import; discard what this process and its libraries print."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(null, stream)


def _importable(package: str) -> bool:
    try:
        importlib.import_module(package)
    except Exception:
        return False
    return True


def _crashed(probe: Probe, reason: str) -> Finding:
    package = probe.name if probe.name in probe.needs or probe.run.endswith('imported') else ''
    remedy = (f"reinstall {package}; python -X faulthandler -c 'import {package}' shows where" if package else
              'reinstall the package whose problem is listed above; if none is, report this as a bug')
    return problem(probe.name, reason, remedy)


def _reason(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        try:
            return signal.Signals(-exit_code).name
        except ValueError:
            return f'signal {-exit_code}'
    return f'exit code {exit_code}'
