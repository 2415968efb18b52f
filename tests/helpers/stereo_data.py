"""What the stereo tests share: pairs whose disparity is known, written as data sets."""
import cv2
import numpy as np
from PIL import Image

from mmkcla.stereo.disparity import write_pfm

SMALL = dict(
    type='mmkcla.EAPSMNet', max_disparity=16,
    data_preprocessor=dict(type='mmkcla.StereoDataPreprocessor', mean=[110.] * 3, std=[60.] * 3, bgr_to_rgb=True),
    feature_net=dict(stem_channels=8, stage_channels=(8, 16, 16, 16), stage_blocks=(1, 1, 1, 1), pool_sizes=(8, 4),
                     pool_channels=4, fusion_channels=16, out_channels=8),
    aggregation=dict(type='mmkcla.BasicAggregation', channels=8, pairs=1))
ATTENTION = dict(type='mmkcla.EfficientAttention', num_heads=2)


def small(attention=None, **options):
    return {**SMALL, 'feature_net': {**SMALL['feature_net'], 'attention': attention}, **options}


def shifted_pair(generator, disparity, height=32, width=64):
    """A smooth random texture and what the right camera sees of it: left(x) = right(x − d). uint8, ``(H, W, 3)``."""
    texture = generator.integers(0, 256, (height // 4, width // 4 + 8, 3), dtype=np.uint8)
    texture = cv2.resize(texture, (width + 32, height), interpolation=cv2.INTER_LINEAR)
    return texture[:, :width], texture[:, disparity:disparity + width]


def pair_folder(root, names=('one', 'two'), disparity=5, **size):
    generator = np.random.default_rng(0)
    for folder in ('left', 'right', 'disparity'):
        (root / folder).mkdir(parents=True)
    for name in names:
        left, right = shifted_pair(generator, disparity, **size)
        Image.fromarray(left).save(root / 'left' / f'{name}.png')
        Image.fromarray(right).save(root / 'right' / f'{name}.png')
        write_pfm(root / 'disparity' / f'{name}.pfm', np.full(left.shape[:2], disparity, np.float32))
    return root
