_base_ = './faster-rcnn_r18_fpn_coins.py'

model = dict(neck=dict(type='mmkcla.KCLAFPN', layer_attention=dict(type='KCLA', head_channels=16)))
