# The plain counterpart: mmpretrain's ResNet-50 recipe on our backbone.
_base_ = 'mmpretrain::resnet/resnet50_8xb32_in1k.py'

model = dict(backbone=dict(type='mmkcla.LayerAttentionResNet'))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=True, begin=0, end=3, convert_to_iter_based=True),
    dict(type='MultiStepLR', by_epoch=True, milestones=[30, 60, 90], gamma=0.1)
]
