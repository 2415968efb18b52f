# Semantic FPN with a ResNet-50, plain ImageNet weights.
_base_ = './binary_segmentor.py'

model = dict(
    backbone=dict(
        type='mmkcla.LayerAttentionResNet',
        depth=50,
        out_indices=(0, 1, 2, 3),
        init_cfg=dict(type='Pretrained', checkpoint='torchvision://resnet50')),
    neck=dict(type='FPN', in_channels=[256, 512, 1024, 2048], out_channels=256, num_outs=4),
    decode_head=dict(
        type='FPNHead',
        in_channels=[256, 256, 256, 256],
        in_index=[0, 1, 2, 3],
        feature_strides=[4, 8, 16, 32],
        channels=128,
        dropout_ratio=0.1))
