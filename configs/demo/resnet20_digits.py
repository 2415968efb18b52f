# A plain ResNet-20 on scikit-learn's digits, sized for two CPU cores. One line turns it into any layer attention.
_base_ = ['../_base_/models/cifar_resnet.py', '../_base_/datasets/digits_16x16.py', '../_base_/cls_runtime.py']

max_epochs = 16
optim_wrapper = dict(optimizer=dict(type='AdamW', lr=3e-3, weight_decay=1e-2))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.1, by_epoch=False, begin=0, end=20),
    dict(type='CosineAnnealingLR', by_epoch=True, begin=1, end=max_epochs, T_max=max_epochs - 1, eta_min=1e-5)
]
train_cfg = dict(by_epoch=True, max_epochs=max_epochs, val_interval=2)
val_cfg = dict()
test_cfg = dict()
auto_scale_lr = dict(base_batch_size=64)
