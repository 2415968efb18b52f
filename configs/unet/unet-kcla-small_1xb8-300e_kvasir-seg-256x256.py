_base_ = './unet-small_1xb8-300e_kvasir-seg-256x256.py'

model = dict(backbone=dict(layer_attention=dict(type='KCLA', head_channels=16)))
