"""Read downloaded data file by file: from zip files, or from the folders unpacked from them.

Nothing is extracted to disk, so member names cannot choose a path; one member at a time is in memory.
"""
from __future__ import annotations

import lzma
import os
import re
import stat
import threading
import zipfile
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from mmkcla.datasets.segmentation.masks import MAX_PIXELS
from mmkcla.errors import UserError
from mmkcla.utils.images import FORMATS
from mmkcla.utils.parallel import MemoryBudget

from ....utils.text import one_line, printable

MAX_BYTES = 512 * 2**20  # of one file; the largest image of the data sets here has 30 MB
MAX_TOTAL = 256 * 2**30  # of all files of a zip file; those of the data sets here have up to 11 GB
MAX_RATIO = 100  # of sizes unpacked and packed; the images and masks of the data sets here are compressed already
RATIO_FROM = 16 * 2**20  # smaller files may have any ratio: a black mask is packed well
MAX_MEMORY = 2 * 2**30  # of all threads together; one image may need more, and then runs alone
MAX_DIRECTORY = 64 * 2**20  # the list of members in a zip file; that of 100,000 members has 10 MB
_DEPTH = 5  # how many folders down a source is searched
_JUNK = {'__macosx', 'thumbs.db', 'desktop.ini'}
_DAMAGE = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError, ValueError)


@dataclass(frozen=True)
class SourceFile:
    """One file of a source.

    Attributes:
        parts: its path below the source; a zip file counts as a folder named like it.
        size: bytes.
        path: the file itself, or the zip file that holds it.
        member: its name in the zip file; None for a plain file.
        changed: modification time of ``path``, nanoseconds.
        crc32: of the content, as the zip file has it; None for a plain file.
    """

    parts: tuple[str, ...]
    size: int
    path: Path
    member: str | None
    changed: int
    crc32: int | None = None

    @property
    def name(self) -> str:
        """The file's name without folders."""
        return self.parts[-1]


def list_files(source: str | os.PathLike, archives: Collection[str], skip: Collection[Path] = (),
               depth: int = _DEPTH) -> list[SourceFile]:
    """The files of a source, those in its zip files too, sorted by their paths.

    Left out are what operating systems leave behind (``__MACOSX``, ``._*``, ``.DS_Store``, ``Thumbs.db``) and all
    hidden files. Zip files that are not looked into are listed as plain files.

    Args:
        source: a folder; or a zip file, which is read whatever its name. If that is one of ``archives``, the folder
            that it lies in is the source.
        archives: names (without ``.zip``; case does not matter, nor does the `` (1)`` that a browser adds) of the zip
            files to look into; others are left alone.
        skip: folders not to search.
        depth: how many folders down to search.

    Raises:
        UserError: there is no such source; a zip file is damaged, encrypted, there twice, or has members that point
            outside it.
    """
    source = Path(source)
    wanted = {name.casefold() for name in archives}
    if source.is_file():
        if _published(source.stem).casefold() not in wanted:
            return _sorted(_zip_files(source, (source.stem,)))
        source = source.parent
    if not source.is_dir():
        raise UserError(f'no folder or zip file {source}; it is where the downloaded files are')
    found, opened = [], {}
    for path, parts in _walk(source, {Path(os.path.realpath(folder)) for folder in skip}, depth):
        stem, suffix = os.path.splitext(parts[-1])
        stem = _published(stem)
        if suffix.lower() != '.zip' or stem.casefold() not in wanted:
            status = path.stat()
            found.append(SourceFile(parts, status.st_size, path, None, status.st_mtime_ns))
        else:
            if stem.casefold() in opened:
                raise UserError(f'two zip files of one name: {opened[stem.casefold()]} and {path}; leave one of them')
            opened[stem.casefold()] = path
            found.extend(_zip_files(path, (*parts[:-1], stem)))
    return _sorted(found)


class Reader:
    """Reads source files from several threads, each with zip handles of its own. A context manager.

    Attributes:
        budget: reserve :meth:`memory` of it before reading, so that threads do not fill the memory.
    """

    def __init__(self) -> None:
        self.budget = MemoryBudget(MAX_MEMORY)
        self._local = threading.local()
        self._lock = threading.Lock()
        self._handles = []
        self._crcs: dict[Path, int] = {}

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *error: object) -> None:
        for handle in self._handles:
            handle.close()

    def read(self, file: SourceFile) -> bytes:
        """The content of one file.

        Raises:
            UserError: it cannot be read, or its zip file is damaged.
        """
        try:
            if file.member is None:
                content = file.path.read_bytes()
                self._crcs[file.path] = zlib.crc32(content)
                return content
            return self._handle(file.path).read(file.member)
        except _DAMAGE as error:
            raise _damaged(file.path, error) from None
        except OSError as error:
            raise UserError(f'cannot read {file.path}: {error.strerror or error}') from None

    def memory(self, file: SourceFile) -> int:
        """Estimate the memory that an image needs: its bytes, and 8 for each pixel of its header."""
        try:
            source = file.path.open('rb') if file.member is None else self._handle(file.path).open(file.member)
            with source, Image.open(source, formats=FORMATS) as picture:
                return file.size + 8 * min(picture.width * picture.height, MAX_PIXELS)
        except Exception:  # reported when it is read
            return file.size

    def crc32(self, file: SourceFile) -> int:
        """The CRC of one file: as its zip file has it, or of what was read, or else of what is read now.

        Raises:
            UserError: it cannot be read.
        """
        if file.crc32 is not None:
            return file.crc32
        if file.path not in self._crcs:
            crc = 0
            try:
                with file.path.open('rb') as content:
                    while block := content.read(2**20):
                        crc = zlib.crc32(block, crc)
            except OSError as error:
                raise UserError(f'cannot read {file.path}: {error.strerror or error}') from None
            self._crcs[file.path] = crc
        return self._crcs[file.path]

    def _handle(self, path: Path) -> zipfile.ZipFile:
        handles = self._local.__dict__.setdefault('handles', {})
        if path not in handles:
            handles[path] = zipfile.ZipFile(path)
            with self._lock:
                self._handles.append(handles[path])
        return handles[path]


def _walk(source: Path, skip: set[Path], depth: int) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """The plain files below ``source`` that are no junk, with their paths below it."""
    def fail(error: OSError) -> None:
        raise UserError(f'cannot read {error.filename}: {error.strerror}')

    for folder, folders, names in os.walk(source, followlinks=True, onerror=fail):
        parts = Path(folder).relative_to(source).parts
        above = {Path(os.path.realpath(folder)), *Path(os.path.realpath(folder)).parents}  # a link to these is a circle
        folders[:] = [] if len(parts) >= depth else sorted(
            name for name in folders
            if not _junk([name]) and Path(os.path.realpath(os.path.join(folder, name))) not in skip | above)
        for name in sorted(names):
            path = Path(folder, name)
            if not _junk([name]) and path.is_file():
                if os.fsencode(path).decode(errors='replace') != str(path):
                    raise UserError(f'{printable(path)}: the name is not valid UTF-8; rename the file')
                yield path, (*parts, name)


def _zip_files(path: Path, parts: tuple[str, ...]) -> Iterator[SourceFile]:
    """The members of one zip file that are files and no junk."""
    try:
        _check_directory(path)
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
        changed = path.stat().st_mtime_ns
    except _DAMAGE as error:
        raise _damaged(path, error) from None
    except OSError as error:
        raise UserError(f'cannot read {path}: {error.strerror or error}') from None
    _refuse_bombs(path, members)
    for member in members:
        names = member.filename.replace('\\', '/').split('/')
        if not names[0] or '..' in names or re.match('[A-Za-z]:', names[0]):
            raise UserError(f'{path} has the member {member.filename!r}, which points outside it: not a file of the '
                            'publisher; nothing was read')
        if not member.filename.isprintable():
            raise UserError(f'{path} has the member {member.filename!r}, with control characters in its name: not a '
                            'file of the publisher; nothing was read')
        if stat.S_ISLNK(member.external_attr >> 16):
            raise UserError(f'{path} has the link {member.filename!r}: not a file of the publisher; nothing was read')
        if names[-1] == '' or _junk(names):
            continue
        if member.flag_bits & 1:
            raise UserError(f'{path} is encrypted (member {member.filename!r}); unpack it first')
        yield SourceFile((*parts, *names), member.file_size, path, member.filename, changed, member.CRC)


def _check_directory(path: Path) -> None:
    """Refuse a list of members that would fill the memory when it is read."""
    size = path.stat().st_size
    with path.open('rb') as file:
        file.seek(max(0, size - 2**16 - 98))
        end = file.read()
    directory = 0
    if (at := end.rfind(b'PK\5\6')) >= 0 and len(end) >= at + 16:
        directory = int.from_bytes(end[at + 12:at + 16], 'little')
    if (at := end.rfind(b'PK\6\6')) >= 0 and len(end) >= at + 48:  # zip64
        directory = max(int.from_bytes(end[at + 40:at + 48], 'little'), 0 if directory == 2**32 - 1 else directory)
    if min(directory, size) > MAX_DIRECTORY:
        raise UserError(f'{path} lists members in {min(directory, size)} bytes, more than {MAX_DIRECTORY}: not a file '
                        'of the publisher; nothing was read')


def _refuse_bombs(path: Path, members: Collection[zipfile.ZipInfo]) -> None:
    """Refuse zip files that unpack to far more than they hold.

    Raises:
        UserError: members overlap, or are too large together or for their packed size.
    """
    packed, unpacked = (sum(sizes) for sizes in zip(*((member.compress_size, member.file_size) for member in members),
                                                    strict=True)) if members else (0, 0)
    if packed > path.stat().st_size:
        raise UserError(f'{path} has members that overlap ({packed} bytes packed in a file of {path.stat().st_size}): '
                        'not a file of the publisher; nothing was read')
    if unpacked > MAX_TOTAL:
        raise UserError(f'{path} would unpack to {unpacked} bytes, more than {MAX_TOTAL}; nothing was read')
    for member in members:
        if member.file_size > max(RATIO_FROM, MAX_RATIO * member.compress_size):
            raise UserError(f'{path}: {member.filename!r} would unpack from {member.compress_size} to '
                            f'{member.file_size} bytes: not an image of the publisher; nothing was read')
    if unpacked > max(64 * RATIO_FROM, MAX_RATIO * packed):
        raise UserError(f'{path} would unpack from {packed} to {unpacked} bytes: not a file of the publisher; nothing '
                        'was read')


def _published(stem: str) -> str:
    """The name of a zip file without what a browser adds to a second download: ``a (1)`` to ``a``."""
    return re.sub(r'\s*\(\d+\)$', '', stem)


def _damaged(path: Path, error: BaseException) -> UserError:
    return UserError(f'the zip file {path} is damaged or cut off ({one_line(error) or "no data"}); '
                     'download it again')


def _junk(names: Collection[str]) -> bool:
    return any(name.startswith('.') or name.casefold() in _JUNK for name in names)


def _sorted(files: Iterator[SourceFile] | list[SourceFile]) -> list[SourceFile]:
    return sorted(files, key=lambda file: (file.parts, str(file.path)))
