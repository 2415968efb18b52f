# One pair, its left half for training: an "epoch" would be a single crop, so the sampler does not end.
data_root = 'data/motorcycle'
train_pipeline = [
    dict(type='mmkcla.LoadStereoPair'),
    dict(type='mmkcla.LoadDisparity'),
    dict(type='mmkcla.StereoRandomCrop', size=(96, 128), max_shift=16),
    dict(type='mmkcla.StereoVerticalFlip'),
    dict(type='mmkcla.StereoColorJitter'),
    dict(type='mmkcla.PackStereoInputs'),
]
test_pipeline = [
    dict(type='mmkcla.LoadStereoPair'),
    dict(type='mmkcla.LoadDisparity'),
    dict(type='mmkcla.PackStereoInputs'),
]
train_dataloader = dict(
    batch_size=4,
    num_workers=0,
    sampler=dict(type='InfiniteSampler', shuffle=True, seed=0),
    dataset=dict(type='mmkcla.StereoPairDataset', data_root=f'{data_root}/train', pipeline=train_pipeline))
val_dataloader = dict(
    batch_size=1,
    num_workers=0,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type='mmkcla.StereoPairDataset', data_root=f'{data_root}/test', test_mode=True, pipeline=test_pipeline))
test_dataloader = val_dataloader
val_evaluator = dict(type='mmkcla.StereoMetric', max_disparity=32)
test_evaluator = val_evaluator
