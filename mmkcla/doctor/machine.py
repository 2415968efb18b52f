"""Memory, disks, shared memory, file descriptors, processors, and folders that must be writable."""
from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .finding import Finding, note, ok, problem

GIB = 2 ** 30
DISK_PROBLEM, DISK_NOTE = 1 * GIB, 5 * GIB  # a checkpoint of a ResNet-50 detector with its optimiser: 0.3 GiB
SHM_PROBLEM, SHM_NOTE = GIB // 8, 1 * GIB  # Docker's default is 64 MiB
MEMORY_NOTE = 4 * GIB
FILES_NOTE = 1024
SHM = Path('/dev/shm')


def check() -> Iterator[Finding]:
    """All of these."""
    yield from memory()
    yield from disks()
    yield from shared_memory()
    yield from open_files()
    yield from processors()


def memory() -> Iterator[Finding]:
    """The memory that is available now."""
    available = _available_memory()
    if available is None:
        return
    text = f'{available / GIB:.1f} GiB available'
    if available < MEMORY_NOTE:
        yield note('memory', text, 'reduce batch_size and num_workers of the dataloaders')
    else:
        yield ok('memory', text)


def _available_memory() -> int | None:
    """In bytes, within the limit of the container; None where the system does not report it."""
    found = []
    try:
        for line in Path('/proc/meminfo').read_text().splitlines():
            if line.startswith('MemAvailable:'):
                found.append(int(line.split()[1]) * 1024)
    except (OSError, ValueError, IndexError):
        pass
    try:
        group = Path('/sys/fs/cgroup')
        found.append(int((group / 'memory.max').read_text()) - int((group / 'memory.current').read_text()))
    except (OSError, ValueError):  # no limit, or not Linux
        pass
    return max(0, min(found)) if found else None


def disks() -> Iterator[Finding]:
    """Free space and write access: work dirs, caches, temporary files."""
    for name, folder, variable in _folders():
        existing = next((path for path in (folder, *folder.parents) if path.exists()), folder)
        try:
            with tempfile.TemporaryFile(dir=existing):
                pass
            free = shutil.disk_usage(existing).free
        except OSError as error:
            reason = error.strerror or str(error)
            yield problem(name, f'cannot write to {existing}: {reason}',
                          f'set {variable} to another folder' if variable else 'start in a folder that is writable')
            continue
        text = f'{folder}: {free / GIB:.1f} GiB free'
        if free < DISK_PROBLEM:
            yield problem(name, text, 'delete old checkpoints and logs' + (
                f', or set {variable} to a folder on another disk' if variable else ', or set --work-dir'))
        elif free < DISK_NOTE:
            yield note(name, text, 'a training writes several checkpoints; see default_hooks.checkpoint.max_keep_ckpts')
        else:
            yield ok(name, text)


def _folders() -> Iterator[tuple[str, Path, str]]:
    """(name, folder, environment variable that moves it)."""
    yield 'current folder', Path.cwd(), ''
    try:
        temporary = tempfile.gettempdir()
    except OSError:  # none is writable
        temporary = os.environ.get('TMPDIR', '/tmp')
    yield 'temporary files', Path(temporary), 'TMPDIR'
    cache = Path(os.environ.get('XDG_CACHE_HOME') or '~/.cache').expanduser()
    home = os.environ.get('TORCH_HOME')
    yield 'weights cache', (Path(home).expanduser() if home else cache / 'torch') / 'hub', 'TORCH_HOME'
    try:
        from platformdirs import user_cache_dir
    except ImportError:  # listed as missing by the requirements
        return
    yield 'data cache', Path(user_cache_dir('mmkcla', appauthor=False)), 'XDG_CACHE_HOME'


def shared_memory(folder: Path = SHM) -> Iterator[Finding]:
    """Workers of the dataloaders pass batches through /dev/shm (Linux)."""
    if not folder.is_dir():
        return
    try:
        usage = shutil.disk_usage(folder)
    except OSError as error:
        yield problem('shared memory', f'{folder}: {error.strerror or error}', 'set num_workers=0 of the dataloaders')
        return
    text = f'{folder}: {usage.free / GIB:.2f} of {usage.total / GIB:.2f} GiB free'
    if usage.total < SHM_PROBLEM:
        yield problem('shared memory', text,
                      'start the container with --shm-size=8g or --ipc=host, or set num_workers=0')
    elif usage.free < SHM_PROBLEM:
        yield problem('shared memory', f'shared memory is full: {text}', f'end other trainings, then delete the files '
                      f'{folder}/torch_* that ended processes left')
    elif usage.free < SHM_NOTE:
        yield note('shared memory', text, 'use few workers, or start the container with --shm-size=8g or --ipc=host')
    else:
        yield ok('shared memory', text)


def open_files() -> Iterator[Finding]:
    """The limit of open files; each worker and each batch in flight uses some."""
    try:
        import resource
    except ImportError:  # Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < FILES_NOTE:
        yield note('open files', f'at most {soft}', f'ulimit -n {4096 if hard == resource.RLIM_INFINITY else hard}')
    else:
        yield ok('open files', 'no limit' if soft == resource.RLIM_INFINITY else f'at most {soft}')


def processors() -> Iterator[Finding]:
    """Processors that this process may use, against the threads that are set."""
    usable = _usable_processors()
    text = f'{usable} of {os.cpu_count()} usable'
    for variable in ('OMP_NUM_THREADS', 'MKL_NUM_THREADS'):
        threads = os.environ.get(variable, '')
        if threads.isdigit() and int(threads) > usable:
            yield note('processors', f'{text}, but {variable}={threads}', f'export {variable}={max(1, int(usable))}')
            return
        if threads == '1' and usable >= 4:
            yield note('processors', f'{text}, but {variable}=1: a training on the CPU uses one of them',
                       f'unset {variable} to train on the CPU')
            return
    yield ok('processors', text)


def _usable_processors() -> float:
    """Number of processors, within the quota of the container (which may be fractional)."""
    count: float = len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1
    try:
        quota, period = Path('/sys/fs/cgroup/cpu.max').read_text().split()
        count = min(count, round(int(quota) / int(period), 1))
    except (OSError, ValueError):  # no quota, or not Linux
        pass
    return int(count) if count == int(count) else count
