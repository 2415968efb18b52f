# The plain counterpart of faster-rcnn_r18-kcla_fpn_coins.py, and the base of its necks.
# Each seed has its own order of images.
_base_ = './faster-rcnn_r18-kcla_fpn_coins.py'

model = dict(backbone=dict(type='mmkcla.LayerAttentionResNet', layer_attention=None))
train_dataloader = dict(sampler=dict(seed=None))
