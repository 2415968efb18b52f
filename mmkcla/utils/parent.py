"""Processes that end together with the process that started them."""
import ctypes
import functools
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def end_with_parent() -> None:
    """Let the kernel kill this process when its parent dies, even by SIGKILL. Does nothing outside of Linux."""
    prctl = _prctl()
    if prctl is None:
        return
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    parent = multiprocessing.parent_process()
    if parent is not None and not parent.is_alive():  # it died before the call
        os._exit(1)


def ending_with_this() -> Callable[[], None] | None:
    """Return a ``preexec_fn`` for ``subprocess``: the child, whatever its program, ends with this process. None outside
    of Linux."""
    if _prctl() is None:  # looked up here, since little is safe between fork and exec
        return None
    return functools.partial(_before_exec, os.getpid())


def _before_exec(parent: int) -> None:
    prctl = _prctl()
    assert prctl is not None
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


@functools.cache
def _prctl() -> Callable[..., int] | None:
    if not sys.platform.startswith('linux'):
        return None
    try:
        return ctypes.CDLL(None).prctl
    except (OSError, AttributeError):  # a C library without prctl
        return None
