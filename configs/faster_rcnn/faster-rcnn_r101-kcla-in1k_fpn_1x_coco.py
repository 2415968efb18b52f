# KCLA on KCLA ImageNet weights (converted, or trained with mmpretrain), in the paper's form.
# The reference R101 carries again at block 11.
_base_ = './faster-rcnn_r101_fpn_1x_coco.py'

model = dict(
    backbone=dict(
        layer_attention=dict(type='KCLA', carry_blocks=(11, )),
        init_cfg=dict(_delete_=True, type='Pretrained', checkpoint='checkpoints/kcla-resnet101_in1k.pth')))
