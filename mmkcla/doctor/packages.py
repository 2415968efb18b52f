"""Installed distributions: missing requirements, distributions that overwrite each other, packages that are shadowed.

Nothing is imported; everything is read from the metadata that pip and conda leave (``importlib.metadata``).
"""
from __future__ import annotations

import base64
import configparser
import hashlib
import importlib.util
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from ..compat import DISTRIBUTIONS
from ..utils.text import listed
from .finding import Finding, note, ok, problem

# import names whose files are compared; a distribution may have further ones
ROOTS = ('mmkcla', *DISTRIBUTIONS, 'torch', 'torchvision', 'numpy', 'cv2', 'PIL', 'pycocotools', 'faster_coco_eval',
         'scipy', 'matplotlib', 'safetensors', 'skimage', 'sklearn')
OPENCV = ('opencv-python', 'opencv-python-headless', 'opencv-contrib-python', 'opencv-contrib-python-headless')
_SETUP = Path(__file__).resolve().parents[2] / 'setup.cfg'  # in a checkout
_REQUIREMENT = re.compile(r'\s*([A-Za-z0-9._-]+)\s*(?:\[[^]]*\])?\s*\(?([^;)]*)\)?\s*(?:;(.*))?')


@dataclass(frozen=True)
class Installed:
    """A distribution as found on the Python path."""

    name: str
    version: str
    source: metadata.Distribution = field(compare=False, repr=False)

    def __str__(self) -> str:
        return f'{self.name} {self.version}'

    @cached_property
    def editable(self) -> Path | None:
        """The folder of the sources if they are used in place."""
        try:
            url = json.loads(self.source.read_text('direct_url.json') or '{}')
        except ValueError:
            return None
        is_editable = (url.get('dir_info') or {}).get('editable')
        return Path(unquote(urlparse(url.get('url', '')).path)) if is_editable else None

    @cached_property
    def record(self) -> list[str]:
        """The lines ``path,hash,size`` of its files."""
        return (self.source.read_text('RECORD') or '').splitlines()

    def files(self, root: str) -> dict[str, str]:
        """The files below the folder ``root``, with their hashes (``sha256=…``, or empty)."""
        lines = (line.rsplit(',', 2) for line in self.record if line.startswith(f'{root}/'))
        return {parts[0]: parts[1] for parts in lines if len(parts) == 3 and '__pycache__' not in parts[0]}

    def owns(self, root: str) -> bool:
        """Whether the package with the import name ``root`` is part of it."""
        if self.editable:
            return root in (self.source.read_text('top_level.txt') or '').split()
        return any(line.startswith(f'{root}/') for line in self.record)

    @cached_property
    def folder(self) -> Path:
        """The folder that holds its packages."""
        return self.editable or Path(str(self.source.locate_file('')))


def installed(path: list[str] | None = None) -> list[Installed]:
    """All distributions in the folders of ``path`` (default: the Python path), in its order, repeated ones too."""
    found = []
    for source in metadata.distributions(**({} if path is None else {'path': path})):
        data: Any = source.metadata
        if data and data['Name']:  # a damaged installation has no metadata
            found.append(Installed(data['Name'], data['Version'] or '', source))
    return found


def normalised(name: str) -> str:
    """The name of a distribution, as pip compares it."""
    return re.sub(r'[-_.]+', '-', name).lower()


def check() -> Iterator[Finding]:
    """Requirements, owners, shadows."""
    found = installed()
    yield from requirements(found)
    yield from owners(found)
    yield from repeated(found)
    yield from shadows(found)


def requirements(found: list[Installed]) -> Iterator[Finding]:
    """What mmkcla and the OpenMMLab packages need, and which of it is missing or has another version."""
    versions: dict[str, str] = {}
    for one in found:
        versions.setdefault(normalised(one.name), one.version)
    relevant = {normalised(name) for name in ('torchvision', *DISTRIBUTIONS.values(), 'mmdet', 'mmsegmentation',
                                              'mmpretrain', 'mmcv', 'mmengine')}
    needs = [('mmkcla', text) for text in _own_requirements()]
    needs += [(one.name, text) for one in found if normalised(one.name) in relevant
              for text in one.source.requires or ()]
    faults = [(owner, *fault) for owner, text in needs if (fault := unsatisfied(text, versions))]
    for owner in dict.fromkeys(owner for owner, _, _ in faults):
        own = {wanted: reason for other, wanted, reason in faults if other == owner}
        yield problem('requirements', f'requirements of {owner} that are not met: '
                      + ', '.join(f'{wanted} ({own[wanted]})' for wanted in own),
                      'pip install ' + ' '.join(f"'{wanted}'" for wanted in own))
    if not faults:
        yield ok('requirements', 'all packages that mmkcla and OpenMMLab need are installed')


def unsatisfied(requirement: str, versions: dict[str, str]) -> tuple[str, str] | None:
    """Return the requirement without its marker, and the reason; None if it is satisfied, or does not apply here.

    Args:
        requirement: as in metadata, e.g. ``numpy>2; python_version > "3.9"``.
        versions: the installed versions by normalised name.
    """
    match = _REQUIREMENT.fullmatch(requirement)
    if not match or not _applies(match[3] or ''):
        return None
    name, wanted = normalised(match[1]), match[2].strip()
    if name in OPENCV and name not in versions:  # they contain the same package
        name = next((other for other in OPENCV if other in versions), name)
    if name not in versions:
        return f'{match[1]}{wanted}', 'not installed'
    if wanted and not _fits(versions[name], wanted):
        return f'{match[1]}{wanted}', f'{versions[name]} is installed'
    return None


def _applies(marker: str) -> bool:
    if 'extra' in marker and 'mminstall' not in marker:  # that extra pairs the OpenMMLab packages
        return False
    if not marker.strip():
        return True
    try:
        from packaging.markers import Marker
        return Marker(marker).evaluate({'extra': 'mminstall'})
    except Exception:  # packaging is missing, or the marker is not valid
        return 'mminstall' in marker


def _fits(version: str, wanted: str) -> bool:
    try:
        from packaging.specifiers import SpecifierSet
        return SpecifierSet(wanted).contains(version, prereleases=True)
    except Exception:
        return True


def _own_requirements() -> list[str]:
    if _SETUP.is_file():  # the metadata of an editable install may be older
        config = configparser.ConfigParser()
        config.read(_SETUP, encoding='utf-8')
        return config.get('options', 'install_requires', fallback='').split('\n')[1:]
    try:
        return metadata.requires('mmkcla') or []
    except metadata.PackageNotFoundError:
        return []


def owners(found: list[Installed], roots: Sequence[str] = ROOTS) -> Iterator[Finding]:
    """Packages of which two distributions install the same files: the last one overwrote the other."""
    clean = True
    for root in roots:
        owning = sorted((one for one in found if one.owns(root)), key=lambda one: normalised(one.name))
        shared = _shared([one for one in owning if not one.editable], root)
        in_place = [one for one in owning if one.editable]
        parties = owning if in_place else shared
        if len({normalised(one.name) for one in parties}) < 2:
            continue
        clean = False
        names = ' and '.join(map(str, parties))
        keep = _to_keep(parties)
        remedy = f'pip uninstall -y {" ".join(one.name for one in parties)}; pip install {keep.name}=={keep.version}'
        value = f'{names} both own the folder {root}'
        mixed = _is_mixed(shared, root)
        if len({one.version for one in parties}) == 1 and not mixed and not in_place:
            yield note('owners', f'{value}, in the same version; do not uninstall only one of them',
                       f'to keep one: {remedy}')
        else:
            yield problem('owners', value + ('; the files on disk are a mixture' if mixed else ''), remedy)
    if clean:
        yield ok('owners', 'no two distributions own the same package')


def _shared(owning: list[Installed], root: str) -> list[Installed]:
    files = [set(one.files(root)) for one in owning]
    return [one for i, one in enumerate(owning) if any(files[i] & other for j, other in enumerate(files) if i != j)]


def _is_mixed(parties: list[Installed], root: str) -> bool:
    """Whether no single distribution matches the files on disk that the distributions share and that differ."""
    records = [one.files(root) for one in parties]
    if len(records) < 2:
        return False
    common = set.intersection(*map(set, records))
    differing = sorted(name for name in common if len({record[name] for record in records}) > 1)
    on_disk = {name: _hash_of(parties[0].folder / name) for name in differing}
    return bool(differing) and not any(all(record[name] == on_disk[name] for name in differing) for record in records)


def _hash_of(path: Path) -> str:
    """The hash of a file as in RECORD; empty if it cannot be read."""
    try:
        with open(path, 'rb') as file:
            digest = hashlib.new('sha256')
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError:
        return ''
    return 'sha256=' + base64.urlsafe_b64encode(digest.digest()).decode().rstrip('=')


def _to_keep(parties: list[Installed]) -> Installed:
    preferred = [one for one in parties if one.name in DISTRIBUTIONS.values()]
    return (preferred or sorted(parties, key=lambda one: (one.editable is None, one.name)))[0]


def repeated(found: list[Installed], roots: Sequence[str] = ROOTS) -> Iterator[Finding]:
    """Distributions of :data:`ROOTS` that are installed twice, in one folder or in two."""
    by_name: dict[str, list[Installed]] = {}
    for one in found:
        by_name.setdefault(normalised(one.name), []).append(one)
    for several in by_name.values():
        places = list(dict.fromkeys((one.version, one.folder) for one in several))
        if len(places) < 2 or not any(one.owns(root) for one in several for root in roots):
            continue
        name = several[0].name
        where = ', '.join(f'{version} in {folder}' for version, folder in places)
        if len({folder for _, folder in places}) == 1:
            yield problem('repeated', f'{name} is recorded twice: {where}; an upgrade was interrupted',
                          f'pip install --force-reinstall --no-deps {name}')
        elif len({version for version, _ in places}) > 1:
            yield note('repeated', f'{name} is installed more than once: {where}; the first is used',
                       'uninstall one of them, or set PYTHONNOUSERSITE=1 to ignore the packages of your home folder')


def shadows(found: list[Installed], roots: Sequence[str] = ROOTS) -> Iterator[Finding]:
    """Packages that Python loads from another place than their distribution."""
    for root in roots:
        owning = [one for one in found if one.owns(root)]
        spec = importlib.util.find_spec(root)
        if spec is None:
            if owning:
                yield problem('files', f'{owning[0]} is installed, but Python does not find {root}',
                              f'pip install --force-reinstall --no-deps {owning[0].name}')
            continue
        if spec.origin is None:
            places = listed(spec.submodule_search_locations or ())
            yield problem('shadow', f'{root} is a folder without an __init__.py: {places}',
                          'delete or rename the folder, and install the package again')
            continue
        place = Path(spec.origin).resolve().parent.parent
        if owning and place not in [one.folder.resolve() for one in owning]:
            version, own = _version_in(place / root), owning[0]
            value = f'import {root} loads {place / root}, not {own} in {own.folder}'
            if version in ('', own.version):
                yield note('shadow', value)
            else:
                yield problem('shadow', f'{value}; that is version {version}',
                              f'run in another folder, remove {place} from PYTHONPATH, or pip uninstall {own.name}')


def _version_in(folder: Path) -> str:
    """The version written in the sources of a package, without importing it."""
    for name in ('version.py', '__init__.py'):
        try:
            text = (folder / name).read_text(encoding='utf-8', errors='replace')
        except OSError:
            continue
        if match := re.search(r"^__version__(?:: \w+)? = ['\"]([^'\"]+)['\"]", text, re.MULTILINE):
            return match[1]
    return ''
