# 300 epochs of AdamW from 1e-3, cosine down to 1e-5 at the end.
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=300, val_interval=5)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
optim_wrapper = dict(
    type='OptimWrapper', optimizer=dict(type='AdamW', lr=1e-3, betas=(0.9, 0.999), weight_decay=1e-2))
param_scheduler = [dict(type='CosineAnnealingLR', by_epoch=True, begin=0, end=300, T_max=300, eta_min=1e-5)]
auto_scale_lr = dict(enable=False, base_batch_size=8)

default_hooks = dict(
    timer=dict(type='IterTimerHook'),
    logger=dict(type='LoggerHook', interval=50),
    param_scheduler=dict(type='ParamSchedulerHook'),
    checkpoint=dict(type='CheckpointHook', interval=5, max_keep_ckpts=1, save_best='DSC_pooled', rule='greater'),
    sampler_seed=dict(type='DistSamplerSeedHook'),
    visualization=dict(type='SegVisualizationHook'))
