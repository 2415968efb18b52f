_base_ = './upernet_r50_1xb8-300e_isic2017-256x256.py'

# On the outputs of res3 and res4, before the head.
model = dict(
    neck=dict(
        type='mmkcla.EfficientAttentionNeck', in_channels=[256, 512, 1024, 2048], levels=(1, 2), key_channels=64))
