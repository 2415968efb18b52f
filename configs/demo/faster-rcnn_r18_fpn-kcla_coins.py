_base_ = './faster-rcnn_r18_fpn_coins.py'

model = dict(
    neck=[
        _base_.model.neck,
        dict(
            type='mmkcla.LayerAttentionNeck',
            in_channels=64,
            num_levels=5,
            layer_attention=dict(type='KCLA', head_channels=16))
    ])
