# KCLA on KCLA ImageNet weights (converted, or trained with mmpretrain), in the paper's form.
_base_ = './mask-rcnn_r50_fpn_1x_coco.py'

model = dict(
    backbone=dict(
        layer_attention=dict(type='KCLA'),
        init_cfg=dict(_delete_=True, type='Pretrained', checkpoint='checkpoints/kcla-resnet50_in1k.pth')))
