_base_ = '../mask_rcnn/mask-rcnn_r50_fpn_1x_coco.py'

# On every level of the FPN; at step 0 the detector is the plain one bit for bit.
model = dict(
    neck=[_base_.model.neck, dict(type='mmkcla.EfficientAttentionNeck', in_channels=256, num_levels=5)])
