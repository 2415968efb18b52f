# A U-Net of 1.6 M parameters, from scratch: stem 16 at full resolution, stages 32/64/128/128.
_base_ = './binary_segmentor.py'

model = dict(
    backbone=dict(
        type='mmkcla.LayerAttentionResNet',
        depth=18,
        small_stem=True,
        stem_out=True,
        stem_channels=16,
        stage_channels=(32, 64, 128, 128),
        strides=(2, 2, 2, 2),
        out_indices=(0, 1, 2, 3),
        zero_init_residual=False),
    decode_head=dict(
        type='mmkcla.UNetHead',
        in_channels=(16, 32, 64, 128, 128),
        decoder_channels=(64, 32, 32, 16),
        dropout_ratio=0.))
