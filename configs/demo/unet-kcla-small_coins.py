# The small KCLA U-Net on the coin photograph's foreground, sized for two CPU cores: 128×128, 120 iterations.
_base_ = [
    '../_base_/models/unet_small.py',
    '../_base_/datasets/isic2017_256x256.py',
    '../_base_/seg_runtime.py',
]

data_root = 'data/coins_isic2017'
scale = (128, 128)
model = dict(
    data_preprocessor=dict(size=scale),
    backbone=dict(layer_attention=dict(type='KCLA', head_channels=16, drop_path=0.)))

train_pipeline = _base_.train_pipeline
train_pipeline[2] = dict(type='Resize', scale=scale, keep_ratio=False)
test_pipeline = _base_.test_pipeline
test_pipeline[1] = dict(type='Resize', scale=scale, keep_ratio=False)
tta_pipeline = _base_.tta_pipeline
tta_pipeline[1]['transforms'][0] = [dict(type='Resize', scale=scale, keep_ratio=False)]
loader = dict(num_workers=0, persistent_workers=False)
train_dataloader = dict(
    sampler=dict(type='InfiniteSampler', shuffle=True, seed=0),
    dataset=dict(data_root=data_root, pipeline=train_pipeline),
    **loader)
val_dataloader = dict(dataset=dict(data_root=data_root, pipeline=test_pipeline), **loader)
test_dataloader = dict(dataset=dict(data_root=data_root, pipeline=test_pipeline), **loader)

max_iters = 120
train_cfg = dict(type='IterBasedTrainLoop', max_iters=max_iters, val_interval=40)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
optim_wrapper = dict(type='OptimWrapper', optimizer=dict(type='AdamW', lr=3e-3, weight_decay=1e-2))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.1, by_epoch=False, begin=0, end=20),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=False, begin=20, end=max_iters)
]
auto_scale_lr = dict(enable=False, base_batch_size=8)
default_hooks = dict(
    timer=dict(type='IterTimerHook'),
    logger=dict(type='LoggerHook', interval=20, log_metric_by_epoch=False),
    param_scheduler=dict(type='ParamSchedulerHook'),
    checkpoint=dict(type='CheckpointHook', by_epoch=False, interval=40, max_keep_ckpts=1),
    sampler_seed=dict(type='DistSamplerSeedHook'),
    visualization=dict(type='SegVisualizationHook'))
log_processor = dict(by_epoch=False, window_size=20)
