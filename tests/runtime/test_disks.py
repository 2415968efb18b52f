"""Full disks, removed folders, long names, links: one line, and earlier files stay."""
import errno
import logging
import os
import shutil
import signal
from pathlib import Path

import pytest
from slow_training import start, stop, wait_for, write_training

from mmkcla.checkpoint import read_checkpoint
from mmkcla.cli.errors import explain
from mmkcla.errors import UserError
from mmkcla.runtime.config import check_writable
from mmkcla.runtime.hooks import AtomicCheckpointHook
from mmkcla.runtime.hosts import quiet_logger
from mmkcla.utils import files


@pytest.mark.parametrize('point', ['fsync', 'chmod', 'replace'])
@pytest.mark.parametrize('code', [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS])
def test_a_failed_write_names_the_file_and_keeps_the_old_one(tmp_path, monkeypatch, point, code):
    target = tmp_path / 'epoch_1.pth'
    target.write_bytes(b'old')

    def fail(*_):
        raise OSError(code, os.strerror(code))
    monkeypatch.setattr(files.os, point, fail)
    with pytest.raises(OSError) as caught, files.whole_file(target) as file:
        file.write(b'new')
    line = explain(caught.value)
    assert line.startswith(f'{os.strerror(code).lower()}: {target}')
    assert ('free some space and run the command again' in line) == (
        code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
    assert os.listdir(tmp_path) == ['epoch_1.pth'] and target.read_bytes() == b'old'


def test_names_of_the_longest_kind(tmp_path):
    for name in ('n' * 240 + '.json', 'ä' * 120 + '.json', 'n' * 255):
        files.write_json(tmp_path / name, [1])
        assert os.listdir(tmp_path) == [name]
        (tmp_path / name).unlink()


def test_names_that_are_not_utf_8(tmp_path):
    """Python reads their bytes as surrogates; what writes text cannot write those."""
    name = os.fsdecode(os.fsencode(tmp_path) + b'/w\xff')
    with pytest.raises(UserError, match=r"^--work-dir '.*w.udcff' is not UTF-8; choose another folder$"):
        check_writable(name, '--work-dir')
    assert os.listdir(tmp_path) == []
    files.write_json(name, [name])
    assert files.parse_json(Path(name).read_text()) == [name]
    with pytest.raises(UnicodeEncodeError) as caught, files.whole_file(tmp_path / 'x', 'w') as file:
        file.write(name)
    assert explain(caught.value) == f'{name!r} is not UTF-8; rename the file or folder'
    assert os.listdir(os.fsencode(tmp_path)) == [b'w\xff']


def test_the_folder_is_synced_after_the_rename(tmp_path, monkeypatch):
    synced, original = [], os.fsync
    monkeypatch.setattr(files.os, 'fsync', lambda handle: (synced.append(os.readlink(f'/proc/self/fd/{handle}')),
                                                           original(handle)))
    files.write_json(tmp_path / 'x.json', [1])
    assert synced[0].endswith('.part') and synced[1:] == [str(tmp_path)]


def test_the_lock_is_not_written_through_a_link(tmp_path):
    (tmp_path / 'precious').write_text('text')
    for name in ('.training', '.training.lock'):
        (tmp_path / name).symlink_to(tmp_path / 'precious')
    with files.training_lock(tmp_path):
        with pytest.raises(UserError, match='is training in'), files.training_lock(tmp_path):
            pass
        assert (tmp_path / '.training').read_text() == f'{os.getpid()}\n'
    assert (tmp_path / 'precious').read_text() == 'text'
    assert not (tmp_path / '.training').is_symlink() and not (tmp_path / '.training.lock').is_symlink()


def test_a_log_that_cannot_be_written_is_reported_once(capfd):
    logger = logging.Logger('full')
    handler = logging.FileHandler('/dev/full')
    logger.addHandler(handler)
    quiet_logger(logger)
    for _ in range(5):
        logger.warning('line')
    line, = capfd.readouterr().err.splitlines()
    assert line == ('warning: cannot write the log to /dev/full ([Errno 28] No space left on device); further lines '
                    'may be missing')
    handler.stream = None


def test_a_removed_work_dir(tmp_path):
    from mmengine.fileio import LocalBackend
    hook = AtomicCheckpointHook()
    hook.file_backend, hook.out_dir = LocalBackend(), str(tmp_path / 'gone')
    with pytest.raises(UserError, match='was removed during the training'):
        hook._save_checkpoint_with_step(None, 1, {})
    assert not (tmp_path / 'gone').exists()


FULL = '''
import resource
from slow_parts import Line as _Line

@MODELS.register_module(force=True)
class FullLine(_Line):
    """From the seventh step on, no file of this process can grow over 999 bytes, as on a full disk."""
    steps = 0
    def forward(self, inputs, mode='tensor'):
        self.steps += mode == 'loss'
        if self.steps == 7:
            resource.setrlimit(resource.RLIMIT_FSIZE, (999, 999))
        return super().forward(inputs, mode)
'''


def test_a_full_disk_in_a_training(tmp_path):
    """The file and the remedy are named once, earlier checkpoints are complete, and the resumed run goes to the end."""
    pytest.importorskip('resource')
    config = write_training(tmp_path, by_epoch=False, length=9, seconds=0.01, interval=3)
    parts = (tmp_path / 'slow_parts.py').read_text()
    (tmp_path / 'full_parts.py').write_text('from mmengine.registry import MODELS\n' + FULL)
    text = config.read_text().replace("imports=['slow_parts']", "imports=['slow_parts', 'full_parts']")
    config.write_text(text.replace("type='Line'", "type='FullLine'"))
    assert 'class Line' in parts
    process = start(tmp_path, 'train', 'slow.py', '--work-dir', 'w', '--no-checks')
    lines = process.communicate(timeout=200)[0].splitlines()
    errors = [line for line in lines if line.startswith('error')]
    assert process.returncode == 2 and 'Traceback' not in '\n'.join(lines), '\n'.join(lines)[-5000:]
    line, = errors
    assert line.startswith(f'error: file too large: {tmp_path / "w"}/') and line.endswith(
        '; free some space and run the command again (a training with --resume)')
    assert sum('cannot write the' in line for line in lines) <= 3  # the log, TensorBoard's
    work_dir = tmp_path / 'w'
    assert sorted(path.name for path in work_dir.glob('*.pth')) == ['iter_3.pth', 'iter_6.pth']
    assert [read_checkpoint(work_dir / f'iter_{number}.pth')['meta']['iter'] for number in (3, 6)] == [3, 6]
    assert list(work_dir.rglob('*.part')) == []
    config.write_text(config.read_text().replace("type='FullLine'", "type='Line'"))
    process = start(tmp_path, 'train', 'slow.py', '--work-dir', 'w', '--no-checks', '--resume')
    process.communicate(timeout=200)
    assert process.returncode == 0 and read_checkpoint(work_dir / 'iter_9.pth')['meta']['iter'] == 9


def test_a_work_dir_removed_before_a_signal(tmp_path):
    """The checkpoint in the middle of an epoch does not create the folder again."""
    write_training(tmp_path, seconds=0.3)
    process = start(tmp_path, 'train', 'slow.py', '--work-dir', 'w', '--no-checks')
    wait_for(process, 'loss', 2)
    shutil.rmtree(tmp_path / 'w')
    code, lines = stop(process, signal.SIGTERM)
    assert code == 2 and not list((tmp_path / 'w').glob('*.pth')), lines
    assert [line for line in lines if line.startswith('error')] == [
        f'error: the folder {tmp_path / "w"} was removed during the training; its checkpoints are lost']
    assert 'Traceback' not in '\n'.join(lines)
