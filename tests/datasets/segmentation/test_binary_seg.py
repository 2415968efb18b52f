"""Masks and data sets of two classes."""
import numpy as np
import pytest
from mmengine.registry import DATASETS, TRANSFORMS
from PIL import Image

from mmkcla.datasets.transforms import LoadBinaryMask
from mmkcla.errors import UserError


def save(path, array, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(array, dtype=np.uint8)).save(path, **options)
    return str(path)


def load(path, **options):
    return LoadBinaryMask(**options).transform(dict(seg_map_path=str(path), seg_fields=[]))['gt_seg_map']


TRUTH = np.array([[0, 1, 1], [0, 0, 1]], dtype=np.uint8)


@pytest.mark.parametrize(('stored', 'threshold'), [
    (TRUTH, None), (TRUTH * 255, 127), (TRUTH * 200 + 20, 127), (np.stack([TRUTH * 255] * 3, -1), 127),
    (np.stack([TRUTH] * 3, -1), None),
    (np.dstack([TRUTH * 255, TRUTH * 255, TRUTH * 255, np.full_like(TRUTH, 255)]), 127),
], ids=['0/1', '0/255', 'grey edges', 'rgb', 'rgb 0/1', 'rgba'])
def test_masks_that_are_read(tmp_path, stored, threshold):
    mask = load(save(tmp_path / 'm.png', stored), threshold=threshold)
    assert mask.dtype == np.uint8 and np.array_equal(mask, TRUTH)


def test_16_bit_mask(tmp_path):
    Image.fromarray(TRUTH.astype(np.uint16) * 65535).save(tmp_path / 'm.png')
    assert np.array_equal(load(tmp_path / 'm.png', threshold=32767), TRUTH)


def test_masks_that_are_refused(tmp_path):
    with pytest.raises(UserError, match=r'm.png has the values 0, 255, but 0 and 1 are expected; set LoadBinaryM'):
        load(save(tmp_path / 'm.png', TRUTH * 255))
    with pytest.raises(UserError, match=r'b.png contains 0 and 1, so .* would make it empty'):
        load(save(tmp_path / 'b.png', TRUTH), threshold=127)
    Image.fromarray(TRUTH.astype(np.uint16) * 20000).save(tmp_path / 'deep.png')
    with pytest.raises(UserError, match=r'deep.png has values up to 20000 \(16 bits\), but LoadBinaryMask'):
        load(tmp_path / 'deep.png', threshold=127)
    assert not load(save(tmp_path / 'none.png', TRUTH * 0), threshold=127).any()
    (tmp_path / 'none.png').unlink()
    colour = np.dstack([TRUTH * 255, TRUTH * 0, TRUTH * 0])
    with pytest.raises(UserError, match=r'c.png is coloured; two-class masks must be grey'):
        load(save(tmp_path / 'c.png', colour), threshold=127)
    with pytest.raises(UserError, match=r'cannot read the mask .*none.png: no such file'):
        load(tmp_path / 'none.png')
    (tmp_path / 'bad.png').write_bytes(b'not an image')
    with pytest.raises(UserError, match=r'cannot read the mask .*bad.png: it is damaged'):
        load(tmp_path / 'bad.png')
    whole = (tmp_path / 'm.png').read_bytes()
    (tmp_path / 'cut.png').write_bytes(whole[:-12])
    with pytest.raises(UserError, match=r'cut.png: the PNG is truncated'):
        load(tmp_path / 'cut.png')
    results = dict(seg_map_path=save(tmp_path / 's.png', TRUTH), img_path='a.jpg', ori_shape=(4, 3))
    with pytest.raises(UserError, match=r's.png has 3×2 pixels, but its image a.jpg has 3×4'):
        LoadBinaryMask().transform(results)


def prepared(root, stems=('b', 'a'), split='train'):
    for stem, suffix in zip(stems, ('.jpg', '.png'), strict=True):
        save(root / 'images' / split / f'{stem}{suffix}', np.zeros((2, 3, 3)))
        save(root / 'masks' / split / f'{stem}.png', TRUTH)
    return root


@pytest.mark.parametrize(('name', 'classes'), [
    ('ISIC2017Dataset', ('background', 'lesion')), ('ISIC2018Dataset', ('background', 'lesion')),
    ('KvasirSEGDataset', ('background', 'polyp'))])
def test_dataset_pairs_by_name(tmp_path, name, classes):
    prepared(tmp_path)
    data = DATASETS.build(dict(type=f'mmkcla.{name}', data_root=str(tmp_path), split='train', pipeline=[]))
    assert data.metainfo['classes'] == classes and len(data) == 2
    for entry in (data.get_data_info(i) for i in range(2)):
        image, mask = entry['img_path'], entry['seg_map_path']
        assert image.split('/')[-1][0] == mask.split('/')[-1][0] and '/masks/train/' in mask


def test_dataset_names_what_is_missing(tmp_path):
    build = lambda **kw: DATASETS.build(dict(  # noqa: E731
        type='mmkcla.KvasirSEGDataset', data_root=str(tmp_path), pipeline=[], **kw))
    with pytest.raises(UserError, match=r'no images \(.jpg .*\) in .*images/train, which does not exist; create'):
        build(split='train')
    prepared(tmp_path)
    (tmp_path / 'masks' / 'train' / 'a.png').unlink()
    with pytest.raises(UserError, match=r'1 of 2 images have no mask in .*masks/train \(a.png\)'):
        build(split='train')


def test_rotation_is_drawn_per_sample(tmp_path):
    """The reference draws one angle a process."""
    rotate = TRANSFORMS.build(dict(type='mmseg.RandomRotate', prob=1., degree=180, pad_val=0, seg_pad_val=0))
    image = np.random.default_rng(0).integers(0, 255, (16, 16, 3), dtype=np.uint8)
    turned = {rotate(dict(img=image.copy(), seg_fields=[]))['img'].tobytes() for _ in range(8)}
    assert len(turned) == 8


def test_only_an_image_of_an_inferencer_may_lack_its_mask():
    """The inferencers of mmseg pass an image alone; a sample of a data set without a mask is an error, as before."""
    alone = dict(img_path='a.png')
    assert LoadBinaryMask()(dict(alone)) == alone
    for missing in ({}, {'seg_map_path': None}):
        with pytest.raises(UserError, match=r'gives no mask \(seg_map_path\) for the image a.png; set the mask folder'):
            LoadBinaryMask()(dict(alone, sample_idx=0, **missing))
