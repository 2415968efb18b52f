"""Installations for the tests of ``mmkcla doctor``: fake distributions, and the real site-packages with changes."""
import base64
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import torch

REPO = Path(__file__).parents[2]
SITE = Path(torch.__file__).parents[1]
_RUN = '''
import json, sys
from mmkcla.doctor import PROBES
from mmkcla.doctor.worker import run_isolated
if __name__ == '__main__':
    probes = [probe for probe in PROBES if probe.name in sys.argv[1:]]
    print(json.dumps([[probe.name, found.check, found.level, found.value, found.remedy]
                      for probe, found in run_isolated(probes) if found]))
'''


def write_distribution(site: Path, name: str, version: str, files: dict[str, str] | None = None,
                       requires: tuple[str, ...] = (), editable: Path | None = None, top_level: str = '') -> Path:
    """Write a dist-info folder as pip does, and the ``files`` (path: content) with their hashes in RECORD."""
    info = site / f'{name.replace("-", "_")}-{version}.dist-info'
    info.mkdir(parents=True, exist_ok=True)
    record = []
    for path, content in (files or {}).items():
        target = site / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).decode().rstrip('=')
        record.append(f'{path},sha256={digest},{len(content)}')
    (info / 'RECORD').write_text('\n'.join([*record, f'{info.name}/RECORD,,']))
    needs = ''.join(f'Requires-Dist: {one}\n' for one in requires)
    (info / 'METADATA').write_text(f'Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}')
    if top_level:
        (info / 'top_level.txt').write_text(top_level)
    if editable:
        (info / 'direct_url.json').write_text(json.dumps({'url': editable.as_uri(), 'dir_info': {'editable': True}}))
    return info


def linked_site(folder: Path, without: tuple[str, ...] = (), open_package: str = '') -> Path:
    """A site-packages folder of links to the real one, except for entries that start with one of ``without``.

    ``open_package`` becomes a real folder of links, so that its files can be replaced and added.
    """
    folder.mkdir()
    for entry in SITE.iterdir():
        if entry.name == open_package:
            (folder / entry.name).mkdir()
            for part in entry.iterdir():
                (folder / entry.name / part.name).symlink_to(part)
        elif not entry.name.startswith(without or ('\0',)) and entry.suffix != '.pth':
            (folder / entry.name).symlink_to(entry)
    return folder


def run_probes(site: Path | None, *names: str, script: Path) -> dict[str, list[list[str]]]:
    """Run the named probes with ``site`` as the only site-packages (None: none); [check, level, value, remedy] of each
    finding, by probe."""
    script.write_text(f'import sys\nsys.path[:0] = {[str(REPO), *([str(site)] if site else [])]!r}\n' + _RUN)
    shown = subprocess.run([sys.executable, '-S', '-s', '-E', str(script), *names], capture_output=True, text=True,
                           cwd=script.parent, timeout=400, check=True)
    found: dict[str, list[list[str]]] = {}
    for name, *finding in json.loads(shown.stdout):
        found.setdefault(name, []).append(finding)
    return found
