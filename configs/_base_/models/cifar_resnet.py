# A CIFAR ResNet with bottleneck blocks (9n + 2 layers), 256 channels at the end.
model = dict(
    type='ImageClassifier',
    backbone=dict(type='mmkcla.CifarLayerAttentionResNet', depth=20),
    neck=dict(type='GlobalAveragePooling'),
    head=dict(
        type='LinearClsHead', num_classes=10, in_channels=256, loss=dict(type='CrossEntropyLoss', loss_weight=1.0)))
