_base_ = './binary_seg_256x256.py'
