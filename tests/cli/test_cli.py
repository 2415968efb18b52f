"""The command line at work: training, resuming, evaluation, inference."""
import json
import pickle
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.structures import InstanceData
from PIL import Image
from tiny import KCLA, SIDE, error_of, write_coco, write_detector

from mmkcla.checkpoint import read_checkpoint
from mmkcla.cli import main
from mmkcla.errors import UserError
from mmkcla.runtime.hooks.curves import read_table
from mmkcla.runtime.inputs import picture_names
from mmkcla.runtime.resume import first_usable, read_intact
from mmkcla.runtime.training import add_outputs, set_learning_rate

REPO = Path(__file__).parents[2]


@pytest.fixture(scope='module')
def coco(tmp_path_factory) -> Path:
    return write_coco(tmp_path_factory.mktemp('data') / 'coco')


@pytest.fixture(scope='module')
def trained(tmp_path_factory, coco) -> SimpleNamespace:
    """A detector after two epochs; ``output`` is what the command printed."""
    folder = tmp_path_factory.mktemp('trained')
    config = write_detector(folder / 'tiny.py', coco, backbone=KCLA)
    patch = pytest.MonkeyPatch()
    patch.chdir(folder)
    capture = folder / 'output.txt'
    with open(capture, 'w') as file:
        patch.setattr(sys, 'stdout', file)
        code = main(['train', str(config), '--seed', '3', '--auto-scale-lr'])
    patch.undo()
    assert code == 0
    return SimpleNamespace(folder=folder, config=config, work_dir=folder / 'work_dirs' / 'tiny',
                           checkpoint=folder / 'work_dirs' / 'tiny' / 'epoch_2.pth', output=capture.read_text())


# -- train -------------------------------------------------------------------------------------------------------------

def test_training_leaves_its_results(trained) -> None:
    names = {path.name for path in trained.work_dir.iterdir()}
    assert {'epoch_1.pth', 'epoch_2.pth', 'last_checkpoint', 'curves.csv', 'curves.png', 'tiny.py'} <= names
    rows = read_table(trained.work_dir / 'curves.csv')
    assert [row['iter'] for row in rows] == [2, 4]
    assert {'train/loss_rpn_cls', 'train/lr', 'val/coco/bbox_mAP'} <= rows[-1].keys()
    assert list(trained.work_dir.glob('*/vis_data/events.out.tfevents.*'))
    state = read_checkpoint(trained.checkpoint)
    assert state['meta']['seed'] == 3 and state['meta']['dataset_meta']['classes'] == ('blue', 'green')
    assert any('layer_attentions' in name for name in state['state_dict'])


def test_training_shows_progress_without_noise(trained) -> None:
    assert 'Epoch(train) [1][2/2]' in trained.output and ' eta: 0:00:0' in trained.output
    for noise in ('Could not import OneDL', 'FileClient', 'HardDiskBackend', 'Line NMS'):
        assert noise not in trained.output


def test_resume_goes_on_after_the_last_whole_checkpoint(trained, tmp_path, capsys) -> None:
    shutil.copytree(trained.work_dir, tmp_path / 'w')
    damaged = tmp_path / 'w' / 'epoch_2.pth'
    damaged.write_bytes(damaged.read_bytes()[:-100])
    (tmp_path / 'w' / 'last_checkpoint').write_text(str(damaged))
    config = shutil.copy(trained.config, tmp_path / 'tiny_resume.py')
    assert main(['train', str(config), '--work-dir', str(tmp_path / 'w'), '--resume']) == 0
    shown = capsys.readouterr()
    assert f'note: --resume: checkpoint {damaged} is truncated or not a checkpoint (' in shown.err
    assert 'resumed epoch: 1, iter: 2' in shown.out and 'Epoch(train) [1]' not in shown.out
    before, after = (read_table(folder / 'curves.csv') for folder in (trained.work_dir, tmp_path / 'w'))
    assert after[0] == before[0] and [row['iter'] for row in after] == [2, 4]


def test_what_can_be_resumed(tmp_path, capsys) -> None:
    def find_resumable(folder):
        return (first_usable(folder, read_intact) or [None])[0]

    assert find_resumable(tmp_path) is None
    for number in (2, 10):
        torch.save({}, tmp_path / f'epoch_{number}.pth')
    assert find_resumable(tmp_path) == tmp_path / 'epoch_10.pth'
    (tmp_path / 'last_checkpoint').write_text('/elsewhere/before/the/move/epoch_2.pth')
    assert find_resumable(tmp_path) == tmp_path / 'epoch_2.pth'
    before = tmp_path / 'before'  # a copy: the folder it is of is still there
    before.mkdir()
    (before / 'epoch_2.pth').write_bytes((tmp_path / 'epoch_2.pth').read_bytes())
    (tmp_path / 'last_checkpoint').write_text(str(before / 'epoch_2.pth'))
    assert find_resumable(tmp_path) == tmp_path / 'epoch_2.pth'
    (tmp_path / 'last_checkpoint').write_text(str(before / 'epoch_3.pth'))
    (before / 'epoch_2.pth').rename(before / 'epoch_3.pth')
    assert find_resumable(tmp_path) == tmp_path / 'epoch_10.pth'
    (tmp_path / 'last_checkpoint').write_text('')
    assert find_resumable(tmp_path) == tmp_path / 'epoch_10.pth'
    (tmp_path / 'epoch_10.pth').write_bytes(b'')
    assert find_resumable(tmp_path) == tmp_path / 'epoch_2.pth'
    assert capsys.readouterr().err == (f'note: --resume: checkpoint {tmp_path}/epoch_10.pth is truncated or not a '
                                       'checkpoint (the file is empty); skipped\n')


def test_an_unreadable_image_stops_the_training_by_name(tmp_path, capsys) -> None:
    root = write_coco(tmp_path / 'coco')
    image = root / 'images' / '003.jpg'
    image.write_bytes(image.read_bytes()[:200])
    config = write_detector(tmp_path / 'tiny_broken.py', root, more='train_dataloader.update(num_workers=1)\n')
    run = ('train', config, '--work-dir', tmp_path / 'w')
    assert 'images that cannot be opened: 1 (003.jpg: the JPEG is truncated (no end marker' in error_of(capsys, *run)
    assert error_of(capsys, *run, '--no-checks') == \
        f'cannot read the image {image}: the JPEG is truncated (no end marker in its 200 bytes)'


def test_data_are_checked_before_the_start(trained, tmp_path, capsys) -> None:
    run = ['train', trained.config, '--work-dir', tmp_path, '--cfg-options']
    assert "model.roi_head.bbox_head.num_classes is 3, but train_dataloader.dataset has 2 classes (blue, green)" in \
        error_of(capsys, *run, 'model.roi_head.bbox_head.num_classes=3')
    assert 'no data folder gone' in error_of(capsys, *run, 'train_dataloader.dataset.data_root=gone')
    message = error_of(capsys, *run, 'train_dataloader.dataset.data_root=gone', '--no-checks')
    assert message == 'no such file or directory: gone/ann.json'


def test_what_is_added_to_a_config() -> None:
    config = Config(dict(train_cfg=dict(type='IterBasedTrainLoop', max_iters=20)))
    add_outputs(config)
    assert config.default_hooks.checkpoint == dict(type='mmkcla.AtomicCheckpointHook', interval=1)
    assert config.default_hooks.logger.interval == 4
    assert config.custom_hooks == [dict(type='mmkcla.CurvesHook')]
    assert [backend.type for backend in config.visualizer.vis_backends] == ['LocalVisBackend', 'TensorboardVisBackend']

    own = Config(dict(train_cfg=dict(by_epoch=True, max_epochs=1),
                      default_hooks=dict(checkpoint=dict(type='CheckpointHook', interval=5, max_keep_ckpts=2)),
                      custom_hooks=[dict(type='mmkcla.CurvesHook', interval=2)],
                      visualizer=dict(type='DetLocalVisualizer', vis_backends=[dict(type='TensorboardVisBackend')])))
    add_outputs(own)
    assert own.default_hooks == dict(
        checkpoint=dict(type='mmkcla.AtomicCheckpointHook', interval=5, max_keep_ckpts=2),
        non_finite=dict(type='mmkcla.NonFiniteHook'))
    assert own.custom_hooks == [dict(type='mmkcla.CurvesHook', interval=2)]
    assert own.visualizer.vis_backends == [dict(type='TensorboardVisBackend')]

    off = Config(dict(train_cfg=dict(max_iters=9), default_hooks=dict(checkpoint=None, logger=None)))
    add_outputs(off)
    assert off.default_hooks == dict(checkpoint=None, logger=None, non_finite=dict(type='mmkcla.NonFiniteHook'))


def test_learning_rate_and_batch(capsys) -> None:
    config = Config(dict(train_dataloader=dict(batch_size=4), auto_scale_lr=dict(base_batch_size=16)))
    set_learning_rate(config, scale=False)
    assert capsys.readouterr().err == ('note: the learning rate of the config is for 16 images per iteration, this run '
                                       'has 4; --auto-scale-lr adapts it\n')
    set_learning_rate(config, scale=True)
    assert config.auto_scale_lr.enable is True
    with pytest.raises(UserError, match='the config has no base batch size for its learning rate'):
        set_learning_rate(Config(dict(train_dataloader=dict(batch_size=4))), scale=True)


# -- test --------------------------------------------------------------------------------------------------------------

def test_evaluation(trained, tmp_path, capsys) -> None:
    config = shutil.copy(trained.config, tmp_path / 'tiny_test.py')
    assert main(['test', str(config), str(trained.checkpoint), '--work-dir', str(tmp_path / 'w'),
                 '--out', str(tmp_path / 'out' / 'a.pkl'), '--show-dir', str(tmp_path / 'show')]) == 0
    shown = capsys.readouterr().out
    matched = len(read_checkpoint(trained.checkpoint)['state_dict'])
    assert f'{matched} matched, 0 missing, 0 unexpected, 0 mismatched' in shown
    metrics = json.loads((tmp_path / 'w' / 'metrics.json').read_text())
    last = read_table(trained.work_dir / 'curves.csv')[-1]
    both = {name for name in metrics if f'val/{name}' in last}
    assert {name: metrics[name] for name in both} == {name: pytest.approx(last[f'val/{name}']) for name in both}
    assert 'coco/bbox_mAP' in both and 'coco/blue_precision' in set(metrics) - both  # the classes only in a test
    predictions = pickle.loads((tmp_path / 'out' / 'a.pkl').read_bytes())
    assert len(predictions) == 6 and {'bboxes', 'scores', 'labels'} <= predictions[0]['pred_instances'].keys()
    assert len(list((tmp_path / 'show').glob('*.jpg'))) == 6


def test_partial_checkpoints_are_refused(trained, tmp_path, capsys) -> None:
    state = read_checkpoint(trained.checkpoint)['state_dict']
    head = {name: value for name, value in state.items() if name.startswith('backbone')}
    torch.save(dict(state_dict=head), tmp_path / 'part.pth')
    torch.save(dict(state_dict={'other.weight': torch.zeros(1)}), tmp_path / 'other.pth')
    config = shutil.copy(trained.config, tmp_path / 'tiny_part.py')
    run = ['test', config, tmp_path / 'part.pth', '--work-dir', tmp_path / 'w']
    message = error_of(capsys, *run)
    assert message.startswith(f'checkpoint {tmp_path}/part.pth fits the model of the config only partially '
                              f'({len(head)} matched, ') and '--allow-partial' in message
    assert main([str(part) for part in [*run, '--allow-partial']]) == 0
    run[2] = tmp_path / 'other.pth'
    assert 'has nothing in common with the model of the config (0 matched, ' in error_of(
        capsys, *run, '--allow-partial')
    cv2.imwrite(str(tmp_path / 'a.png'), np.zeros((8, 8, 3), np.uint8))
    assert 'only partially' in error_of(capsys, 'infer', config, tmp_path / 'part.pth', tmp_path / 'a.png', '--out-dir',
                                    tmp_path / 'out')


def test_test_time_augmentation(trained, tmp_path, capsys) -> None:
    config = shutil.copy(trained.config, tmp_path / 'tiny_tta.py')
    assert main(['test', str(config), str(trained.checkpoint), '--work-dir', str(tmp_path / 'w'), '--tta']) == 0
    assert '0 missing, 0 unexpected' in capsys.readouterr().out
    assert 'coco/bbox_mAP' in json.loads((tmp_path / 'w' / 'metrics.json').read_text())
    masks = error_of(capsys, 'test', config, trained.checkpoint, '--work-dir', tmp_path / 'w', '--tta', '--no-checks',
                   '--cfg-options', 'model.roi_head.mask_head.type=FCNMaskHead')
    assert masks.startswith('--tta: mmdet merges only boxes')


# -- infer -------------------------------------------------------------------------------------------------------------

@pytest.fixture
def odd_images(tmp_path) -> Path:
    folder = tmp_path / 'in'
    folder.mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    cv2.imwrite(str(folder / 'gray.png'), pixels[..., 0])
    cv2.imwrite(str(folder / 'gray16.png'), pixels[..., 0].astype(np.uint16) * 257)
    cv2.imwrite(str(folder / 'rgb16.tif'), pixels.astype(np.uint16) * 257)
    Image.fromarray(np.dstack([pixels, pixels[..., :1]])).save(folder / 'rgba.png')
    Image.fromarray(pixels).convert('CMYK').save(folder / 'cmyk.jpg')
    Image.fromarray(pixels).convert('P').save(folder / 'palette.png')
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pixels).save(folder / 'turned.JPG', exif=exif)
    (folder / 'notes.txt').write_text('not an image')
    return folder


def test_inference_on_odd_images_and_a_broken_one(trained, odd_images, tmp_path, capsys) -> None:
    broken = odd_images / 'broken.jpg'
    broken.write_bytes((odd_images / 'cmyk.jpg').read_bytes()[:100])
    assert main(['infer', str(trained.config), str(trained.checkpoint), str(odd_images), '--batch-size', '3',
                 '--out-dir', str(tmp_path / 'out'), '--score-thr', '0.05', '--device', 'cpu']) == 1
    shown = capsys.readouterr()
    assert f'error: cannot read the image {broken}: the JPEG is truncated (no end marker in its 100 bytes)' in shown.err
    assert shown.err.rstrip().endswith(f'error: 1 of 8 images could not be processed: {broken}')
    result = json.loads((tmp_path / 'out' / 'predictions.json').read_text())
    assert result['classes'] == ['blue', 'green']
    assert [entry['file'] for entry in result['failed']] == [str(broken)]
    sizes = {Path(entry['file']).name: (entry['width'], entry['height']) for entry in result['images']}
    assert sizes == dict.fromkeys(('cmyk.jpg', 'gray.png', 'gray16.png', 'palette.png', 'rgb16.tif', 'rgba.png'),
                                  (60, 40)) | {'turned.JPG': (40, 60)}
    for entry in result['images']:
        picture = cv2.imread(str(tmp_path / 'out' / entry['picture']))
        times = 640 // 60  # small images are enlarged
        assert picture.shape == (entry['height'] * times, entry['width'] * times, 3)
        for found in entry['predictions']:
            assert found['score'] > 0.05 and found['class'] == result['classes'][found['label']]
            x1, y1, x2, y2 = found['bbox']
            assert -1 <= x1 <= x2 <= entry['width'] + 1 and -1 <= y1 <= y2 <= entry['height'] + 1


def test_batches_do_not_change_the_result(trained, coco, tmp_path, capsys) -> None:
    results = []
    for size in (1, 4):
        out = tmp_path / str(size)
        assert main(['infer', str(trained.config), str(trained.checkpoint), str(coco / 'images'), '--out-dir', str(out),
                     '--batch-size', str(size), '--score-thr', '0']) == 0
        results.append(json.loads((out / 'predictions.json').read_text())['images'])
    assert sum(len(entry['predictions']) for entry in results[0]) > 0
    for one, many in zip(*results, strict=True):
        assert one['file'] == many['file'] and (one['width'], one['height']) == (SIDE, SIDE)
        assert len(one['predictions']) == len(many['predictions'])
        for a, b in zip(one['predictions'], many['predictions'], strict=True):
            assert a['label'] == b['label'] and a['score'] == pytest.approx(b['score'], abs=1e-4)
            assert a['bbox'] == pytest.approx(b['bbox'], abs=1e-2)


def test_inputs_of_inference(trained, tmp_path, capsys) -> None:
    run = ['infer', trained.config, trained.checkpoint]
    empty = tmp_path / 'empty'
    (empty / 'deeper').mkdir(parents=True)
    assert error_of(capsys, *run, empty) == (
        f'no images in {empty} (looked for .jpg .jpeg .png .bmp .webp .tif .tiff .ppm)')
    cv2.imwrite(str(empty / 'deeper' / 'a.png'), np.zeros((8, 8, 3), np.uint8))
    assert error_of(capsys, *run, empty).endswith(f'; there are some in {empty}/deeper')
    assert error_of(capsys, *run, tmp_path / 'gone.jpg') == f'no such image or folder: {tmp_path}/gone.jpg'
    assert 'which could be overwritten' in error_of(
        capsys, *run, empty / 'deeper' / 'a.png', '--out-dir', empty / 'deeper')
    assert error_of(capsys, *run, empty / 'deeper', '--batch-size', 0) == '--batch-size must be at least 1, got 0'
    assert error_of(capsys, *run, empty / 'deeper', '--out-dir', tmp_path / 'o', '--device', 'toaster').startswith(
        '--device toaster cannot be used: ')


def test_pictures_have_names_of_their_own() -> None:
    names = picture_names([Path('a/x.jpg'), Path('b/x.jpg'), Path('b/x.png'), Path('b/y.TIF'), Path('b/z.JPEG')])
    assert list(names.values()) == ['a/x.jpg', 'b/x.jpg', 'b/x_2.png', 'b/y.png', 'b/z.jpg']
    names = picture_names([Path('b/x.jpg'), Path('b/x.png'), Path('b/x_mask.jpg')])  # x_mask.png is the mask of x
    assert list(names.values()) == ['x.jpg', 'x_2.png', 'x_mask_2.jpg']
    names = picture_names([Path('b/x.jpg'), Path('b/c/x.jpg')])
    assert list(names.values()) == ['x.jpg', 'c/x.jpg']


def test_masks_are_told_as_coco_rle(tmp_path) -> None:
    from pycocotools.mask import decode

    from mmkcla.runtime.inference import DetectionPredictor
    mask = np.zeros((2, 5, 7), bool)
    mask[0, 1:3, 2:6] = True
    found = InstanceData(bboxes=torch.tensor([[2.0, 1.0, 6.0, 3.0], [0, 0, 1, 1]]), scores=torch.tensor([0.9, 0.2]),
                         labels=torch.tensor([1, 0]), masks=torch.from_numpy(mask))
    predictor = object.__new__(DetectionPredictor)
    predictor.score_threshold, predictor.classes = 0.3, ('blue',)
    record, = predictor.record(SimpleNamespace(pred_instances=found), tmp_path, 'a')
    assert (record['label'], record['class'], record['bbox']) == (1, 'class_1', [2.0, 1.0, 6.0, 3.0])
    assert record['score'] == pytest.approx(0.9)
    assert np.array_equal(decode(json.loads(json.dumps(record['mask']))), mask[0])
