"""Segmentation: the data set of images and masks, its checks, and its converters."""
