"""Write a file whole or not at all."""
import json
import math
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

PART_SUFFIX = '.part'


@contextmanager
def whole_file(target: str | os.PathLike, mode: str = 'wb') -> Iterator[Any]:
    """Yield an open file that takes the place of ``target`` when the block ends, and vanishes when the block raises.

    It is written beside ``target``, flushed to the disk and renamed, so a reader (or a crash) sees the old file or the
    new one, never a part. Missing parents are made; a link at ``target`` is followed.

    Args:
        target: the file to write.
        mode: ``'wb'``, or ``'w'`` for UTF-8 text with line ends as written.
    """
    target = Path(os.path.realpath(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(prefix=f'.{target.name}.', suffix=PART_SUFFIX, dir=target.parent)
    text = {} if 'b' in mode else {'encoding': 'utf-8', 'newline': ''}
    try:
        with open(handle, mode, **text) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(part, _file_mode(target))
        os.replace(part, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise


def _file_mode(target: Path) -> int:
    """The mode of the file that is replaced, or what ``open`` would give a new one (mkstemp's is 0600)."""
    if target.exists():
        return target.stat().st_mode & 0o777
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


def write_json(target: str | os.PathLike, value: Any) -> None:
    """Write ``value`` as JSON, whole; numbers of numpy or torch become plain ones, NaN and infinities null."""
    with whole_file(target, 'w') as file:
        json.dump(_plain(value), file, indent=1, allow_nan=False)
        file.write('\n')


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, 'tolist'):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    return str(value)
