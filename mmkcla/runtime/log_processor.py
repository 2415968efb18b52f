"""Log lines with throughput and memory, and a line about a slow data loader."""
import os
import re
import sys
from typing import Any

from mmengine.device import get_device
from mmengine.dist import get_world_size, is_main_process
from mmengine.runner import LogProcessor

from ..registry import LOG_PROCESSORS
from ..utils.text import note

SLOW_SHARE = 0.4  # of an iteration, spent waiting for data
_FIRST = 20  # the first iterations of a run start the workers and warm up
_TIMES = re.compile(r'data_time: [\d.]+  ')


@LOG_PROCESSORS.register_module(name='LogProcessor')
class SpeedLogProcessor(LogProcessor):
    """mmengine's ``LogProcessor`` (same arguments), with two more values in the lines of a training.

    ``images/s``: images of all processes per second, data loading included. ``memory``: on a CPU, the largest
    memory of the main process so far, in MiB, as mmengine reports that of a GPU. A loader that takes more than 40 % of
    the time is reported once.
    """

    _told = False
    _started: int | None = None

    def get_log_after_iter(self, runner: Any, batch_idx: int, mode: str) -> tuple[dict, str]:
        """See :meth:`mmengine.runner.LogProcessor.get_log_after_iter`."""
        values, line = super().get_log_after_iter(runner, batch_idx, mode)
        if mode != 'train':
            return values, line
        added = ''
        images = images_per_iteration(runner.train_dataloader)
        if images and values.get('time'):
            values['images/s'] = images / values['time']
            added += f'images/s: {values["images/s"]:.1f}  '
        if get_device() == 'cpu' and (memory := process_memory()):
            values['memory'] = memory
            added += f'memory: {values["memory"]}  '
        self._name_slow_loader(runner, values)
        return values, _TIMES.sub(lambda match: match[0] + added, line, count=1)

    def _name_slow_loader(self, runner: Any, values: dict) -> None:
        if self._started is None:
            self._started = runner.iter
        time, waiting = values.get('time'), values.get('data_time')
        if self._told or not time or waiting is None or runner.iter - self._started < _FIRST:
            return
        if waiting > SLOW_SHARE * time:
            self._told = True
            if is_main_process():
                note(slow_loader_line(waiting, time, runner.train_dataloader.num_workers))


def images_per_iteration(dataloader: Any) -> int | None:
    """Return the images of a batch over all processes, None if unknown."""
    size = getattr(dataloader, 'batch_size', None) or getattr(getattr(dataloader, 'batch_sampler', None), 'batch_size',
                                                              None)
    return size * get_world_size() if isinstance(size, int) else None


def process_memory() -> int | None:
    """Return the largest resident memory of this process so far, in MiB; None on systems that do not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if sys.platform == 'darwin' else 2**10))


def slow_loader_line(waiting: float, time: float, workers: int) -> str:
    """Return what to do about a loader that takes ``waiting`` of the ``time`` of an iteration, in seconds."""
    cores = os.cpu_count() or 1
    remedy = (f'raise train_dataloader.num_workers (now {workers}; this machine has {cores} cores)' if workers < cores
              else f'all {cores} cores are in use: store smaller images, or use fewer or cheaper transforms')
    return (f'waiting for data takes {100 * waiting / time:.0f} % of the time of an iteration ({waiting:.3f} of '
            f'{time:.3f} s); {remedy}')
