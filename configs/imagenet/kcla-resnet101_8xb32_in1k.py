_base_ = './resnet101_8xb32_in1k.py'

model = dict(backbone=dict(layer_attention=dict(type='KCLA', carry_blocks=(11, ))))
