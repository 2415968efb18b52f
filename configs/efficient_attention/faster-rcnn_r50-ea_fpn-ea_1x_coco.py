_base_ = './faster-rcnn_r50-ea_fpn_1x_coco.py'

model = dict(
    neck=[_base_.model.neck, dict(type='mmkcla.EfficientAttentionNeck', in_channels=256, num_levels=5)])
