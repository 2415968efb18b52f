# What the segmentors of two classes share: one sigmoid channel, cut at 0.5, BCE + Dice 1:1.
data_preprocessor = dict(
    type='SegDataPreProcessor',
    mean=[123.675, 116.28, 103.53],
    std=[58.395, 57.12, 57.375],
    bgr_to_rgb=True,
    pad_val=0,
    seg_pad_val=255,
    size=(256, 256))
model = dict(
    type='EncoderDecoder',
    data_preprocessor=data_preprocessor,
    decode_head=dict(
        num_classes=2,
        out_channels=1,
        threshold=0.5,
        align_corners=False,
        norm_cfg=dict(type='BN', requires_grad=True),
        loss_decode=[
            dict(type='CrossEntropyLoss', use_sigmoid=True, avg_non_ignore=True, loss_weight=1.0),
            # mmseg's DiceLoss takes the background for the truth of a one-channel head
            dict(type='mmkcla.BinaryDiceLoss', smooth=1., loss_weight=1.0)
        ]),
    train_cfg=dict(),
    test_cfg=dict(mode='whole'))
