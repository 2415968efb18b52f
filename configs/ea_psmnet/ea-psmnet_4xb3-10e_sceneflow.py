_base_ = './psmnet_4xb3-10e_sceneflow.py'

model = dict(feature_net=dict(attention=dict(type='mmkcla.EfficientAttention')))
