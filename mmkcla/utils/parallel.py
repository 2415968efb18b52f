"""The same work on many files: threads, in order, with a progress bar."""
from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tqdm import tqdm


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1


def run_parallel(work: Callable[[Any], Any], items: Sequence[Any], workers: int | None = None,
                 progress: bool | None = None, title: str = '') -> list[Any]:
    """``[work(item) for item in items]`` on several threads (decoding and hashing run outside Python's lock).

    At the first error the items not yet begun are dropped, those at work are awaited, and the error is raised.

    Args:
        work: called once an item.
        items: in the order of the result.
        workers: threads; None: one a processor.
        progress: show a bar on stderr; None: if that is a terminal.
        title: of the bar.
    """
    show = sys.stderr.isatty() if progress is None else progress
    pool = ThreadPoolExecutor(max(1, workers or processors()))
    try:
        results = pool.map(work, items)
        return list(tqdm(results, title, len(items), disable=not show, unit='file', dynamic_ncols=True, leave=False))
    finally:
        pool.shutdown(cancel_futures=True)
