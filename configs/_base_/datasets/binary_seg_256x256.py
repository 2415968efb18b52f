# Two classes at 256×256: what the medical data sets share. Prepared by tools/dataset_converters.
dataset_type = 'mmkcla.ISIC2017Dataset'
data_root = 'data/isic2017'
crop_size = (256, 256)

train_pipeline = [
    dict(type='LoadImageFromFile', _scope_='mmkcla'),
    dict(type='mmkcla.LoadBinaryMask'),
    dict(type='Resize', scale=crop_size, keep_ratio=False),
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),
    dict(type='RandomFlip', prob=0.5, direction='vertical'),
    # the angle is drawn per sample; the corners become black background
    dict(type='RandomRotate', prob=0.5, degree=180, pad_val=0, seg_pad_val=0),
    dict(type='PackSegInputs')
]
# the mask is loaded after the resize: it stays at the image's own size, where the metric compares
test_pipeline = [
    dict(type='LoadImageFromFile', _scope_='mmkcla'),
    dict(type='Resize', scale=crop_size, keep_ratio=False),
    dict(type='mmkcla.LoadBinaryMask'),
    dict(type='PackSegInputs')
]
tta_pipeline = [
    dict(type='LoadImageFromFile', _scope_='mmkcla'),
    dict(
        type='TestTimeAug',
        transforms=[[dict(type='Resize', scale=crop_size, keep_ratio=False)],
                    [
                        dict(type='RandomFlip', prob=0., direction='horizontal'),
                        dict(type='RandomFlip', prob=1., direction='horizontal'),
                        dict(type='RandomFlip', prob=1., direction='vertical')
                    ], [dict(type='mmkcla.LoadBinaryMask')], [dict(type='PackSegInputs')]])
]
tta_model = dict(type='mmkcla.BinarySegTTAModel')

train_dataloader = dict(
    batch_size=8,
    num_workers=4,
    persistent_workers=True,
    drop_last=True,
    sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(type=dataset_type, data_root=data_root, split='train', pipeline=train_pipeline))
val_dataloader = dict(
    batch_size=8,
    num_workers=4,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(type=dataset_type, data_root=data_root, split='val', pipeline=test_pipeline, test_mode=True))
# selection is on val, the result is on test: never the same images
test_dataloader = dict(
    batch_size=8,
    num_workers=4,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(type=dataset_type, data_root=data_root, split='test', pipeline=test_pipeline, test_mode=True))
val_evaluator = dict(type='mmkcla.BinarySegMetric', threshold=0.5, bootstrap=0)
# more scores: distances=True (HD95, HD95_pooled, ASD, ASSD), structure=True (MAE, S-, E- and weighted F-measure),
# boundary_f1=True, polyp_protocol=True; see docs/segmentation-metrics.md
test_evaluator = dict(type='mmkcla.BinarySegMetric', threshold=0.5)
