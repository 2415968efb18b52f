_base_ = './binary_seg_256x256.py'

dataset_type = 'mmkcla.KvasirSEGDataset'
data_root = 'data/kvasir_seg'
train_dataloader = dict(dataset=dict(type=dataset_type, data_root=data_root))
val_dataloader = dict(dataset=dict(type=dataset_type, data_root=data_root))
test_dataloader = dict(dataset=dict(type=dataset_type, data_root=data_root))
