_base_ = '../faster_rcnn/faster-rcnn_r50_fpn_1x_coco.py'

# FPN's top-down addition as a KCLA recurrence; at step 0 the detector is the plain one bit for bit.
model = dict(neck=dict(type='mmkcla.KCLAFPN'))
