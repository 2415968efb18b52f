_base_ = './fpn_r50_1xb8-300e_isic2017-256x256.py'

model = dict(
    backbone=dict(layer_attention=dict(type='KCLA', layer_scale_init=0.)),
    neck=dict(type='mmkcla.KCLAFPN'))
