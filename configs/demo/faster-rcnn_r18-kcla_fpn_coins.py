# A KCLA Faster R-CNN for two CPU cores: a narrow ResNet-18, an FPN of 64, few proposals, small heads.
_base_ = ['mmdet::_base_/models/faster-rcnn_r50_fpn.py', '../_base_/datasets/coins_detection.py']

norm_cfg = dict(type='BN', requires_grad=True)
model = dict(
    backbone=dict(
        type='mmkcla.KCLAResNet',
        depth=18,
        stem_channels=32,
        base_channels=32,
        layer_attention=dict(type='KCLA', head_channels=16, drop_path=0.),
        frozen_stages=-1,
        norm_eval=False,
        init_cfg=None),
    neck=dict(in_channels=[32, 64, 128, 256], out_channels=64, norm_cfg=norm_cfg),
    rpn_head=dict(in_channels=64, feat_channels=64),
    roi_head=dict(
        bbox_roi_extractor=dict(out_channels=64),
        bbox_head=dict(in_channels=64, fc_out_channels=128, num_classes=1)),
    train_cfg=dict(
        rpn=dict(sampler=dict(num=64)),
        rpn_proposal=dict(nms_pre=200, max_per_img=64),
        rcnn=dict(sampler=dict(num=32))),
    test_cfg=dict(rpn=dict(nms_pre=200, max_per_img=64), rcnn=dict(max_per_img=32)))

train_pipeline = [
    dict(type='LoadImageFromFile', _scope_='mmkcla'),
    dict(type='LoadAnnotations', with_bbox=True),
    dict(type='RandomResize', scale=(128, 128), ratio_range=(0.8, 1.25), keep_ratio=True),
    dict(type='RandomFlip', prob=[0.3, 0.3], direction=['horizontal', 'vertical']),
    dict(type='PhotoMetricDistortion'),
    dict(type='PackDetInputs')
]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
