_base_ = './fpn_r50_1xb8-300e_isic2017-256x256.py'

model = dict(
    neck=[
        _base_.model.neck,
        dict(type='mmkcla.LayerAttentionNeck', in_channels=256, num_levels=4, layer_attention=dict(type='KCLA'))
    ])
