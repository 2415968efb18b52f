_base_ = './binary_seg_256x256.py'

dataset_type = 'mmkcla.ISIC2018Dataset'
data_root = 'data/isic2018'
train_dataloader = dict(dataset=dict(type=dataset_type, data_root=data_root))
val_dataloader = dict(dataset=dict(type=dataset_type, data_root=data_root))
test_dataloader = dict(dataset=dict(type=dataset_type, data_root=data_root))
