# scikit-learn's digits, enlarged to 16×16.
scale = (16, 16)
data_preprocessor = dict(num_classes=10, mean=[78., 78., 78.], std=[96., 96., 96.], to_rgb=False)
train_dataloader = dict(
    batch_size=64,
    num_workers=0,
    sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(
        type='mmkcla.DigitsDataset',
        split='train',
        pipeline=[
            dict(type='Resize', scale=scale),
            dict(type='RandomCrop', crop_size=16, padding=1),
            dict(type='PackInputs')
        ]))
val_dataloader = dict(
    batch_size=128,
    num_workers=0,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type='mmkcla.DigitsDataset',
        split='test',
        pipeline=[dict(type='Resize', scale=scale), dict(type='PackInputs')]))
val_evaluator = dict(type='Accuracy', topk=(1, ))
test_dataloader = val_dataloader
test_evaluator = val_evaluator
