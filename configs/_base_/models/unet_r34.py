# A U-Net on a ResNet-34 with plain ImageNet weights; the stem's map (half resolution) is the first skip.
_base_ = './binary_segmentor.py'

model = dict(
    backbone=dict(
        type='mmkcla.LayerAttentionResNet',
        depth=34,
        stem_out=True,
        out_indices=(0, 1, 2, 3),
        init_cfg=dict(type='Pretrained', checkpoint='torchvision://resnet34')),
    decode_head=dict(
        type='mmkcla.UNetHead',
        in_channels=(64, 64, 128, 256, 512),
        decoder_channels=(256, 128, 64, 32),
        dropout_ratio=0.))
