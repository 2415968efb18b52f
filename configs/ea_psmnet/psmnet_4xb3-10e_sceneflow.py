# PSMNet's recipe for Scene Flow (arXiv 1803.08669): Adam, lr 1e-3 throughout, 12 crops of 256×512, 10 epochs.
_base_ = ['../_base_/models/psmnet.py', '../_base_/datasets/sceneflow_256x512.py', '../_base_/stereo_runtime.py']

train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=10, val_interval=10)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
optim_wrapper = dict(type='OptimWrapper', optimizer=dict(type='Adam', lr=1e-3, betas=(0.9, 0.999)))
auto_scale_lr = dict(enable=False, base_batch_size=12)
