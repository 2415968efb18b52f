"""How a training and a test start, and what they leave: on images of two classes, in seconds."""
import datetime
import hashlib
import itertools
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import cv2
import mmengine
import numpy as np
import pytest
import torch
from mmengine.dataset import DefaultSampler, InfiniteSampler
from seed_machine import TINY, write_pairs
from tiny import error_of

from mmkcla.checkpoint import read_checkpoint
from mmkcla.cli import main
from mmkcla.cli.errors import explain
from mmkcla.errors import UserError
from mmkcla.runtime import runner as runners
from mmkcla.runtime.visualization import skip_what_cannot_be_drawn

METRIC = "dict(type='mmkcla.BinarySegMetric', bootstrap=0)"


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    """Two iterations, the best of their validations kept."""
    folder = tmp_path_factory.mktemp('trained')
    (folder / 'tiny.py').write_text(TINY.replace('{root}', str(write_pairs(folder / 'data'))))
    assert main(['train', str(folder / 'tiny.py'), '--work-dir', str(folder / 'w')]) == 0
    return folder


NUMBERS = itertools.count()


@pytest.fixture
def config(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # a name of its own: mmengine's loggers are called after it and the second
    return str(shutil.copy(trained / 'tiny.py', tmp_path / f'runs_{next(NUMBERS)}.py'))


# -- before the start --------------------------------------------------------------------------------------------------

def test_a_training_without_an_iteration(config, capsys):
    message = error_of(capsys, 'train', config, '--work-dir', 'w', '--cfg-options', 'train_dataloader.batch_size=64',
                       'train_dataloader.drop_last=True', 'train_dataloader.sampler.type=DefaultSampler')
    assert message == ('2 images, batch 64, drop_last=True: no iterations; set train_dataloader.batch_size to 2 or '
                       'less, or set train_dataloader.drop_last=False')
    assert not list(Path('w').glob('*.pth'))


def test_what_gives_an_iteration(monkeypatch):
    def check(images, batch, sampler=DefaultSampler, **options):
        data = list(range(images))
        runners.check_iterations(torch.utils.data.DataLoader(data, batch, sampler=sampler(data), **options))

    check(16, 64)
    check(16, 16, drop_last=True)
    check(16, 64, InfiniteSampler, drop_last=True)  # goes on from the start
    with pytest.raises(UserError, match='^the training set has no images; check train_dataloader.dataset'):
        check(0, 2)
    with pytest.raises(UserError, match='^16 images, batch 17, drop_last=True: no iterations; set'):
        check(16, 17, drop_last=True)
    monkeypatch.setattr(runners, 'get_world_size', lambda: 4)
    with pytest.raises(UserError, match='^1 image over 4 processes, batch 2, drop_last=True: .*_size to 1 or less'):
        check(1, 2, drop_last=True)


@pytest.mark.parametrize(('options', 'says'), [
    ([f'test_evaluator={METRIC[:-1]}, treshold=.5, _delete_=True)'],
     "test_evaluator.treshold: mmkcla.BinarySegMetric takes no 'treshold' (did you mean 'threshold'?)"),
    ([f'test_evaluator={METRIC[:-1]}, threshold=7, _delete_=True)'],
     'BinarySegMetric: threshold=7 must be a probability between 0 and 1'),
    ([f'val_evaluator={METRIC[:-1]}, _delete_=True)', 'default_hooks.checkpoint.save_best=DSC_poold'],
     "default_hooks.checkpoint.save_best='DSC_poold' is not a validation metric (did you mean 'DSC_pooled'?); "
     'available: IoU_pooled, DSC_pooled, mIoU_pooled, mDice_pooled, Acc_pooled, Sens_pooled, Spec_pooled, Prec_pooled, '
     'IoU_mean, DSC_mean, mIoU_mean, mDice_mean, Acc_mean, Sens_mean, Spec_mean, Prec_mean, TJ65_mean, failed_share, '
     'empty_truth'),
    (['model.data_preprocessor.size=None'],
     'model.data_preprocessor has neither size nor size_divisor; give one of them: --cfg-options '
     'model.data_preprocessor.size=(256,256) model.data_preprocessor.size_divisor=None pads a batch to height and '
     'width, model.data_preprocessor.size=None model.data_preprocessor.size_divisor=32 to a multiple'),
    (['model.data_preprocessor.size_divisor=32'], 'model.data_preprocessor has both size and size_divisor; give one'),
    (['model.backbone.strides=(1,1)'], 'config: EncoderDecoder.backbone (UNet): The length of strides should be equal '
     'to num_stages, while the strides is (1, 1), the length of strides is 2, and the num_stages is 5.'),
    (['default_hooks.checkpoint.rule=None', 'default_hooks.checkpoint.save_best=odd'],
     "default_hooks.checkpoint.save_best='odd' is not a validation metric; available: "),
    (['train_dataloader.dataset.split=val', 'val_dataloader.dataset.data_root=gone'],
     'no data folder gone (val_dataloader.dataset.data_root)'),
])
def test_refused_before_the_start(config, capsys, options, says):
    message = error_of(capsys, 'train', config, '--work-dir', 'w', '--cfg-options', *options)
    assert message.startswith(says)
    assert not list(Path('w').glob('*.pth'))


def test_a_metric_that_is_not_there(config, capsys):
    """mmseg's evaluator does not tell its names beforehand: the first validation does."""
    assert error_of(capsys, 'train', config, '--work-dir', 'w', '--cfg-options',
                    'default_hooks.checkpoint.save_best=mDic') == (
        "default_hooks.checkpoint.save_best='mDic' is not a validation metric (did you mean 'mDice'?); "
        'available: aAcc, mIoU, mAcc, mDice')


def test_a_set_without_val(config, trained, tmp_path, capsys):
    shutil.copytree(trained / 'data', tmp_path / 'data')
    for kind in ('images', 'masks'):
        shutil.rmtree(tmp_path / 'data' / kind / 'val')
    message = error_of(capsys, 'train', config, '--work-dir', 'w', '--cfg-options', *(
        f'{split}_dataloader.dataset.data_root=data' for split in ('train', 'val', 'test')))
    assert message.startswith('no folder data/images/val (val_dataloader.dataset.split); data has: test, train; ')
    _, _, options = message.partition('train with --cfg-options ')
    assert main(['train', config, '--work-dir', 'w', '--cfg-options', 'train_dataloader.dataset.data_root=data',
                 *options.split()]) == 0
    assert [path.name for path in Path('w').glob('*.pth')] == ['iter_2.pth']


def test_errors_of_what_is_not_built(config):
    def fail():
        raise AssertionError('a fault')

    for error in (AssertionError, ValueError, TypeError):
        assert explain(error('a fault')) is None
    registry = mmengine.Registry('part')
    registry.register_module('Part', module=lambda: fail())
    with pytest.raises(AssertionError) as caught:
        registry.build(dict(type='Part'))
    assert explain(caught.value) == 'config: Part: a fault'


# -- a second training in the same folder ------------------------------------------------------------------------------

def test_the_best_of_an_earlier_training_moves(config, trained, capsys):
    shutil.copytree(trained / 'w', 'w')
    old = sorted(path.name for path in Path('w').glob('best_*.pth'))
    assert len(old) == 1
    content = (Path('w') / old[0]).read_bytes()
    assert main(['train', config, '--work-dir', 'w', '--resume', '--cfg-options', 'train_cfg.max_iters=3']) == 0
    assert not Path('w/earlier').exists()  # it is the same training
    old = sorted(path.name for path in Path('w').glob('best_*.pth'))
    capsys.readouterr()
    for number in range(2):
        again = shutil.copy(config, f'again_{number}.py')
        assert main(['train', again, '--work-dir', 'w']) == 0
        assert f'{old[0]} of an earlier training moved to' in capsys.readouterr().out
        old = sorted(path.name for path in Path('w').glob('best_*.pth'))
        assert len(old) == 1
    kept = list(Path('w/earlier').iterdir())
    assert len(kept) == 2 and len(content) > 1000 and all(read_checkpoint(path) for path in kept)


# -- test --------------------------------------------------------------------------------------------------------------

def test_what_was_measured(config, trained, capsys):
    checkpoint = trained / 'w' / 'iter_2.pth'
    assert main(['test', config, str(checkpoint), '--work-dir', 'w', '--tta', '--cfg-options',
                 'model.decode_head.threshold=0.4']) == 0
    assert 'metrics: w/metrics.json (details: metrics_info.json)\n' in capsys.readouterr().out
    assert {'mIoU', 'mDice'} <= json.loads(Path('w/metrics.json').read_text()).keys()
    info = json.loads(Path('w/metrics_info.json').read_text())
    assert info.pop('checkpoint_sha256') == hashlib.sha256(checkpoint.read_bytes()).hexdigest()
    versions, date = info.pop('versions'), datetime.datetime.fromisoformat(info.pop('date'))
    assert versions['torch'] == torch.__version__ and {'mmkcla', 'mmengine', 'mmseg'} <= versions.keys()
    assert abs(datetime.datetime.now(datetime.timezone.utc) - date) < datetime.timedelta(minutes=5)
    assert info == dict(checkpoint=str(checkpoint), epoch=0, iter=2, config=config, tta=True,
                        cfg_options=['model.decode_head.threshold=0.4'], allow_partial=False)


def test_two_checkpoints(config, capsys):
    assert error_of(capsys, 'test', config, 'a.pth', 'b.pth') == 'two checkpoints given: a.pth, b.pth; give exactly one'
    assert error_of(capsys, 'test', config, *'abcd') == '4 checkpoints given: a, b, c, d; give exactly one'


def test_report_of_the_binary_metric(config, trained, capsys):
    run = ['test', config, str(trained / 'w' / 'iter_2.pth'), '--work-dir', 'w', '--cfg-options']
    assert main([*run, f'test_evaluator=[{METRIC},{METRIC[:-1]}, prefix=second)]']) == 0
    shown = capsys.readouterr().out
    assert 'per image: w/evaluation\nper image: w/evaluation_2\n' in shown
    for folder in ('w/evaluation', 'w/evaluation_2'):
        assert Path(folder, 'per_image.csv').read_text().count('\n') == 3
        assert len(list(Path(folder, 'worst').glob('*.png'))) == 2
    assert main([*run, f"test_evaluator={METRIC[:-1]}, out_dir='own', _delete_=True)"]) == 0
    assert 'per image: own\n' in capsys.readouterr().out and Path('own/per_image.csv').is_file()


def test_an_image_that_cannot_be_drawn(config, trained, tmp_path, capsys):
    shutil.copytree(trained / 'data', tmp_path / 'data')
    for kind in ('images', 'masks'):
        cv2.imwrite(str(tmp_path / 'data' / kind / 'test' / 'dot.png'), np.zeros((1, 1), np.uint8))
    assert main(['test', config, str(trained / 'w' / 'iter_2.pth'), '--work-dir', 'w', '--show-dir', 'sd',
                 '--no-checks', '--cfg-options', 'test_dataloader.dataset.data_root=data',
                 "test_dataloader.dataset.pipeline=[dict(type=mmkcla.LoadImageFromFile), dict(type=Resize, "
                 "scale=(32, 32)), dict(type=mmkcla.LoadBinaryMask), dict(type=PackSegInputs)]"]) == 0
    shown = capsys.readouterr().out
    assert 'data/images/test/dot.png cannot be drawn; skipped: ' in shown
    assert 'pictures: sd\n' in shown and Path('w/metrics.json').is_file()
    assert len(list(Path('sd').iterdir())) == 2


def test_the_disk_still_stops_a_picture():
    def draw(name, image, data_sample):
        raise {'full': OSError(28, 'No space left on device'), 'odd': IndexError('out of range')}[name]

    lines = []
    runner = SimpleNamespace(visualizer=SimpleNamespace(add_datasample=draw),
                             logger=SimpleNamespace(warning=lines.append))
    skip_what_cannot_be_drawn(runner)
    runner.visualizer.add_datasample('odd', None, data_sample=None)
    assert lines == ['odd cannot be drawn; skipped: IndexError: out of range']
    with pytest.raises(OSError, match='No space left'):
        runner.visualizer.add_datasample('full', None, SimpleNamespace(img_path='a.png'))
