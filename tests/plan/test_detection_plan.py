"""Plans for the coins, and what comes of them."""
import json

import pytest
from coins_data import small_coins
from mmengine.config import Config
from PIL import Image
from planned import check_project, contents, plan, train_and_test
from tiny import error_of, write_coco

from mmkcla.plan import machine


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch):
    monkeypatch.setattr(machine, '_ram', lambda: 16)
    monkeypatch.setattr('torch.cuda.is_available', lambda: False)


@pytest.fixture(scope='module')
def coins(tmp_path_factory):
    return small_coins(tmp_path_factory.mktemp('coins') / 'data', train_images=16, val_images=4)


def annotations(coins):
    return [coins / 'annotations' / f'instances_{split}2017.json' for split in ('train', 'val')]


@pytest.fixture(scope='module')
def project(coins, tmp_path_factory):
    out = tmp_path_factory.mktemp('plans') / 'project'
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, '_ram', lambda: 16)
        patch.setattr('torch.cuda.is_available', lambda: False)
        assert plan('detection', '--images', coins, '--annotations', *annotations(coins), '--out', out) == 0
    return out


def test_settings(coins, project):
    config = check_project(project)
    assert config.model.type == 'MaskRCNN' and config.image_size == (96, 96)
    assert (config.train_dataloader.batch_size, config.optim_wrapper.optimizer.lr) == (2, 0.00025)
    assert config.auto_scale_lr.base_batch_size == 2
    heads = config.model.roi_head
    assert (heads.bbox_head.num_classes, heads.mask_head.num_classes) == (1, 1)
    loaders = [config[f'{split}_dataloader'].dataset for split in ('train', 'val', 'test')]
    assert [tuple(loader.metainfo.classes) for loader in loaders] == [('coin',)] * 3
    assert [loader.ann_file for loader in loaders] == [str(project / 'annotations' / f'{split}.json')
                                                       for split in ('train', 'val', 'val')]
    assert loaders[0].data_root == f'{coins.resolve().as_posix()}/' and loaders[1].data_prefix.img == 'val2017/'
    assert config.val_evaluator.ann_file == loaders[1].ann_file == config.test_evaluator.ann_file
    found = json.loads((project / 'fingerprint.json').read_text())
    assert found['splits'] == {'train': 16, 'val': 4} and found['classes'] == ['coin'] and found['task'] == 'detection'
    assert found['images']['longer']['50'] == 96 and found['images']['channels'] == {'3': 20}
    original = json.loads(annotations(coins)[0].read_text())
    assert found['objects']['train'] == {'coin': sum(not entry['iscrowd'] for entry in original['annotations'])}
    assert json.loads((project / 'annotations' / 'train.json').read_text()) == original  # nothing to mend


def test_the_same_data_give_the_same_bytes(coins, project):
    before = contents(project)
    again = ('detection', '--images', coins, '--annotations', *annotations(coins), '--out', project)
    assert plan(*again, '--overwrite') == 0
    assert contents(project) == before


def test_a_project_is_not_lost(coins, project, capsys):
    again = ('plan', 'detection', '--images', coins, '--annotations', *annotations(coins), '--out', project)
    before = contents(project)
    assert '--overwrite replaces it' in error_of(capsys, *again)
    (project / 'notes.txt').write_text('mine')
    assert 'files that would be lost: notes.txt' in error_of(capsys, *again, '--overwrite')
    (project / 'notes.txt').unlink()
    assert 'not a project of mmkcla plan' in error_of(capsys, *again[:-1], coins)
    assert contents(project) == before


def test_it_trains_and_evaluates(project, tmp_path):
    metrics = train_and_test(project / 'kcla.py', tmp_path / 'work', 1, 'train_dataloader.batch_size=4')
    assert {'coco/bbox_mAP', 'coco/segm_mAP'} <= metrics.keys()


@pytest.mark.slow
def test_the_plan_learns(project, tmp_path):
    metrics = train_and_test(project / 'kcla.py', tmp_path / 'work', 25)
    assert metrics['coco/bbox_mAP_50'] > 0.6


def test_a_gpu_gets_the_full_network(coins, tmp_path):
    def planned(name, *options):
        out = tmp_path / name
        assert plan('detection', '--images', coins / 'train2017', '--annotations', annotations(coins)[0], '--out', out,
                    '--device-memory', 24, *options) == 0
        return check_project(out)
    config = planned('pretrained')
    backbone = config.model.backbone
    assert (backbone.depth, backbone.init_cfg.checkpoint) == (50, 'torchvision://resnet50')
    assert backbone.layer_attention.layer_scale_init == 0. and backbone.frozen_stages == 1
    assert config.optim_wrapper.optimizer.lr == 0.0025 and config.optim_wrapper.optimizer.type == 'SGD'
    assert config.model.data_preprocessor.mean == [123.675, 116.28, 103.53]
    assert config.train_dataloader.num_workers == 4
    config = planned('scratch', '--no-pretrained')
    backbone = config.model.backbone
    assert (backbone.init_cfg, backbone.frozen_stages, backbone.norm_eval) == (None, -1, False)
    assert config.model.data_preprocessor.mean != [123.675, 116.28, 103.53]
    assert planned('small', '--size', 'small').model.backbone.depth == 18


def test_boxes_alone_and_several_classes(tmp_path, capsys):
    data = write_coco(tmp_path / 'data', images=8)
    content = json.loads((data / 'ann.json').read_text())
    for entry in content['annotations'][1:]:
        del entry['segmentation']
    (data / 'ann.json').write_text(json.dumps(content))
    out = tmp_path / 'out'
    assert plan('detection', '--images', data, '--annotations', data / 'ann.json', '--out', out) == 0
    printed = capsys.readouterr().out
    assert 'objects without a mask among others that have one' in printed and 'blue' in printed
    config = check_project(out)
    assert config.model.type == 'FasterRCNN' and config.model.roi_head.bbox_head.num_classes == 2
    assert config.val_evaluator.metric == 'bbox' and config.default_hooks.checkpoint.save_best == 'coco/bbox_mAP'
    assert tuple(config.train_dataloader.dataset.metainfo.classes) == ('blue', 'green')
    with Image.open(out / 'samples.png') as sheet:
        colours = {colour for _, colour in sheet.getcolors(2 ** 24)}
    assert {(255, 160, 0), (0, 170, 255)} <= colours  # a box of each class


def test_a_test_file_is_tested(tmp_path):
    folders = [write_coco(tmp_path / split, images=4, seed=seed) for seed, split in enumerate(('train', 'val', 'test'))]
    out = tmp_path / 'out'
    assert plan('detection', '--images', *folders, '--annotations', *(folder / 'ann.json' for folder in folders),
                '--out', out) == 0
    config = Config.fromfile(out / 'kcla.py')
    assert config.test_dataloader.dataset.ann_file == config.test_evaluator.ann_file == str(
        out / 'annotations' / 'test.json')
    assert config.test_dataloader.dataset.data_prefix.img == 'test/images/'
    assert config.val_dataloader.dataset.data_prefix.img == 'val/images/'


def test_refusals(tmp_path, capsys):
    data = write_coco(tmp_path / 'data')
    common = ('plan', 'detection', '--images', data, '--annotations', data / 'ann.json')
    assert 'no ImageNet weights of the small network' in error_of(capsys, *common, '--out', tmp_path / 'out',
                                                                  '--pretrained')
    assert 'measures nothing' in error_of(capsys, *common, data / 'ann.json', '--out', tmp_path / 'out')
    (data / 'images' / '002.jpg').write_bytes(b'')
    assert 'unreadable images: 1 (002.jpg (the file is empty))' in error_of(capsys, *common, '--out', tmp_path / 'out')
    assert not (tmp_path / 'out').exists() and not list(tmp_path.glob('.out*'))


@pytest.mark.parametrize(('edit', 'cause'), [
    (lambda entry: entry.update(image_id=str(entry['image_id'])), 'annotations whose image_id is of another type'),
    (lambda entry: entry.update(iscrowd=1), 'objects with iscrowd 1')])
def test_why_there_is_no_object(tmp_path, capsys, edit, cause):
    data = write_coco(tmp_path / 'data')
    content = json.loads((data / 'ann.json').read_text())
    for entry in content['annotations']:
        edit(entry)
    (data / 'ann.json').write_text(json.dumps(content))
    message = error_of(capsys, 'plan', 'detection', '--images', data, '--annotations', data / 'ann.json', '--out',
                       tmp_path / 'out')
    assert cause in message
