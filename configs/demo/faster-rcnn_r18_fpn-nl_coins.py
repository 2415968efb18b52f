_base_ = './faster-rcnn_r18_fpn_coins.py'

# Dot-product attention on every level: what mmkcla.EfficientAttentionNeck is compared with.
model = dict(
    neck=[
        _base_.model.neck,
        dict(
            type='mmkcla.EfficientAttentionNeck',
            in_channels=64,
            num_levels=5,
            num_heads=2,
            attention='DotProductAttention2d')
    ])
