"""Seeds whose best checkpoint was chosen on the images it is tested on."""
import shutil
from pathlib import Path

import pytest
from seed_machine import TINY, Machine, write_pairs

from mmkcla.cli import main
from mmkcla.runtime import processes


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    return write_pairs(tmp_path_factory.mktemp('data'))


@pytest.fixture
def config(tmp_path, data, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(processes, 'run_process', Machine())
    (tmp_path / 'tiny.py').write_text(TINY.replace('{root}', str(data)))
    return 'tiny.py'


OPTIMISTIC = 'images it is tested on; the figures are optimistic.'


def test_a_checkpoint_chosen_on_the_test_images_is_reported(config, capsys):
    same = ['--cfg-options', 'test_dataloader.dataset.split=val']
    report = Path('work_dirs/tiny/results.md')
    assert main(['seeds', config, '--seeds', '0', *same]) == 0
    assert f'\n* The checkpoint was chosen on the {OPTIMISTIC}' in report.read_text()
    assert capsys.readouterr().err.count(f'note: The checkpoint was chosen on the {OPTIMISTIC}') == 1
    assert main(['seeds', config, '--seeds', '0', *same, '--dry-run']) == 0
    assert OPTIMISTIC in capsys.readouterr().err
    assert main(['seeds', config, '--seeds', '0', *same, '--checkpoint', 'last']) == 0
    assert 'optimistic' not in report.read_text() + capsys.readouterr().err
    shutil.rmtree('work_dirs')
    assert main(['seeds', config, '--seeds', '0', *same, 'default_hooks.checkpoint.save_best=None']) == 0
    assert 'optimistic' not in report.read_text() + capsys.readouterr().err


def test_copies_of_validation_images_in_the_test_are_counted(config, data, tmp_path, capsys):
    root = tmp_path / 'copies'
    shutil.copytree(data, root)
    shutil.copy(root / 'images/val/val1.png', root / 'images/test/test0.png')
    assert main(['seeds', config, '--seeds', '0', '--cfg-options', *(
        f'{split}_dataloader.dataset.data_root={root}' for split in ('train', 'val', 'test'))]) == 0
    assert f'The checkpoint was chosen on 1 of the 2 {OPTIMISTIC}' in capsys.readouterr().err
