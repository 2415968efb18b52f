"""Signals that ask a command to stop: SIGTERM, SIGINT (Ctrl-C), SIGHUP, SIGUSR1.

The first one raises :class:`Interrupted`, so that open files and locks are cleaned up, or is only recorded while a
training step runs (:func:`defer`). A second one ends the process at once. The exit code is 128 + the signal's number.
"""
from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from .ranks import rank

NAMES = ('SIGTERM', 'SIGINT', 'SIGHUP', 'SIGUSR1')
_SAME = 2.0  # seconds; under torchrun, a process may get one signal twice: directly and passed on by torchrun
_WORKER_SECONDS = 60  # that a data-loader worker lives on after SIGTERM


class Interrupted(KeyboardInterrupt):
    """A signal asks this command to stop.

    Args:
        number: of the signal.
        advice: what was saved and how to resume; may be empty.
    """

    def __init__(self, number: int, advice: str = '') -> None:
        super().__init__(advice)
        self.number = number


@dataclass
class _State:
    owner: int = field(default_factory=os.getpid)
    number: int | None = None
    since: float = 0.0
    deferred: bool = False


_states: list[_State] = []  # of the running commands, the innermost last


def exit_code(stop: KeyboardInterrupt) -> int:
    """Exit code of a command that was interrupted."""
    return 128 + getattr(stop, 'number', signal.SIGINT)


def describe(stop: KeyboardInterrupt) -> str:
    """One line for the user: the signal, and the advice if there is any."""
    by = f' by {signal.Signals(stop.number).name}' if isinstance(stop, Interrupted) else ''
    return f'interrupted{by}' + (f'; {stop}' if str(stop) else '')


def with_advice(stop: KeyboardInterrupt, advice: str) -> KeyboardInterrupt:
    """The same interruption with another advice."""
    return Interrupted(stop.number, advice) if isinstance(stop, Interrupted) else KeyboardInterrupt(advice)


@contextmanager
def stop_signals() -> Iterator[None]:
    """Handle the signals while the block runs. A signal that is ignored (``nohup``, background jobs of a script)
    remains ignored. Does nothing outside of the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    state = _State()
    _states.append(state)
    before: dict[int, Any] = {}
    for one in _numbers():
        if signal.getsignal(one) is not signal.SIG_IGN:
            before[one] = signal.signal(one, _handle)
    try:
        yield
    finally:
        _states.remove(state)
        ending = state.number is not None and _under_torchrun()  # torchrun ends the other processes: let them finish
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if ending else handler)


def _numbers() -> list[signal.Signals]:
    return [getattr(signal, name) for name in NAMES if hasattr(signal, name)]  # Windows has two of them


def _under_torchrun() -> bool:
    return 'TORCHELASTIC_RUN_ID' in os.environ


def _handle(number: int, _frame: Any) -> None:
    state = _states[-1] if _states else _State(number=None)
    if state.owner != os.getpid():  # a forked process, such as a data-loader worker: its parent decides
        if number == signal.SIGTERM:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        return
    if state.number is not None:
        if _under_torchrun() and time.monotonic() - state.since < _SAME:
            return
        say(f'{signal.Signals(number).name}: stopped at once')
        os._exit(128 + number)
    state.number, state.since = number, time.monotonic()
    if not state.deferred:
        raise Interrupted(number)
    if rank() == 0:
        say(f'{signal.Signals(number).name}: stopping after this step; a second signal stops at once')


def say(line: str) -> None:
    """Write a line to stderr from a signal handler or a thread, past Python's buffers."""
    with suppress(OSError):  # the terminal may be gone
        os.write(2, f'{line}\n'.encode('utf-8', 'backslashreplace'))


def defer(on: bool) -> None:
    """Record signals instead of raising (or raise again). See :func:`received`."""
    if _states:
        _states[-1].deferred = on


def agreed(number: int) -> None:
    """Another process has received a signal, and this one stops as well: signals that follow are the same one."""
    if _states and _states[-1].number is None:
        _states[-1].number, _states[-1].since = number, time.monotonic()


def received() -> int | None:
    """The number of the signal that was received; None if there was none."""
    return _states[-1].number if _states else None


def shield_worker() -> None:
    """In a data-loader worker: leave the signals to the main process, which needs the worker to finish its step.

    Schedulers such as slurm send them to all processes. After SIGTERM a worker lives on for some seconds only, in case
    that the main process does not end it.
    """
    for number in _numbers():
        signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, 'alarm'):
        signal.signal(signal.SIGTERM, lambda *_: signal.alarm(_WORKER_SECONDS))
