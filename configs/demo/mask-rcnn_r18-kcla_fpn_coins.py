# The same with a mask head: boxes and masks.
_base_ = './faster-rcnn_r18-kcla_fpn_coins.py'

model = dict(
    type='MaskRCNN',
    data_preprocessor=dict(pad_mask=True),
    roi_head=dict(
        mask_roi_extractor=dict(
            type='SingleRoIExtractor',
            roi_layer=dict(type='RoIAlign', output_size=14, sampling_ratio=0),
            out_channels=64,
            featmap_strides=[4, 8, 16, 32]),
        mask_head=dict(
            type='FCNMaskHead',
            num_convs=2,
            in_channels=64,
            conv_out_channels=64,
            num_classes=1,
            loss_mask=dict(type='CrossEntropyLoss', use_mask=True, loss_weight=1.0))),
    train_cfg=dict(rcnn=dict(mask_size=28)),
    test_cfg=dict(rcnn=dict(mask_thr_binary=0.5)))

train_pipeline = _base_.train_pipeline
train_pipeline[1] = dict(type='LoadAnnotations', with_bbox=True, with_mask=True)
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_evaluator = dict(metric=['bbox', 'segm'])
test_evaluator = val_evaluator
