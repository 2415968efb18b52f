# KCLA on plain ImageNet weights: at step 0 the backbone equals the plain one bit for bit (layer_scale_init=0.).
_base_ = './cascade-rcnn_r101_fpn_1x_coco.py'

model = dict(backbone=dict(layer_attention=dict(type='KCLA', layer_scale_init=0.)))
