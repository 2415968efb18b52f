_base_ = './resnet50_d8.py'

model = dict(
    decode_head=dict(
        type='PSPHead', in_channels=2048, in_index=3, channels=512, pool_scales=(1, 2, 3, 6), dropout_ratio=0.1))
