_base_ = './deeplabv3plus_r50-d8_1xb8-300e_kvasir-seg-256x256.py'

model = dict(backbone=dict(layer_attention=dict(type='KCLA', head_channels=16, layer_scale_init=0.)))
