_base_ = './psmnet_motorcycle.py'

model = dict(feature_net=dict(attention=dict(type='mmkcla.EfficientAttention')))
