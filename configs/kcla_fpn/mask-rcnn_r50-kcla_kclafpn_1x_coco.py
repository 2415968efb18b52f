_base_ = '../mask_rcnn/mask-rcnn_r50-kcla_fpn_1x_coco.py'

model = dict(neck=dict(type='mmkcla.KCLAFPN'))
