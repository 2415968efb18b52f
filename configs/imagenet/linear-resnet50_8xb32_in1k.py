_base_ = './resnet50_8xb32_in1k.py'

model = dict(backbone=dict(layer_attention=dict(type='LinearLayerAttention')))
