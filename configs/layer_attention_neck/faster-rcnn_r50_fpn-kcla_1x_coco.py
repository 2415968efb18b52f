_base_ = '../faster_rcnn/faster-rcnn_r50_fpn_1x_coco.py'

# KCLA whose layers are the levels of the FPN; at step 0 the detector is the plain one bit for bit.
model = dict(
    neck=[
        _base_.model.neck,
        dict(type='mmkcla.LayerAttentionNeck', in_channels=256, num_levels=5, layer_attention=dict(type='KCLA'))
    ])
