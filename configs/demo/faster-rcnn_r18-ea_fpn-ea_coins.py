_base_ = './faster-rcnn_r18_fpn_coins.py'

model = dict(
    neck=[
        dict(type='mmkcla.EfficientAttentionNeck', in_channels=[32, 64, 128, 256], levels=(1, 2), num_heads=2),
        _base_.model.neck,
        dict(type='mmkcla.EfficientAttentionNeck', in_channels=64, num_levels=5, num_heads=2)
    ])
