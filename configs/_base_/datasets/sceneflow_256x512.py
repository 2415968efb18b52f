data_root = 'data/sceneflow'
train_pipeline = [
    dict(type='mmkcla.LoadStereoPair'),
    dict(type='mmkcla.LoadDisparity'),
    dict(type='mmkcla.StereoRandomCrop', size=(256, 512)),
    dict(type='mmkcla.PackStereoInputs'),
]
test_pipeline = [
    dict(type='mmkcla.LoadStereoPair'),
    dict(type='mmkcla.LoadDisparity'),
    dict(type='mmkcla.PackStereoInputs'),
]
train_dataloader = dict(
    batch_size=3,
    num_workers=4,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(
        type='mmkcla.SceneFlowDataset',
        data_root=data_root,
        split='TRAIN',
        rendering='cleanpass',
        pipeline=train_pipeline))
val_dataloader = dict(
    batch_size=1,
    num_workers=4,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type='mmkcla.SceneFlowDataset',
        data_root=data_root,
        split='TEST',
        rendering='cleanpass',
        test_mode=True,
        pipeline=test_pipeline))
test_dataloader = val_dataloader
val_evaluator = dict(type='mmkcla.StereoMetric', max_disparity=192)
test_evaluator = val_evaluator
