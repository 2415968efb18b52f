# The plain counterpart: the host's RetinaNet with a ResNet-50. One line turns it into any layer attention.
_base_ = 'mmdet::retinanet/retinanet_r50_fpn_1x_coco.py'

model = dict(backbone=dict(type='mmkcla.LayerAttentionResNet'))

# the loader of mmkcla (_scope_), which names unreadable files, by the type that the inferencers of the hosts expect
train_pipeline = [dict(type='LoadImageFromFile', _scope_='mmkcla', backend_args=None), *_base_.train_pipeline[1:]]
test_pipeline = [dict(type='LoadImageFromFile', _scope_='mmkcla', backend_args=None), *_base_.test_pipeline[1:]]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
val_evaluator = dict(type='mmkcla.CocoMetric')
test_evaluator = val_evaluator
