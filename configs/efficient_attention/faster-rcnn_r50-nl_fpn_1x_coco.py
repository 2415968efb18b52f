_base_ = '../faster_rcnn/faster-rcnn_r50_fpn_1x_coco.py'

# Dot-product attention where its n×n matrix fits: res4, n = 50·84 at 800×1333, 71 MB in float32 for each of six blocks.
# (At res3, n = 100·167, it would be 1.1 GB for each of four.)
model = dict(
    backbone=dict(
        type='ResNet',
        plugins=[
            dict(
                cfg=dict(type='mmkcla.DotProductAttention2d', key_channels=64, zero_init=True),
                stages=(False, False, True, False),
                position='after_conv3')
        ]))
