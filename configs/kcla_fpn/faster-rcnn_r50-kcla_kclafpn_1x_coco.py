_base_ = '../faster_rcnn/faster-rcnn_r50-kcla_fpn_1x_coco.py'

model = dict(neck=dict(type='mmkcla.KCLAFPN'))
