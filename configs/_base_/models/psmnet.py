# PSMNet at the paper's widths (arXiv 1803.08669): stacked hourglasses, disparities below 192 pixels.
max_disparity = 192
model = dict(
    type='mmkcla.EAPSMNet',
    data_preprocessor=dict(
        type='mmkcla.StereoDataPreprocessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True),
    max_disparity=max_disparity,
    feature_net=dict(
        type='mmkcla.StereoFeatureNet',
        stage_channels=(32, 64, 128, 128),
        stage_blocks=(3, 16, 3, 3),
        stage_dilations=(1, 1, 1, 2),
        pool_sizes=(64, 32, 16, 8)),
    aggregation=dict(type='mmkcla.HourglassAggregation', channels=32, stacks=3),
    loss_weights=(0.5, 0.7, 1.0))
