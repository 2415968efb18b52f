"""The work dir of a training in place of its config and checkpoint."""
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from seed_machine import TINY, write_pairs
from tiny import error_of

from mmkcla.cli import build_parser, main
from mmkcla.errors import UserError
from mmkcla.paths import config_of_run, find_config
from mmkcla.runtime.run_folder import choose_checkpoint, split_checkpoint


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp('trained')
    (folder / 'remembered.py').write_text(TINY.replace('{root}', str(write_pairs(folder / 'data'))))
    assert main(['train', str(folder / 'remembered.py'), '--work-dir', str(folder / 'w'), '--seed', '3']) == 0
    return folder / 'w'


@pytest.fixture
def run(trained, tmp_path, monkeypatch):
    """A copy of the work dir, in another place: its config names the old one."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained, 'moved')
    return Path('moved')


def test_a_test_uses_config_and_best_checkpoint(run, capsys):
    before = (run / 'remembered.py').read_bytes()
    assert main(['test', str(run)]) == 0
    best = choose_checkpoint(run, 'mIoU', 'best')
    assert best.name.startswith('best_mIoU_') and f'moved: using {best.name}' in capsys.readouterr().err
    info = json.loads((run / 'metrics_info.json').read_text())
    assert info['checkpoint'] == str(best) and Path(info['config']) == run / 'remembered.py'
    metrics = json.loads((run / 'metrics.json').read_text())
    assert main(['test', str(run / 'remembered.py'), str(best), '--work-dir', 'other']) == 0
    assert json.loads(Path('other/metrics.json').read_text()) == metrics
    assert (run / 'remembered.py').read_bytes() == before  # with its training
    assert main(['test', str(run), str(run / 'iter_2.pth')]) == 0  # a checkpoint can still be named
    assert json.loads((run / 'metrics_info.json').read_text())['checkpoint'] == str(run / 'iter_2.pth')


def test_a_training_goes_on_or_is_finished(run, trained, capsys):
    assert main(['train', str(run)]) == 0
    assert 'iter_2.pth is at iteration 2 of 2: the training is finished' in capsys.readouterr().err
    content = (run / 'remembered.py').read_text()
    assert content.count('CurvesHook') == content.count('NonFiniteHook') == 1 and 'seed=3' in content
    assert main(['train', str(run), '--cfg-options', 'train_cfg.max_iters=3']) == 0
    assert (run / 'iter_3.pth').is_file() and not (trained / 'iter_3.pth').exists()


def test_predictions_of_a_run(run, capsys):
    images = []
    for name in ('a.png', 'b.png'):
        Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(name)
        images.append(name)
    assert main(['infer', str(run), '--out-dir', 'out', *images]) == 0  # options before the images
    content = json.loads(Path('out/predictions.json').read_text())
    assert len(content['images']) == 2 and Path(content['checkpoint']).name.startswith('best_')
    assert main(['infer', str(run), str(run / 'iter_2.pth'), '--out-dir', 'last', 'a.png']) == 0
    assert Path(json.loads(Path('last/predictions.json').read_text())['checkpoint']).name == 'iter_2.pth'
    assert error_of(capsys, 'infer', str(run / 'remembered.py'), 'a.png').startswith('no checkpoint given: name one')


def test_what_is_no_run(run, tmp_path, capsys):
    (tmp_path / 'empty').mkdir()
    assert error_of(capsys, 'test', 'empty') == ('no checkpoint given: name one after the config empty, or give the '
                                                 'work dir of a training in place of the config')
    assert error_of(capsys, 'train', 'empty') == \
        'config empty is a folder; give a .py file, or the work dir of a training'
    assert error_of(capsys, 'train', '.') == 'config . is a folder; give one of its work dirs: moved'
    shutil.copy(run / 'remembered.py', run / 'second.py')
    assert error_of(capsys, 'test', str(run)) == \
        'the work dir moved has 2 configs: remembered.py, second.py; give one of these files'
    (run / 'second.py').unlink()
    (run / 'last_checkpoint').unlink()  # it names that of the original
    (run / 'iter_2.pth').write_bytes((run / 'iter_2.pth').read_bytes()[:1000])
    assert error_of(capsys, 'test', str(run)) == 'no checkpoint in moved can be used (iter_2.pth); restore one'
    for file in run.glob('*.pth'):
        file.unlink()
    assert error_of(capsys, 'test', str(run)) == \
        'no checkpoint in moved; mmkcla train moved goes on with the training'


def test_configs_of_work_dirs(run):
    assert find_config(str(run)) == config_of_run(run) == run / 'remembered.py'
    with pytest.raises(UserError, match='is a folder'):
        config_of_run(Path('.'))


@pytest.mark.parametrize(('words', 'checkpoint', 'inputs'), [
    (['moved', 'photos'], None, ['photos']), (['moved', 'a.jpg', 'b.jpg'], None, ['a.jpg', 'b.jpg']),
    (['moved', 'x.pth', 'b.jpg'], 'x.pth', ['b.jpg']), (['moved', 'https://a.b/x', 'b'], 'https://a.b/x', ['b']),
    (['c.py', 'x.bin', 'b.jpg'], 'x.bin', ['b.jpg']), (['c.py', 'x.pth', '--out-dir', 'o', 'b'], 'x.pth', ['b']),
    (['--out-dir', 'o', 'c.py', 'x.pth', 'a.jpg', '--device', 'cpu', 'b.jpg'], 'x.pth', ['a.jpg', 'b.jpg'])])
def test_checkpoint_and_inputs(run, words, checkpoint, inputs):
    args = build_parser().parse_args(['infer', *words])
    assert split_checkpoint(args.config, args.checkpoint, args.inputs) == (checkpoint, inputs)


def test_the_best_by_name_is_the_one_with_the_highest_number(tmp_path):
    """Without a record; a copy may change the times of files."""
    for number in (2, 10, 9):
        torch.save({}, tmp_path / f'best_DSC_epoch_{number}.pth')
    torch.save({}, tmp_path / 'epoch_12.pth')
    assert choose_checkpoint(tmp_path, 'DSC', 'best').name == 'best_DSC_epoch_10.pth'
