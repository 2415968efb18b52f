"""One training at a time in a work dir."""
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import UserError
from .ranks import rank

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


@contextmanager
def only_one(folder: str | os.PathLike) -> Iterator[None]:
    """Hold ``folder`` as that of this training while the block runs; a process that dies lets go of it.

    Does nothing on ranks but the first, and where the system or the disk knows no locks.

    Raises:
        UserError: another process holds it.
    """
    if fcntl is None or rank() != 0:
        yield
        return
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / '.training', 'a+', encoding='utf-8') as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise UserError(f'process {file.read().strip() or "(unknown)"} is training in {folder}; wait for its end, '
                            'stop it, or choose another --work-dir') from None
        except OSError:  # a disk without locks
            pass
        file.truncate(0)
        file.write(f'{os.getpid()}\n')
        file.flush()
        yield
