"""Atomic files and folders, folders that are written once, and locks across processes."""
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from mmkcla.errors import UserError
from mmkcla.utils.files import (
    already_there,
    exclusive,
    publish_folder,
    sha256_of,
    training_lock,
    whole_file,
    whole_folder,
    write_json,
)

ROOT = Path(__file__).parents[2]


def contents(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob('*') if path.is_file()}


def python(code: str, *arguments: object) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, '-c', code, *map(str, arguments)], cwd=ROOT, stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE)


# Files


def test_whole_file(tmp_path) -> None:
    target = tmp_path / 'deep' / 'a.txt'
    with whole_file(target, 'w') as file:
        file.write('ä\n')
    assert target.read_bytes() == 'ä\n'.encode()
    os.chmod(target, 0o640)
    with pytest.raises(RuntimeError), whole_file(target) as file:
        file.write(b'new')
        raise RuntimeError
    assert target.read_bytes() == 'ä\n'.encode() and [path.name for path in target.parent.iterdir()] == ['a.txt']
    (tmp_path / 'link').symlink_to(target)
    with whole_file(tmp_path / 'link') as file:
        file.write(b'new')
    assert target.read_bytes() == b'new' and target.stat().st_mode & 0o777 == 0o640 and (tmp_path / 'link').is_symlink()


def test_a_new_file_has_the_mode_that_open_gives(tmp_path) -> None:
    before = os.umask(0o027)
    try:
        with whole_file(tmp_path / 'a') as file:
            file.write(b'x')
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)
    assert (tmp_path / 'a').stat().st_mode & 0o777 == 0o640


def test_line_ends_are_written_as_they_are(tmp_path) -> None:
    with whole_file(tmp_path / 'a', 'w') as file:
        file.write('1\r\n2\n')
    assert (tmp_path / 'a').read_bytes() == b'1\r\n2\n'


def test_readers_see_the_old_file_until_the_end(tmp_path) -> None:
    target = tmp_path / 'a'
    target.write_bytes(b'old')
    with whole_file(target) as file:
        file.write(b'new')
        file.flush()
        assert target.read_bytes() == b'old'
    assert target.read_bytes() == b'new' and os.listdir(tmp_path) == ['a']


def test_killed_while_it_saves(tmp_path) -> None:
    """SIGKILL at varying moments of overwriting one file: what has the name can always be read."""
    code = ('import sys; from mmkcla.utils.files import whole_file\n'
            'number = 0\n'
            'while True:\n'
            '    number += 1\n'
            '    with whole_file(sys.argv[1]) as file:\n'
            '        for _ in range(64):\n'
            '            file.write(bytes([number % 251]) * 65536)\n')
    target = tmp_path / 'a.bin'
    for tries in range(4):
        with python(code, target) as process:
            end = time.monotonic() + 20
            while not target.exists() and time.monotonic() < end:
                time.sleep(0.005)
            time.sleep(0.03 + 0.017 * tries)
            process.send_signal(signal.SIGKILL)
        content = target.read_bytes()
        assert len(content) == 64 * 65536 and len(set(content)) == 1


def test_json_of_odd_values(tmp_path) -> None:
    write_json(tmp_path / 'a.json', dict(a=float('nan'), b=torch.tensor([1.5]), c=(1, None), d=Path('x'), e=True))
    assert json.loads((tmp_path / 'a.json').read_text()) == {'a': None, 'b': [1.5], 'c': [1, None], 'd': 'x', 'e': True}


def test_sha256_of_a_file_of_several_parts(tmp_path) -> None:
    data = bytes(range(256)) * 8193  # more than two parts of a MiB
    (tmp_path / 'a').write_bytes(data)
    assert sha256_of(tmp_path / 'a') == hashlib.sha256(data).hexdigest()


# Folders


def test_whole_folder(tmp_path) -> None:
    target = tmp_path / 'deep' / 'out'
    with whole_folder(target) as new:
        (new / 'a').write_text('1')
        assert not target.exists() and new.parent.parent == target.parent
    assert contents(tmp_path) == {'deep/out/a': '1'} and os.listdir(tmp_path / 'deep') == ['out']
    assert target.stat().st_mode & 0o777 == (tmp_path / 'deep').stat().st_mode & 0o777


@pytest.mark.parametrize('replace', [False, True])
def test_a_failed_whole_folder_leaves_what_was_there(tmp_path, replace) -> None:
    (tmp_path / 'out').mkdir()
    if replace:
        (tmp_path / 'out' / 'old').write_text('1')
    with pytest.raises(RuntimeError), whole_folder(tmp_path / 'out', replace) as new:
        (new / 'a').write_text('2')
        raise RuntimeError
    assert contents(tmp_path) == ({'out/old': '1'} if replace else {}) and os.listdir(tmp_path) == ['out']


def test_whole_folder_fills_an_empty_folder_through_a_link(tmp_path) -> None:
    (tmp_path / 'real').mkdir()
    (tmp_path / 'link').symlink_to(tmp_path / 'real')
    with whole_folder(tmp_path / 'link') as new:
        (new / 'a').write_text('1')
    assert (tmp_path / 'link').is_symlink() and (tmp_path / 'real' / 'a').read_text() == '1'


def test_whole_folder_does_not_replace_what_appeared_meanwhile(tmp_path) -> None:
    with pytest.raises(OSError, match='not empty'), whole_folder(tmp_path / 'out') as new:
        (new / 'mine').touch()
        (tmp_path / 'out').mkdir()
        (tmp_path / 'out' / 'theirs').touch()
    assert contents(tmp_path).keys() == {'out/theirs'} and os.listdir(tmp_path) == ['out']


@pytest.fixture
def old_and_new(tmp_path) -> tuple[Path, Path]:
    for name in ('old', 'new'):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text(name)
    return tmp_path / 'old', tmp_path / 'new'


def test_publish_folder_replaces_only_if_asked(old_and_new, tmp_path) -> None:
    old, new = old_and_new
    with pytest.raises(OSError, match='not empty'):
        publish_folder(new, old)
    assert contents(tmp_path) == {'old/old': 'old', 'new/new': 'new'}
    publish_folder(new, old, replace=True)
    assert contents(tmp_path) == {'old/new': 'new'} and os.listdir(tmp_path) == ['old']


def test_publish_folder_puts_the_old_one_back_if_it_fails(old_and_new, tmp_path, monkeypatch) -> None:
    old, new = old_and_new
    rename = Path.rename

    def fail(self: Path, target: Path) -> Path:
        if self == new:
            raise OSError(28, 'No space left on device')
        return rename(self, target)

    monkeypatch.setattr(Path, 'rename', fail)
    with pytest.raises(OSError, match='No space left'):
        publish_folder(new, old, replace=True)
    assert contents(tmp_path) == {'old/old': 'old', 'new/new': 'new'} and set(os.listdir(tmp_path)) == {'old', 'new'}


# Folders that are written once


@pytest.fixture
def record(tmp_path) -> Path:
    """A folder with its record, and a file of three bytes."""
    folder = tmp_path / 'data'
    (folder / 'images').mkdir(parents=True)
    (folder / 'images' / 'a.png').write_bytes(b'abc')
    (folder / 'record.json').write_text(json.dumps({'size': 8, 'digest': 'f' * 64}))
    return folder


def ask(folder: Path, overwrite: bool = False, **parameters: object) -> bool:
    def read(folder: Path) -> tuple[dict, dict]:
        return json.loads((folder / 'record.json').read_text()), {'images/a.png': 3, 'record.json': None}

    return already_there(folder, 'toy data set', read, {'size': 8, 'digest': 'f' * 64, **parameters}, overwrite,
                         ignored={'.lock'})


def test_already_there(record, tmp_path) -> None:
    assert ask(record) is True
    assert ask(record, overwrite=True) is False
    (record / 'images' / '.lock').touch()
    assert ask(record) is True and ask(record, overwrite=True) is False
    (tmp_path / 'empty').mkdir()
    assert ask(tmp_path / 'empty') is False and ask(tmp_path / 'absent') is False


@pytest.mark.parametrize(('parameters', 'found'), [
    ({'size': 9}, 'size 8 (requested: 9)'),
    ({'size': 9, 'digest': 'e' * 64}, 'size 8 (requested: 9), digest ffffffff (requested: eeeeeeee)'),
    ({'seed': 1}, 'seed None (requested: 1)'),
    ({'size': {'a': 1, 'b': 2}}, 'size 8 (requested: a=1 b=2)'),
    ({'digest': lambda: 'e' * 64}, 'other files in the digest'),
    ({'size': 9, 'digest': lambda: pytest.fail('must not be called')}, 'size 8 (requested: 9)'),
])
def test_another_is_there(record, parameters, found) -> None:
    with pytest.raises(UserError) as caught:
        ask(record, **parameters)
    assert str(caught.value) == f'{record} was written with {found}; choose another folder, or use --overwrite'
    assert ask(record, overwrite=True, **parameters) is False


def test_the_same_by_a_digest_that_is_computed(record) -> None:
    assert ask(record, digest=lambda: 'f' * 64) is True


@pytest.mark.parametrize(('content', 'found'), [
    (None, 'images/a.png is missing'), (b'ab', 'images/a.png has 2 bytes instead of 3')])
def test_a_damaged_one_is_there(record, content, found) -> None:
    (record / 'images' / 'a.png').unlink()
    if content is not None:
        (record / 'images' / 'a.png').write_bytes(content)
    with pytest.raises(UserError) as caught:
        ask(record)
    assert str(caught.value) == f'{record} is damaged: {found}; write it again with --overwrite'
    assert ask(record, overwrite=True) is False


@pytest.mark.parametrize('overwrite', [False, True])
@pytest.mark.parametrize('content', [None, 'no JSON'])
def test_something_else_is_there(record, content, overwrite) -> None:
    (record / 'record.json').unlink()
    if content is not None:
        (record / 'record.json').write_text(content)
    with pytest.raises(UserError) as caught:
        ask(record, overwrite)
    assert str(caught.value) == f'{record} is neither empty nor a toy data set; choose another folder'


def test_a_file_is_there(tmp_path) -> None:
    (tmp_path / 'file').touch()
    with pytest.raises(UserError, match=r'file is a file; the toy data set needs a folder$'):
        ask(tmp_path / 'file')


def test_foreign_files_are_not_overwritten(record) -> None:
    (record / 'images' / 'mine.png').touch()
    with pytest.raises(UserError) as caught:
        ask(record, overwrite=True)
    assert str(caught.value) == (f'{record / "images" / "mine.png"} is not part of the toy data set and would be lost; '
                                 'move it, or choose another folder')
    assert ask(record) is True


# Locks


def test_one_training_a_folder(tmp_path, monkeypatch) -> None:
    folder = tmp_path / 'w'
    code = ('import sys; from mmkcla.utils.files import training_lock\n'
            'with training_lock(sys.argv[1]):\n    print("held", flush=True); sys.stdin.read()')
    with python(code, folder) as other:
        assert other.stdout.readline() == b'held\n'
        refusal = rf'^process {other.pid} is training in {folder}; wait until it ends, stop it, or choose another'
        with pytest.raises(UserError, match=refusal), training_lock(folder):
            pass
        monkeypatch.setenv('RANK', '1')  # another process of the same training
        with training_lock(folder):
            pass
        monkeypatch.undo()
        other.kill()
    for _ in range(2):
        with training_lock(folder):
            pass


@pytest.mark.skipif(not sys.platform.startswith('linux'), reason='forks, and reads /proc')
def test_a_forked_worker_does_not_hold_the_lock(tmp_path) -> None:
    """A worker that outlives a killed training must not keep its folder locked."""
    code = ('import os, sys, time; from mmkcla.utils.files import training_lock\n'
            'with training_lock(sys.argv[1]):\n'
            '    worker = os.fork()\n'
            '    if not worker: time.sleep(60)\n'
            '    print(worker, flush=True); sys.stdin.read()')
    with python(code, tmp_path) as other:
        worker = int(other.stdout.readline())
        try:
            other.kill()
            other.wait()
            with training_lock(tmp_path):
                assert Path(f'/proc/{worker}').exists()
        finally:
            os.kill(worker, signal.SIGKILL)


def test_exclusive_across_processes(tmp_path) -> None:
    lock = tmp_path / 'lock'
    code = ('import pathlib, sys; from mmkcla.utils.files import exclusive\n'
            'with exclusive(pathlib.Path(sys.argv[1]), RuntimeError):\n    print("held", flush=True); sys.stdin.read()')
    entered = []
    with python(code, lock) as other:
        assert other.stdout.readline() == b'held\n'
        with pytest.raises(LookupError, match='^busy$'), exclusive(lock, lambda: LookupError('busy')):
            entered.append('while the other holds it')
        other.stdin.close()  # it ends its block
        assert other.wait(20) == 0
    with exclusive(lock, lambda: LookupError('busy')):
        entered.append('afterwards')
    assert entered == ['afterwards']


def test_exclusive_passes_the_errors_of_the_block_on_and_releases(tmp_path) -> None:
    for _ in range(2):
        with pytest.raises(OSError, match='disk'), exclusive(tmp_path / 'lock', RuntimeError):
            raise OSError('disk')


def test_exclusive_without_locks_runs_the_block(tmp_path) -> None:
    """As on a file system that has none: here the folder of the lock file is a file."""
    (tmp_path / 'file').touch()
    entered = []
    with exclusive(tmp_path / 'file' / 'lock', RuntimeError):
        entered.append(True)
    assert entered
