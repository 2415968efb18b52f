_base_ = './faster-rcnn_r18-kcla_fpn_coins.py'

model = dict(neck=dict(type='mmkcla.KCLAFPN', layer_attention=dict(type='KCLA', head_channels=16)))
train_dataloader = dict(sampler=dict(seed=None))
