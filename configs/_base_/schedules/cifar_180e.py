# SGD .1, momentum .9, weight decay 1e-4, batch 128, 180 epochs, ×.1 after 100 and 150.
optim_wrapper = dict(optimizer=dict(type='SGD', lr=0.1, momentum=0.9, weight_decay=1e-4))
param_scheduler = [dict(type='MultiStepLR', by_epoch=True, milestones=[100, 150], gamma=0.1)]
train_cfg = dict(by_epoch=True, max_epochs=180, val_interval=1)
val_cfg = dict()
test_cfg = dict()
auto_scale_lr = dict(base_batch_size=128)
