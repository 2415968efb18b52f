"""The inferencers and functions of mmdet, mmseg and mmpretrain take our configs, shipped or left by a training."""
import copy
import functools
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from coins_data import small_coins
from mmengine.config import Config
from mmengine.registry import DefaultScope

import mmkcla
from mmkcla.cli import main
from mmkcla.datasets.segmentation.converters.isic import convert_isic2017
from mmkcla.datasets.segmentation.samples import make_samples
from mmkcla.datasets.transforms import InferencerLoader, LoadImageFromFile

mmkcla.use_torchvision_ops()

ROOT = Path(__file__).parents[2]
CONFIGS = sorted(path.relative_to(ROOT / 'configs') for path in (ROOT / 'configs').rglob('*.py')
                 if '_base_' not in path.parts)
OF_HOSTS = [path for path in CONFIGS if 'psmnet' not in path.name]
HOSTS = ('mmdet', 'mmseg', 'mmpretrain')
FAMILIES = [  # one of each kind of network; the slow test runs the others
    'demo/faster-rcnn_r18-kcla_kclafpn_coins.py', 'demo/mask-rcnn_r18-kcla_fpn_coins.py',
    'demo/faster-rcnn_r18-ea_fpn-ea_coins.py', 'demo/unet-kcla-small_coins.py',
    'unet/unet-kcla-r34_1xb8-300e_kvasir-seg-256x256.py',
    'semantic_fpn/fpn_r50-kcla_kclafpn_1xb8-300e_isic2018-256x256.py',
    'demo/kcla-resnet20_digits.py', 'cifar/dla-light-resnet20_1xb128-180e_cifar100.py',
    'cifar_ablations/kcla-rla-resnet56_1xb128-180e_cifar100.py', 'imagenet/kcla-resnet50_8xb32_in1k.py']


@functools.cache
def read(path: Path) -> Config:
    """A config, not to be changed; read by the tests and not at import, which each worker does."""
    return Config.fromfile(ROOT / 'configs' / path)


@functools.cache
def of_host(host: str) -> list[Path]:
    return [path for path in OF_HOSTS if read(path).default_scope == host]


@pytest.fixture(autouse=True)
def own_scope():
    """The inferencers set mmengine's default scope; leave it as it was."""
    yield
    DefaultScope._instance_dict.clear()


@pytest.fixture(scope='module')
def image(tmp_path_factory):
    path = tmp_path_factory.mktemp('image') / 'a.png'
    cv2.imwrite(str(path), np.random.default_rng(0).integers(0, 255, (60, 80, 3), dtype=np.uint8))
    return str(path)


def answers(host: str, config: str, image: str, checkpoint: str | None = None) -> list:
    """The host's inferencer on a path and on an array, then its functions on both."""
    pixels = cv2.imread(image)
    if host == 'mmseg':
        from mmseg.apis import MMSegInferencer, inference_model, init_model
        client = MMSegInferencer(config, checkpoint, device='cpu', show_progress=False)
        found = [client(each)['predictions'] for each in (image, pixels)]
        model = init_model(config, checkpoint, device='cpu')
        return found + [inference_model(model, each).pred_sem_seg.data[0].numpy() for each in (image, pixels)]
    if host == 'mmdet':
        from mmdet.apis import DetInferencer, inference_detector, init_detector
        client = DetInferencer(config, checkpoint, device='cpu', show_progress=False)
        found = [np.array(client(each)['predictions'][0]['bboxes']) for each in (image, pixels)]
        model = init_detector(config, checkpoint, device='cpu')
        return found + [inference_detector(model, each).pred_instances.bboxes.numpy() for each in (image, pixels)]
    from mmpretrain import ImageClassificationInferencer, get_model
    client = ImageClassificationInferencer(config, checkpoint or False, device='cpu')
    found = [client(each)[0]['pred_scores'] for each in (image, pixels)]
    client = ImageClassificationInferencer(get_model(config, checkpoint or False, device='cpu'))
    return found + [client(each)[0]['pred_scores'] for each in (image, pixels)]


def check(host: str, config: str, image: str, checkpoint: str | None = None) -> list:
    torch.manual_seed(0)
    found = answers(host, config, image, checkpoint)
    assert found[0].shape == (60, 80) if host == 'mmseg' else found[0].ndim == dict(mmdet=2, mmpretrain=1)[host]
    assert np.isfinite(found[0]).all()
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[2], found[3])  # a path, and its pixels
    return found


def test_each_config_is_of_a_host():
    assert all(map(of_host, HOSTS))
    assert sum(len(of_host(host)) for host in HOSTS) == len(OF_HOSTS) > 190


@pytest.mark.parametrize('host', HOSTS)
def test_pipeline_of_each_config(host, image):
    """The inferencer prepares an image by the test pipeline of each config, without ground truth."""
    from mmengine.registry import init_default_scope
    if host == 'mmseg':
        from mmseg.apis import MMSegInferencer as Client
    elif host == 'mmdet':
        from mmdet.apis import DetInferencer as Client
    else:
        from mmpretrain import ImageClassificationInferencer as Client
    init_default_scope(host)
    client, seen = Client.__new__(Client), set()
    for path in of_host(host):
        pipeline = client._init_pipeline(copy.deepcopy(read(path)))
        if repr(pipeline) in seen:
            continue
        seen.add(repr(pipeline))
        if host == 'mmpretrain':
            pixels = cv2.imread(image)
            prepared = pipeline(dict(img=pixels, img_shape=pixels.shape[:2], ori_shape=pixels.shape[:2]))
        else:
            loader = pipeline.transforms[0]
            assert isinstance(loader if host == 'mmseg' else loader.from_file, LoadImageFromFile), path
            prepared = pipeline(image)
        assert prepared['inputs'].shape[0] == 3 and prepared['data_samples'].ori_shape == (60, 80), path


@pytest.mark.parametrize('path', FAMILIES)
def test_a_config_of_each_family(path, image):
    check(read(Path(path)).default_scope, str(ROOT / 'configs' / path), image)


@pytest.mark.slow
@pytest.mark.parametrize('path', [path for path in OF_HOSTS if path.as_posix() not in FAMILIES], ids=str)
def test_each_config(path, image):
    check(read(path).default_scope, str(ROOT / 'configs' / path), image)


SHORT = ['train_cfg.max_iters=2', 'train_cfg.val_interval=2', 'train_dataloader.batch_size=2']
TRAININGS = {
    'mmdet': ('faster-rcnn_r18-kcla_fpn_coins', 'iter_2.pth', [
        *SHORT, 'val_dataloader.batch_size=2', 'model.backbone.base_channels=16', 'model.backbone.stem_channels=16',
        'model.neck.in_channels=[16,32,64,128]']),
    'mmseg': ('unet-kcla-small_coins', 'iter_2.pth', SHORT),
    'mmpretrain': ('kcla-resnet20_digits', 'epoch_1.pth', [
        'train_cfg.max_epochs=1', 'train_cfg.val_interval=1', 'train_dataloader.batch_size=512',
        'param_scheduler=[]', 'default_hooks.checkpoint.interval=1']),
}


@pytest.fixture(scope='module')
def workshop(tmp_path_factory):
    folder = tmp_path_factory.mktemp('trainings')
    small_coins(folder / 'data' / 'coins')
    make_samples(folder / 'raw', 'isic2017', count=(4, 2, 2))
    convert_isic2017(folder / 'raw', folder / 'data' / 'coins_isic2017', progress=False)
    return folder


@pytest.mark.parametrize('host', TRAININGS)
def test_config_and_checkpoint_of_a_training(host, workshop, monkeypatch, image):
    """With weights, the inferencer and the functions agree with each other."""
    monkeypatch.chdir(workshop)
    name, last, options = TRAININGS[host]
    assert main(['train', name, '--work-dir', host, '--cfg-options', *options]) == 0
    found = check(host, f'{host}/{name}.py', image, f'{host}/{last}')
    assert all(np.allclose(one, found[0], rtol=0, atol=1e-4) for one in found[1:])
    assert "_scope_='mmkcla'" in (workshop / host / f'{name}.py').read_text() or host == 'mmpretrain'


def test_inferencer_loader_takes_what_mmseg_gives(image):
    pixels = cv2.imread(image)
    for given in (image, pixels, dict(img=pixels), dict(img_path=image)):
        results = InferencerLoader()(given)
        assert np.array_equal(results['img'], pixels)
        assert results['img_shape'] == results['ori_shape'] == (60, 80)
    assert InferencerLoader(to_float32=True)(pixels)['img'].dtype == np.float32
    deep = InferencerLoader(bits=12)(np.full((2, 3, 3), 4095, np.uint16))['img']
    assert deep.dtype == np.uint8 and (deep == 255).all()
    with pytest.raises(TypeError, match='a path, an array or a dict, not int'):
        InferencerLoader()(3)
