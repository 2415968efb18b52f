# CIFAR-10; mmpretrain downloads it at the first run.
data_preprocessor = dict(
    num_classes=10,
    mean=[0.4914 * 255, 0.4822 * 255, 0.4465 * 255],
    std=[0.2023 * 255, 0.1994 * 255, 0.2010 * 255],
    to_rgb=False)
train_dataloader = dict(
    batch_size=128,
    num_workers=4,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(
        type='CIFAR10',
        data_root='data/cifar10',
        split='train',
        pipeline=[
            dict(type='RandomCrop', crop_size=32, padding=4),
            dict(type='RandomFlip', prob=0.5, direction='horizontal'),
            dict(type='PackInputs')
        ]))
val_dataloader = dict(
    batch_size=256,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(type='CIFAR10', data_root='data/cifar10', split='test', pipeline=[dict(type='PackInputs')]))
val_evaluator = dict(type='Accuracy', topk=(1, 5))
test_dataloader = val_dataloader
test_evaluator = val_evaluator
