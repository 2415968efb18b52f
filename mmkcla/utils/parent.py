"""Processes that end together with the process that started them."""
import ctypes
import multiprocessing
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def end_with_parent() -> None:
    """Let the kernel kill this process when its parent dies, even by SIGKILL. Does nothing outside of Linux."""
    if not sys.platform.startswith('linux'):
        return
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):  # a C library without prctl
        return
    parent = multiprocessing.parent_process()
    if parent is not None and not parent.is_alive():  # it died before the call
        os._exit(1)
