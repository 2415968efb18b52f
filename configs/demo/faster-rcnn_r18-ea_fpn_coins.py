_base_ = './faster-rcnn_r18_fpn_coins.py'

# On the outputs of res3 and res4.
model = dict(
    neck=[
        dict(type='mmkcla.EfficientAttentionNeck', in_channels=[32, 64, 128, 256], levels=(1, 2), num_heads=2),
        _base_.model.neck,
    ])
