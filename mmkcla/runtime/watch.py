"""Watch the other processes of a distributed run.

Every rank has a thread that writes a counter to the store of the run once a second and reads those of the others. If a
rank fails, ends or no longer counts, the others name it and end, instead of waiting in a collective operation. The
thread also ends its process when torchrun is gone.
"""
import contextlib
import os
import socket
import threading
import time
from dataclasses import dataclass, field
from datetime import timedelta

from ..errors import UserError
from ..utils.signals import say
from ..utils.text import one_line

LOST_RANK_CODE = 4
VARIABLE = 'MMKCLA_RANK_TIMEOUT'
_INTERVAL = 1.0  # seconds
_SILENT = 5.0  # seconds without a count after which a rank is named if a collective operation has failed
_ENDED = 'ended'


def timeout_seconds() -> float:
    """Seconds without an answer after which a rank counts as lost; 0: never.

    Raises:
        UserError: the environment variable is not a number from 0.
    """
    text = os.environ.get(VARIABLE, '300')
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float('inf'):
        raise UserError(f'{VARIABLE}={text!r} must be a number of seconds, or 0 for no limit')
    return seconds


def watch_parent() -> None:
    """Start a thread that ends this process within two seconds after its parent, torchrun, is gone."""
    threading.Thread(target=_follow, args=(os.getppid(),), name='parent watch', daemon=True).start()


def _follow(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_INTERVAL)
    say(f'error: rank {os.environ.get("RANK", "?")}: torchrun (process {parent}) is gone; stopped')
    os._exit(LOST_RANK_CODE)


@dataclass
class _Peer:
    """What is known about another rank."""

    number: int
    value: str = ''
    changed: float = field(default_factory=time.monotonic)

    @property
    def where(self) -> str:
        _, process, host = (self.value.split(' ', 2) + ['?', '?'])[:3]
        return f'rank {self.number} (process {process} on {host})'


class RankWatch(threading.Thread):
    """The thread; see the module.

    Args:
        store: of torch.distributed, a connection of its own.
        rank: of this process.
        world_size: number of processes.
        timeout: see :func:`timeout_seconds`.
        prefix: of the keys, different for each start of the processes.
    """

    def __init__(self, store: object, rank: int, world_size: int, timeout: float, prefix: str) -> None:
        super().__init__(name='rank watch', daemon=True)
        self.store, self.rank, self.timeout, self.prefix = store, rank, timeout, prefix
        self.peers = [_Peer(number) for number in range(world_size) if number != rank]
        self.count = 0
        self._lock = threading.Lock()
        self._done = threading.Event()

    def run(self) -> None:
        while not self._done.is_set():
            self.exchange()
            lost = self.silent(self.timeout) if self.timeout else []
            if lost and not self._done.is_set():
                say(f'error (rank {self.rank}): {lost[0].where} has not answered for {self.timeout:g} s: it is '
                    f'stopped, hangs, or its machine is gone ({VARIABLE})')
                os._exit(LOST_RANK_CODE)
            self._done.wait(_INTERVAL)

    def exchange(self) -> None:
        """Write the own counter and read the others."""
        with self._lock:
            if self._done.is_set():
                return
            self.count += 1
            try:
                self.store.set(self._key(self.rank), f'{self.count} {os.getpid()} {socket.gethostname()}')
                for peer in self.peers:
                    if self.store.check([self._key(peer.number)]):
                        value = self.store.get(self._key(peer.number)).decode()
                        if value != peer.value:
                            peer.value, peer.changed = value, time.monotonic()
            except RuntimeError:  # the store is gone, and with it torchrun or rank 0: the collectives fail, too
                return

    def silent(self, seconds: float) -> list[_Peer]:
        """Ranks that have started and then did not count for ``seconds``."""
        now = time.monotonic()
        return [peer for peer in self.peers
                if peer.value and not peer.value.startswith(_ENDED) and now - peer.changed > seconds]

    def explain(self) -> str | None:
        """After a collective operation has failed: which rank is the reason; None if all still answer."""
        for _ in range(int(_SILENT / _INTERVAL) + 3):
            self.exchange()
            for peer in self.peers:
                if peer.value.startswith(_ENDED):
                    return f'rank {peer.number} has ended first: {peer.value[len(_ENDED):].strip() or "see its output"}'
            for peer in self.silent(_SILENT):
                return f'{peer.where} has died or is stopped'
            time.sleep(_INTERVAL)
        return None

    def end(self, reason: str) -> None:
        """Tell the others that this rank ends, and why; stop watching.

        The thread has ended on return: at the exit of Python, one inside the store would abort the process.
        """
        with self._lock:
            self._done.set()
            with contextlib.suppress(RuntimeError):
                self.store.set(self._key(self.rank), f'{_ENDED} {one_line(reason, 300)}')
        if self.is_alive() and threading.current_thread() is not self:
            self.join(timeout=2 * _INTERVAL)

    def _key(self, number: int) -> str:
        return f'{self.prefix}/{number}'


_watch: RankWatch | None = None


def watch_ranks() -> None:
    """Start to watch the other ranks of the process group; does nothing without one, or under another launcher."""
    global _watch
    from torch import distributed
    if (_watch is not None or not distributed.is_initialized() or distributed.get_world_size() < 2
            or 'MASTER_ADDR' not in os.environ):
        return
    timeout = timeout_seconds()
    try:
        store = distributed.TCPStore(os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']), is_master=False,
                                     wait_for_workers=False, timeout=timedelta(seconds=30))
    except (RuntimeError, ValueError, KeyError):  # a group that was not joined by address and port
        return
    run = os.environ.get('TORCHELASTIC_RUN_ID', ''), os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')
    _watch = RankWatch(store, distributed.get_rank(), distributed.get_world_size(), timeout, f'mmkcla/{"/".join(run)}')
    _watch.start()


def end_watch(reason: str) -> None:
    """This process ends; see :meth:`RankWatch.end`."""
    global _watch
    if _watch is not None:
        _watch.end(reason)
        _watch = None


def lost_rank() -> str | None:
    """See :meth:`RankWatch.explain`; None without distributed training."""
    return None if _watch is None else _watch.explain()
