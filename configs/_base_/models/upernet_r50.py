# UPerNet with a ResNet-50, plain ImageNet weights.
_base_ = './binary_segmentor.py'

model = dict(
    backbone=dict(
        type='mmkcla.LayerAttentionResNet',
        depth=50,
        out_indices=(0, 1, 2, 3),
        init_cfg=dict(type='Pretrained', checkpoint='torchvision://resnet50')),
    decode_head=dict(
        type='UPerHead',
        in_channels=[256, 512, 1024, 2048],
        in_index=[0, 1, 2, 3],
        pool_scales=(1, 2, 3, 6),
        channels=512,
        dropout_ratio=0.1))
