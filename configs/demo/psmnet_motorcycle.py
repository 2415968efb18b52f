# A narrow PSMNet on the halves of one photographed pair, sized for two CPU cores.
_base_ = ['../_base_/models/psmnet.py', '../_base_/datasets/motorcycle_96x128.py', '../_base_/stereo_runtime.py']

model = dict(
    max_disparity=32,
    feature_net=dict(
        stem_channels=16,
        stage_channels=(16, 32, 32, 32),
        stage_blocks=(1, 2, 1, 1),
        pool_sizes=(16, 8),
        pool_channels=8,
        fusion_channels=32,
        out_channels=16),
    aggregation=dict(_delete_=True, type='mmkcla.BasicAggregation', channels=16, pairs=3),
    loss_weights=(1.0, ))

max_iters = 500
train_cfg = dict(type='IterBasedTrainLoop', max_iters=max_iters, val_interval=100)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
optim_wrapper = dict(type='OptimWrapper', optimizer=dict(type='Adam', lr=2e-3, betas=(0.9, 0.999)))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.1, by_epoch=False, begin=0, end=20),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=False, begin=20, end=max_iters)
]
auto_scale_lr = dict(enable=False, base_batch_size=4)
default_hooks = dict(
    logger=dict(type='LoggerHook', interval=20, log_metric_by_epoch=False),
    checkpoint=dict(type='CheckpointHook', by_epoch=False, interval=100, max_keep_ckpts=1))
log_processor = dict(by_epoch=False, window_size=20)
