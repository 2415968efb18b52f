"""Temporary files of atomic writes: deleted after a crash, never while they are written."""
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mmkcla.utils import parts
from mmkcla.utils.files import whole_file, whole_folder
from mmkcla.weights import addresses

ROOT = Path(__file__).parents[2]
WRITER = '''
import sys, time
from mmkcla.utils.files import whole_file, whole_folder
with whole_file(sys.argv[1] + '/a.pth') as file, whole_folder(sys.argv[1] + '/data') as folder:
    file.write(b'half')
    (folder / 'x').write_text('half')
    print('writing', flush=True)
    time.sleep(60)
'''


def old(path):
    os.utime(path, (time.time() - 100, ) * 2)
    return path


def hidden(folder):
    return sorted(path for path in folder.iterdir() if path.name.startswith('.'))


@pytest.mark.skipif(parts.fcntl is None, reason='no locks')
def test_left_by_a_killed_process(tmp_path, monkeypatch):
    """What a living process writes stays; after SIGKILL, the next write to the folder deletes it."""
    process = subprocess.Popen([sys.executable, '-c', WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True,
                               env=os.environ | {'PYTHONPATH': str(ROOT)})
    try:
        assert process.stdout.readline() == 'writing\n'
        left = [old(path) for path in hidden(tmp_path)]
        assert len(left) == 2
        assert parts.remove_parts(tmp_path) == parts.remove_folders(tmp_path) == [] and hidden(tmp_path) == left
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    monkeypatch.setattr(parts, '_scanned', set())
    with whole_file(tmp_path / 'b.json') as file:
        file.write(b'1')
    with whole_folder(tmp_path / 'other') as folder:
        (folder / 'y').write_text('2')
    assert hidden(tmp_path) == [] and sorted(os.listdir(tmp_path)) == ['b.json', 'other']


def test_subfolders_and_other_files(tmp_path):
    inner = tmp_path / 'evaluation' / 'pictures'
    inner.mkdir(parents=True)
    ours = [old_file(tmp_path / '.epoch_1.pth.mmkcla-abcd_123.part'), old_file(inner / '.x.png.mmkcla-abcdefgh.part')]
    others = [old_file(inner / name) for name in ('.x.part', 'x.part', '.x.abcdefgh.part', '.x.mmkcla-abcdefgh.part2')]
    new = inner / '.new.mmkcla-abcdefgh.part'
    new.write_text('')
    link = inner / '.link.mmkcla-abcdefgh.part'
    link.symlink_to(others[0])
    assert sorted(parts.remove_parts(tmp_path, recursive=True)) == sorted(ours if parts.fcntl else [])
    assert all(path.exists() for path in (*others, new, link))
    assert parts.remove_parts(tmp_path / 'missing') == []


def old_file(path):
    path.write_text('')
    return old(path)


def test_downloads(tmp_path, monkeypatch):
    """torch writes to a file next to the target, and leaves it behind when it is killed."""
    monkeypatch.setattr('torch.hub.get_dir', lambda: str(tmp_path))

    def download(url, target, hash_prefix=None):
        Path(target).write_text('new')
    monkeypatch.setattr('torch.hub.download_url_to_file', download)
    target = Path(addresses.download('https://example.org/a.pth'))
    target.unlink()
    running, dead = target.with_name('a.pth.1.partial'), target.with_name('a.pth.2.partial')
    running.write_text(''), dead.write_text('')
    os.utime(dead, (time.time() - 7200, ) * 2)
    assert Path(addresses.download('https://example.org/a.pth')) == target
    assert sorted(path.name for path in target.parent.iterdir()) == ['a.pth', 'a.pth.1.partial']


def test_every_place_that_writes_temporary_files():
    """Another place would need its own cleaning."""
    pattern = re.compile(r"mkstemp|mkdtemp|NamedTemporaryFile|download_url_to_file")
    found = {path.relative_to(ROOT).as_posix() for path in (ROOT / 'mmkcla').rglob('*.py')
             if pattern.search(path.read_text(encoding='utf-8'))}
    assert found == {'mmkcla/utils/files.py', 'mmkcla/weights/addresses.py'}
