"""Tables of config families whose members differ by method, depth, data set or detector."""
from __future__ import annotations

from collections.abc import Iterator

Named = tuple[str, str]  # a config's path below configs/, without .py, and its text

LAYER_ATTENTIONS = {'dla-base': 'DLABase', 'dla-light': 'DLALight', 'kcla': 'KCLA', 'linear': 'LinearLayerAttention',
                    'mrla-base': 'MRLABase', 'mrla-light': 'MRLALight', 'softmax': 'SoftmaxLayerAttention'}
KCLA_ABLATIONS = {
    'accumulated-key': "gate_key='accumulated'", 'd4': 'head_channels=4', 'd8': 'head_channels=8',
    'd32': 'head_channels=32', 'd64': 'head_channels=64', 'dynamic-temperature': "temperature='dynamic'",
    'learnable-temperature': "temperature='learnable'", 'no-phi': 'head_mixing=False', 'no-relu': 'relu=False',
    'rla': 'dynamic_value=False', 'scaled-norm': 'scale_by_width=True',
    'temperature-0.5': 'temperature_range=(0.5, 1 / 0.5)', 'temperature-0.9': 'temperature_range=(0.9, 1 / 0.9)',
    'temperature-none': 'temperature_range=(1., 1.)'}

KCLA_FPN = "model = dict(neck=dict(type='mmkcla.KCLAFPN'))"


def backbone(options: str) -> str:
    return f'model = dict(backbone=dict({options}))'


def attention(options: str) -> str:
    return backbone(f'layer_attention=dict({options})')


def attention_neck(levels: int) -> str:
    return f'''model = dict(
    neck=[
        _base_.model.neck,
        dict(type='mmkcla.LayerAttentionNeck', in_channels=256, num_levels={levels}, layer_attention=dict(type='KCLA'))
    ])'''


def efficient_neck(levels: int) -> str:
    return f'''model = dict(
    neck=[_base_.model.neck, dict(type='mmkcla.EfficientAttentionNeck', in_channels=256, num_levels={levels})])'''


SEG_KCLA = attention("type='KCLA', head_channels=16, layer_scale_init=0.")
# folder: {model: its file in _base_/models, or its plain counterpart in the same folder and what differs}
SEGMENTATION: dict[str, dict[str, str | tuple[str, str]]] = {
    'unet': {
        'unet-r34': 'unet_r34', 'unet-r50': 'unet_r50', 'unet-small': 'unet_small', 'unet-s5-d16': 'unet_s5-d16',
        'unet-kcla-r34': ('unet-r34', SEG_KCLA), 'unet-kcla-r50': ('unet-r50', SEG_KCLA),
        'unet-kcla-small': ('unet-small', attention("type='KCLA', head_channels=16"))},
    'deeplabv3plus': {
        'deeplabv3plus_r50-d8': 'deeplabv3plus_r50-d8',
        'deeplabv3plus_r50-kcla-d8': ('deeplabv3plus_r50-d8', SEG_KCLA)},
    'pspnet': {'pspnet_r50-d8': 'pspnet_r50-d8', 'pspnet_r50-kcla-d8': ('pspnet_r50-d8', SEG_KCLA)},
    'semantic_fpn': {
        'fpn_r50': 'fpn_r50', 'fpn_r50_kclafpn': ('fpn_r50', KCLA_FPN),
        'fpn_r50-kcla_kclafpn': ('fpn_r50', '''model = dict(
    backbone=dict(layer_attention=dict(type='KCLA', layer_scale_init=0.)),
    neck=dict(type='mmkcla.KCLAFPN'))'''),
        'fpn_r50_fpn-ea': ('fpn_r50', efficient_neck(4)), 'fpn_r50_fpn-kcla': ('fpn_r50', attention_neck(4))},
    'upernet': {
        'upernet_r50': 'upernet_r50',
        'upernet_r50-ea': ('upernet_r50', '''# On the outputs of res3 and res4, before the head.
model = dict(
    neck=dict(
        type='mmkcla.EfficientAttentionNeck', in_channels=[256, 512, 1024, 2048], levels=(1, 2), key_channels=64))''')},
}

# folder: title, and whether there are configs that start from KCLA ImageNet weights
DETECTORS = {'cascade_rcnn': ('Cascade R-CNN', False), 'faster_rcnn': ('Faster R-CNN', True),
             'mask_rcnn': ('Mask R-CNN', True), 'retinanet': ('RetinaNet', False)}
DETECTOR_LOADERS = '''
# the loader of mmkcla (_scope_), which names unreadable files, by the type that the inferencers of the hosts expect
train_pipeline = [dict(type='LoadImageFromFile', _scope_='mmkcla', backend_args=None), *_base_.train_pipeline[1:]]
test_pipeline = [dict(type='LoadImageFromFile', _scope_='mmkcla', backend_args=None), *_base_.test_pipeline[1:]]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
val_evaluator = dict(type='mmkcla.CocoMetric')
test_evaluator = val_evaluator'''

BIT_FOR_BIT = 'at step 0 the detector is the plain one bit for bit.'
KCLA_FPN_WHY = f"# FPN's top-down addition as a KCLA recurrence; {BIT_FOR_BIT}\n"


def block_plugin(why: str, layer: str, stages: str) -> str:
    return f'''{why}model = dict(
    backbone=dict(
        type='ResNet',
        plugins=[
            dict(
                cfg=dict({layer}, zero_init=True),
                stages=({stages}),
                position='after_conv3')
        ]))'''


EFFICIENT_BLOCKS = block_plugin(
    "# In every block of res3 and res4, after its last convolution (the host's ResNet takes plugins). At step 0 the "
    'detector\n# is the plain one bit for bit (zero_init).\n',
    "type='mmkcla.EfficientAttention', key_channels=64, num_heads=2", 'False, True, True, False')
DOT_PRODUCT_BLOCKS = block_plugin(
    '# Dot-product attention where its n×n matrix fits: res4, n = 50·84 at 800×1333, 71 MB in float32 for each of six '
    'blocks.\n# (At res3, n = 100·167, it would be 1.1 GB for each of four.)\n',
    "type='mmkcla.DotProductAttention2d', key_channels=64", 'False, False, True, False')
TWO_STAGE = ('faster_rcnn', 'mask_rcnn')
# folder, what the name has between the detector and the schedule, base (the detector's folder unless './'), what
# differs, detectors
NECKS = (
    ('kcla_fpn', 'r50_kclafpn', 'r50_fpn', KCLA_FPN_WHY + KCLA_FPN, (*TWO_STAGE, 'retinanet')),
    ('kcla_fpn', 'r50-kcla_kclafpn', 'r50-kcla_fpn', KCLA_FPN, TWO_STAGE),
    ('layer_attention_neck', 'r50_fpn-kcla', 'r50_fpn',
     f'# KCLA whose layers are the levels of the FPN; {BIT_FOR_BIT}\n' + attention_neck(5), TWO_STAGE),
    ('efficient_attention', 'r50-ea_fpn', 'r50_fpn', EFFICIENT_BLOCKS, TWO_STAGE),
    ('efficient_attention', 'r50-nl_fpn', 'r50_fpn', DOT_PRODUCT_BLOCKS, TWO_STAGE),
    ('efficient_attention', 'r50_fpn-ea', 'r50_fpn',
     f'# On every level of the FPN; {BIT_FOR_BIT}\n' + efficient_neck(5), TWO_STAGE),
    ('efficient_attention', 'r50-ea_fpn-ea', './r50-ea_fpn', efficient_neck(5), TWO_STAGE),
)


def configs() -> Iterator[Named]:
    """Yield all configs of all families."""
    yield from _cifar()
    yield from _imagenet()
    yield from _segmentation()
    yield from _detectors()
    yield from _necks()


def _based_on(base: str, text: str, comment: str = '') -> str:
    return f"{comment}_base_ = '{base}'\n\n{text}\n"


def _assembled(*parts: str) -> str:
    return '_base_ = [\n' + ''.join(f"    '../_base_/{part}.py',\n" for part in parts) + ']\n'


def _cifar() -> Iterator[Named]:
    variants = {name: attention(f"type='{type_}'") for name, type_ in LAYER_ATTENTIONS.items()}
    variants['se'] = backbone("block='se_bottleneck'")
    for depth in (20, 56, 110, 164):
        for classes in (10, 100):
            plain = f'resnet{depth}_1xb128-180e_cifar{classes}'
            head = ', head=dict(num_classes=100)' if classes == 100 else ''
            yield f'cifar/{plain}', (
                _assembled('models/cifar_resnet', f'datasets/cifar{classes}', 'schedules/cifar_180e', 'cls_runtime')
                + f'\nmodel = dict(backbone=dict(depth={depth}){head})\n')
            for name, text in variants.items():
                yield f'cifar/{name}-{plain}', _based_on(f'./{plain}.py', text)
    for name, option in KCLA_ABLATIONS.items():
        yield (f'cifar_ablations/kcla-{name}-resnet56_1xb128-180e_cifar100',
               _based_on('../cifar/kcla-resnet56_1xb128-180e_cifar100.py', attention(option)))


def _imagenet() -> Iterator[Named]:
    schedule = '''
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=True, begin=0, end=3, convert_to_iter_based=True),
    dict(type='MultiStepLR', by_epoch=True, milestones=[30, 60, 90], gamma=0.1)
]'''
    for depth in (50, 101):
        plain = f'resnet{depth}_8xb32_in1k'
        yield f'imagenet/{plain}', _based_on(
            f'mmpretrain::resnet/{plain}.py', backbone("type='mmkcla.LayerAttentionResNet'") + schedule,
            f"# The plain counterpart: mmpretrain's ResNet-{depth} recipe on our backbone.\n")
        yield f'imagenet/se-{plain}', _based_on(
            f'./{plain}.py', backbone("type='SEResNet'"),
            f"# mmpretrain's SE-ResNet-{depth} with the recipe of its neighbours here.\n")
        for name, type_ in LAYER_ATTENTIONS.items():
            carry = _carry(depth) if type_ == 'KCLA' else ''
            yield f'imagenet/{name}-{plain}', _based_on(f'./{plain}.py', attention(f"type='{type_}'{carry}"))


def _carry(depth: int) -> str:
    """The paper's code carries once more in stage 3 of ResNet-101."""
    return ', carry_blocks=(11, )' if depth == 101 else ''


def _segmentation() -> Iterator[Named]:
    for folder, models in SEGMENTATION.items():
        for data in ('isic2017', 'isic2018', 'kvasir-seg'):
            recipe = f'1xb8-300e_{data}-256x256'
            for name, base in models.items():
                yield f'{folder}/{name}_{recipe}', (
                    _assembled(f'models/{base}', f'datasets/{data}_256x256', 'schedules/adamw_300e', 'seg_runtime')
                    if isinstance(base, str) else _based_on(f'./{base[0]}_{recipe}.py', base[1]))


def _detectors() -> Iterator[Named]:
    plain_weights = ('# KCLA on plain ImageNet weights: at step 0 the backbone equals the plain one bit for bit '
                     '(layer_scale_init=0.).\n')
    for folder, (title, has_in1k) in DETECTORS.items():
        for depth in (50, 101):
            start = f'{folder}/{folder.replace("_", "-")}_r{depth}'
            base = f'./{folder.replace("_", "-")}_r{depth}_fpn_1x_coco.py'
            yield f'{start}_fpn_1x_coco', _based_on(
                f'mmdet::{start}_fpn_1x_coco.py', backbone("type='mmkcla.LayerAttentionResNet'") + '\n'
                + DETECTOR_LOADERS, f"# The plain counterpart: the host's {title} with a ResNet-{depth}. One line "
                'turns it into any layer attention.\n')
            yield f'{start}-kcla_fpn_1x_coco', _based_on(
                base, attention("type='KCLA', layer_scale_init=0."), plain_weights)
            if has_in1k:
                yield f'{start}-kcla-in1k_fpn_1x_coco', _in1k(base, depth)


def _in1k(base: str, depth: int) -> str:
    comment = ('# KCLA on KCLA ImageNet weights (converted, or trained with mmpretrain), in the paper\'s form.\n'
               + ('# The reference R101 carries again at block 11.\n' if depth == 101 else ''))
    return _based_on(base, f'''model = dict(
    backbone=dict(
        layer_attention=dict(type='KCLA'{_carry(depth)}),
        init_cfg=dict(_delete_=True, type='Pretrained', checkpoint='checkpoints/kcla-resnet{depth}_in1k.pth')))''',
                     comment)


def _necks() -> Iterator[Named]:
    for folder, name, base, text, detectors in NECKS:
        for detector in detectors:
            start = detector.replace('_', '-')
            where = './' if base.startswith('./') else f'../{detector}/'
            yield (f'{folder}/{start}_{name}_1x_coco',
                   _based_on(f'{where}{start}_{base.removeprefix("./")}_1x_coco.py', text))
