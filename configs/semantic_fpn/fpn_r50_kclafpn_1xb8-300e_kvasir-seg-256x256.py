_base_ = './fpn_r50_1xb8-300e_kvasir-seg-256x256.py'

model = dict(neck=dict(type='mmkcla.KCLAFPN'))
