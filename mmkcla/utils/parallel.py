"""Process many files in threads, in order, with a progress bar."""
from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm


def processors() -> int:
    """Number of processors available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1


class MemoryBudget:
    """Bounds the memory of several threads: each waits until what it needs is free.

    Args:
        total: bytes. What needs more runs alone.
    """

    def __init__(self, total: int) -> None:
        self._total, self._used = total, 0
        self._free = threading.Condition()

    @contextmanager
    def reserve(self, count: int) -> Iterator[None]:
        """Hold ``count`` bytes while the block runs. Do not nest: two threads could wait for each other."""
        count = min(count, self._total)
        with self._free:
            self._free.wait_for(lambda: self._used + count <= self._total)
            self._used += count
        try:
            yield
        finally:
            with self._free:
                self._used -= count
                self._free.notify_all()


def run_parallel(work: Callable[[Any], Any], items: Sequence[Any], workers: int | None = None,
                 progress: bool | None = None, title: str = '') -> list[Any]:
    """``[work(item) for item in items]`` on several threads (decoding and hashing release the GIL).

    At the first error, pending items are cancelled, running items finish, and the error is raised.

    Args:
        work: called once per item.
        items: the items, in the order of the results.
        workers: number of threads; None: one per processor.
        progress: show a progress bar on stderr; None: only if it is a terminal.
        title: title of the progress bar.
    """
    show = sys.stderr.isatty() if progress is None else progress
    pool = ThreadPoolExecutor(max(1, workers or processors()))
    try:
        results = pool.map(work, items)
        return list(tqdm(results, title, len(items), disable=not show, unit='file', dynamic_ncols=True, leave=False))
    finally:
        pool.shutdown(cancel_futures=True)
