"""Write a folder whole or not at all."""
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def whole_folder(target: str | os.PathLike, replace: bool = False) -> Iterator[Path]:
    """Yield an empty folder that becomes ``target`` when the block ends, and vanishes when the block raises.

    The work is done in a hidden folder beside ``target`` (same file system, so the last step is a rename); missing
    parents are made. A link at ``target`` is followed.

    Args:
        target: the folder to write; absent or empty, unless ``replace``.
        replace: put aside a folder that is there, and delete it once the new one is in its place.

    Raises:
        OSError: the folder cannot be written, or ``target`` is not empty and ``replace`` is False.
    """
    target = Path(os.path.realpath(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f'.{target.name}.', dir=target.parent))
    new, old = work / 'new', work / 'old'
    try:
        new.mkdir()  # not `work` itself: mkdtemp's 0700 would stay on the result
        yield new
        if replace and target.exists():
            target.rename(old)
        elif target.exists():
            target.rmdir()  # refuses a folder that is not empty, also one filled meanwhile
        try:
            new.rename(target)
        except OSError:
            if old.exists():
                old.rename(target)
            raise
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(new, ignore_errors=True)
        with suppress(OSError):
            work.rmdir()  # keeps `old` in the one case where it could not be put back
