"""Full disks, removed folders, long names, links: one line, and earlier files stay."""
import errno
import logging
import os

import pytest

from mmkcla.cli.errors import explain
from mmkcla.errors import UserError
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


def test_the_folder_is_synced_after_the_rename(tmp_path, monkeypatch):
    synced, original = [], os.fsync
    monkeypatch.setattr(files.os, 'fsync', lambda handle: (synced.append(os.readlink(f'/proc/self/fd/{handle}')),
                                                           original(handle)))
    files.write_json(tmp_path / 'x.json', [1])
    assert synced[0].endswith('.part') and synced[1:] == [str(tmp_path)]


def test_the_lock_is_not_written_through_a_link(tmp_path):
    (tmp_path / 'precious').write_text('text')
    (tmp_path / '.training').symlink_to(tmp_path / 'precious')
    with files.training_lock(tmp_path):
        assert (tmp_path / '.training').read_text() == f'{os.getpid()}\n'
    assert (tmp_path / 'precious').read_text() == 'text' and not (tmp_path / '.training').is_symlink()


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
