"""The bytes per pixel that the batch rule counts with are what the networks keep for the backward pass."""
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

from mmkcla.ops import install
from mmkcla.paths import configs_root
from mmkcla.plan.rules import BYTES_PER_PIXEL
from mmkcla.runtime.hosts import import_hosts


def shipped(name):
    model = Config.fromfile(configs_root() / name).model
    model.backbone.init_cfg = None
    return model


def detector(name):
    model = shipped(name)
    model.backbone.update(frozen_stages=-1, norm_eval=False)  # frozen stages keep less
    return model


def classifier(depth, channels):
    return dict(type='ImageClassifier', backbone=dict(type='mmkcla.LayerAttentionResNet', depth=depth,
                                                      layer_attention=dict(type='KCLA')),
                neck=dict(type='GlobalAveragePooling'),
                head=dict(type='LinearClsHead', num_classes=10, in_channels=channels))


MODELS_OF = {
    'detection-small': ('mmdet', lambda: detector('demo/faster-rcnn_r18-kcla_fpn_coins.py'), 256),
    'detection-base': ('mmdet', lambda: detector('faster_rcnn/faster-rcnn_r50-kcla_fpn_1x_coco.py'), 256),
    'unet-small': ('mmseg', lambda: shipped('unet/unet-kcla-small_1xb8-300e_isic2018-256x256.py'), 256),
    'unet-r34': ('mmseg', lambda: shipped('unet/unet-kcla-r34_1xb8-300e_isic2018-256x256.py'), 256),
    'resnet18': ('mmpretrain', lambda: classifier(18, 512), 224),
    'resnet50': ('mmpretrain', lambda: classifier(50, 2048), 224),
    'cifar20': ('mmpretrain', lambda: shipped('cifar/kcla-resnet20_1xb128-180e_cifar10.py'), 64),
}


def kept_bytes(model, images):
    """Bytes of the storages that autograd keeps, without the parameters'."""
    kept = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        maps = model.backbone(images)
        if hasattr(model, 'rpn_head'):
            maps = model.neck(maps)
            outputs = (maps, model.rpn_head(maps))
        else:
            outputs = model.decode_head(maps) if hasattr(model, 'decode_head') else maps
    for parameter in model.parameters():
        kept.pop(parameter.untyped_storage().data_ptr(), None)
    return sum(kept.values()), outputs


@pytest.mark.parametrize('network', BYTES_PER_PIXEL)
def test_bytes_per_pixel(network):
    install()
    scope, build, side = MODELS_OF[network]
    import_hosts([scope], with_models=True)
    init_default_scope(scope)
    model = MODELS.build(build()).train()
    measured, _ = kept_bytes(model, torch.randn(2, 3, side, side))
    assert BYTES_PER_PIXEL[network] == pytest.approx(measured / (2 * side * side), rel=0.05)
