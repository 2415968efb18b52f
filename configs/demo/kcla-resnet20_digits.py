_base_ = './resnet20_digits.py'

model = dict(backbone=dict(layer_attention=dict(type='KCLA', drop_path=0.)))
