"""Data sets of pairs, their transforms, the motorcycle."""
import numpy as np
import pytest
import torch
from mmengine.registry import DATASETS
from PIL import Image
from stereo_data import pair_folder

from mmkcla.errors import UserError
from mmkcla.stereo.disparity import read_disparity, write_pfm
from mmkcla.stereo.metric import stereo_counts, stereo_scores
from mmkcla.stereo.motorcycle import constant_baselines, convert, photographs, split_views
from mmkcla.stereo.transforms import (
    LoadDisparity,
    LoadStereoPair,
    PackStereoInputs,
    StereoColorJitter,
    StereoRandomCrop,
    StereoVerticalFlip,
)

LOAD = [dict(type='mmkcla.LoadStereoPair'), dict(type='mmkcla.LoadDisparity'), dict(type='mmkcla.PackStereoInputs')]


def pairs(root, pipeline=(), **options):
    return DATASETS.build(dict(type='mmkcla.StereoPairDataset', data_root=str(root), pipeline=list(pipeline),
                               **options))


def scene_flow(root, **options):
    return DATASETS.build(dict(type='mmkcla.SceneFlowDataset', data_root=str(root), pipeline=[], **options))


def scene_flow_folder(root, suffix='png'):
    for top, below, names in (('FlyingThings3D', 'TRAIN/A/0000', ('0006', '0007')),
                              ('FlyingThings3D', 'TEST/C/0149', ('0015', )),
                              ('Driving', '35mm_focallength/scene_forwards/fast', ('0001', )),
                              ('Monkaa', 'a_rain_of_stones_x2', ('0000', ))):
        for rendering in ('finalpass', 'cleanpass'):
            for side in ('left', 'right'):
                folder = root / top / f'frames_{rendering}' / below / side
                folder.mkdir(parents=True, exist_ok=True)
                for name in names:
                    (folder / f'{name}.{suffix}').touch()
        for side in ('left', 'right'):
            folder = root / top / 'disparity' / below / side
            folder.mkdir(parents=True)
            for name in names:
                (folder / f'{name}.pfm').touch()
    return root


# layouts --------------------------------------------------------------------------------------------------------------

def test_pairs_are_found_and_packed(tmp_path):
    data = pairs(pair_folder(tmp_path, disparity=5), LOAD)
    assert len(data) == 2
    entry = data[1]
    sample = entry['data_samples']
    assert entry['inputs'].shape == (2, 3, 32, 64) and entry['inputs'].dtype == torch.uint8
    assert sample.name == 'two' and sample.img_shape == (32, 64) and (sample.gt_disparity.data == 5).all()
    # the truth says where the pixels went
    assert torch.equal(entry['inputs'][0, ..., 5:], entry['inputs'][1, ..., :-5])
    bgr = np.asarray(Image.open(tmp_path / 'left' / 'two.png'))[..., ::-1]
    assert np.array_equal(entry['inputs'][0].permute(1, 2, 0).numpy(), bgr)


def test_missing_counterparts_are_reported(tmp_path):
    root = pair_folder(tmp_path, names=('a', 'b', 'c'))
    (root / 'right' / 'b.png').unlink()
    with pytest.raises(UserError, match=r'1 of 3 left images have no counterpart in .*right \(.*left/b.png\)'):
        pairs(root)
    (root / 'left' / 'b.png').unlink()
    (root / 'disparity' / 'c.pfm').rename(root / 'disparity' / 'd.pfm')
    with pytest.raises(UserError, match=r'1 of 2 left images have no counterpart in .*disparity \(.*left/c.png\)'):
        pairs(root)


def test_test_set_without_truth(tmp_path):
    root = pair_folder(tmp_path)
    for path in (root / 'disparity').iterdir():
        path.unlink()
    (root / 'disparity').rmdir()
    with pytest.raises(UserError, match='2 of 2 left images have no counterpart in .*disparity'):
        pairs(root)
    assert 'gt_disparity' not in pairs(root, LOAD, test_mode=True)[0]['data_samples']


def test_no_folder_and_no_images(tmp_path):
    with pytest.raises(UserError, match=r'data_root .*absent is not a folder; it must contain left/, right/ and '
                       r'disparity/ with the same file names \(tools/dataset_converters/motorcycle.py'):
        pairs(tmp_path / 'absent')
    with pytest.raises(UserError, match='no images .* in .*left; it must contain'):
        pairs(tmp_path)
    with pytest.raises(UserError, match='StereoPairDataset: data_root is not set'):
        pairs('')


@pytest.mark.parametrize('suffix', ['png', 'webp'])
def test_scene_flow_layout(tmp_path, suffix):
    root = scene_flow_folder(tmp_path, suffix)
    train = scene_flow(root)
    names = [train[i]['name'] for i in range(len(train))]
    assert names == ['Driving/35mm_focallength/scene_forwards/fast/left/0001', 'FlyingThings3D/TRAIN/A/0000/left/0006',
                     'FlyingThings3D/TRAIN/A/0000/left/0007', 'Monkaa/a_rain_of_stones_x2/left/0000']
    test = scene_flow(root, split='TEST', rendering='cleanpass')
    top = root / 'FlyingThings3D'
    assert len(test) == 1 and {key: test[0][key] for key in ('left_path', 'right_path', 'disparity_path')} == dict(
        left_path=str(top / f'frames_cleanpass/TEST/C/0149/left/0015.{suffix}'),
        right_path=str(top / f'frames_cleanpass/TEST/C/0149/right/0015.{suffix}'),
        disparity_path=str(top / 'disparity/TEST/C/0149/left/0015.pfm'))
    assert scene_flow(top)[0]['name'] == 'TRAIN/A/0000/left/0006'  # one archive alone


def test_scene_flow_missing(tmp_path):
    root = scene_flow_folder(tmp_path)
    (root / 'Monkaa/disparity/a_rain_of_stones_x2/left/0000.pfm').unlink()
    with pytest.raises(UserError, match=r'1 of 4 left images have no disparity; unpack its archive too '
                       r'\(.*Monkaa/frames_finalpass/a_rain_of_stones_x2/left/0000.png\)'):
        scene_flow(root)
    (root / 'Driving/frames_finalpass/35mm_focallength/scene_forwards/fast/right/0001.png').unlink()
    with pytest.raises(UserError, match='1 of 4 left images have no right view; .*/fast/left/0001.png'):
        scene_flow(root)
    with pytest.raises(UserError, match=r'no images of the TEST split in a folder left/ below .*Monkaa/frames_final'):
        scene_flow(root / 'Monkaa', split='TEST')
    with pytest.raises(UserError, match='no folder frames_finalpass in .*disparity; it or its subfolders must contain'):
        scene_flow(root / 'Monkaa' / 'disparity')
    with pytest.raises(UserError, match="split='train' is unknown; choose one of: TRAIN, TEST"):
        scene_flow(root, split='train')
    with pytest.raises(UserError, match="rendering='final' is unknown; choose one of: finalpass, cleanpass"):
        scene_flow(root, rendering='final')


# transforms -----------------------------------------------------------------------------------------------------------

def loaded(height=20, width=40, disparity=6):
    columns = np.tile(np.arange(width, dtype=np.uint8), (height, 1))
    rows = np.tile(np.arange(height, dtype=np.uint8)[:, None], (1, width))
    left = np.stack([columns, rows, rows], -1)
    right = np.stack([columns + np.uint8(disparity), rows, rows], -1)  # right(x) = left(x + d)
    truth = np.full((height, width), disparity, np.float32)
    truth[0] = 0
    return dict(left=left, right=right, disparity=truth, left_path='a.png')


@pytest.mark.parametrize('max_shift', [0, 9])
def test_crop_keeps_left_x_at_right_x_minus_d(max_shift):
    np.random.seed(0)
    crop, seen = StereoRandomCrop((8, 16), max_shift), set()
    for _ in range(60):
        results = crop.transform(loaded())
        left, right, truth = (results[key].astype(int) for key in ('left', 'right', 'disparity'))
        assert left.shape == right.shape == (8, 16, 3) and truth.shape == (8, 16) and results['img_shape'] == (8, 16)
        known = truth > 0
        assert not known[left[..., 1] == 0].any()  # what was unknown stays so
        rows, columns = np.nonzero(known)
        matches = columns - truth[known]
        inside = (matches >= 0) & (matches < 16)
        assert (right[rows[inside], matches[inside]] == left[rows[inside], columns[inside]]).all()
        seen |= set(truth[known])
    assert seen == {6} if max_shift == 0 else {1, 15} <= seen and min(seen) == 1 and max(seen) == 15


def test_crop_larger_than_the_image():
    with pytest.raises(UserError, match='a.png has 40×20 pixels, smaller than the crop of 16×32; choose a smaller '
                       'StereoRandomCrop.size'):
        StereoRandomCrop((32, 16)).transform(loaded())


def test_flip_is_of_all_three():
    before, after = loaded(), StereoVerticalFlip(1.).transform(loaded())
    for key in ('left', 'right', 'disparity'):
        assert np.array_equal(after[key], before[key][::-1])
    assert np.array_equal(StereoVerticalFlip(0.).transform(loaded())['left'], before['left'])
    assert PackStereoInputs().transform(after)['inputs'].shape == (2, 3, 20, 40)


def test_jitter_is_the_same_for_both_views_unless_asymmetric():
    torch.manual_seed(0)
    np.random.seed(0)
    results = loaded(disparity=0)
    both = StereoColorJitter(asymmetric=0.).transform(dict(results))
    assert np.array_equal(both['left'], both['right']) and not np.array_equal(both['left'], results['left'])
    each = StereoColorJitter(asymmetric=1.).transform(dict(results))
    assert not np.array_equal(each['left'], each['right']) and each['left'].dtype == np.uint8
    assert np.array_equal(each['disparity'], results['disparity'])


def test_occlusions(tmp_path):
    root = pair_folder(tmp_path, names=('a', ))
    (root / 'occlusion').mkdir()
    mask = np.zeros((32, 64), np.uint8)
    mask[:, :7] = 255
    Image.fromarray(mask).save(root / 'occlusion' / 'a.png')
    drop = [LOAD[0], dict(type='mmkcla.LoadDisparity', occluded='drop'), LOAD[2]]
    truth = pairs(root, drop)[0]['data_samples'].gt_disparity.data[0]
    assert (truth[:, :7] == 0).all() and (truth[:, 7:] == 5).all()
    assert (pairs(root, LOAD)[0]['data_samples'].gt_disparity.data == 5).all()
    (root / 'occlusion' / 'a.png').unlink()
    (root / 'occlusion').rmdir()
    with pytest.raises(UserError, match=r"LoadDisparity\(occluded='drop'\): the pair a has no occlusion mask"):
        pairs(root, drop)[0]


def test_sizes_that_differ(tmp_path):
    root = pair_folder(tmp_path, names=('a', ))
    write_pfm(root / 'disparity' / 'a.pfm', np.ones((4, 5)))
    results = LoadStereoPair().transform(dict(left_path=str(root / 'left/a.png'), right_path=str(root / 'right/a.png'),
                                              disparity_path=str(root / 'disparity/a.pfm')))
    with pytest.raises(UserError, match='the disparity .*a.pfm has 5×4 pixels, its image .*left/a.png has 64×32'):
        LoadDisparity().transform(results)
    Image.new('RGB', (9, 8)).save(root / 'right' / 'a.png')
    with pytest.raises(UserError, match='the views differ in size: .*left/a.png has 64×32 pixels, .*a.png has 9×8'):
        LoadStereoPair().transform(dict(left_path=str(root / 'left/a.png'), right_path=str(root / 'right/a.png')))
    (root / 'right' / 'a.png').write_bytes(b'')
    with pytest.raises(UserError, match='cannot read the image .*right/a.png: the file is empty'):
        LoadStereoPair().transform(dict(left_path=str(root / 'left/a.png'), right_path=str(root / 'right/a.png')))


# the motorcycle -------------------------------------------------------------------------------------------------------

def test_motorcycle_is_written_once_and_read(tmp_path):
    out = tmp_path / 'motorcycle'
    text = convert(out, scale=4)
    assert 'train 92×125 pixels' in text and 'the median of train' in text
    before = {path: path.read_bytes() for path in out.rglob('*.*')}
    assert 'already there' in convert(out, scale=4)
    assert 'train' in convert(out, scale=4, overwrite=True)
    assert {path: path.read_bytes() for path in out.rglob('*.*')} == before
    with pytest.raises(UserError, match=r'was written with scale 4 \(requested: 2\); choose another folder, or'):
        convert(out, scale=2)
    entry = pairs(out / 'test', LOAD)[0]
    truth = entry['data_samples'].gt_disparity.data[0]
    assert (truth[:, :16] == 0).all() and truth.max() < 16 and entry['inputs'].shape == (2, 3, 125, 93)
    (out / 'train' / 'left' / 'motorcycle.png').unlink()
    with pytest.raises(UserError, match='is damaged: train/left/motorcycle.png is missing; write it again with --over'):
        convert(out, scale=4)
    (out / 'mine.txt').write_text('x')
    with pytest.raises(UserError, match='mine.txt is not part of the motorcycle data set and would be lost'):
        convert(out, scale=4, overwrite=True)
    with pytest.raises(UserError, match='scale=3 is not supported; choose one of: 1, 2, 4'):
        convert(out, scale=3)
    (tmp_path / 'else').mkdir()
    (tmp_path / 'else' / 'a').touch()
    with pytest.raises(UserError, match='else is neither empty nor a motorcycle data set'):
        convert(tmp_path / 'else')


def test_halves_share_no_pixel_and_no_scored_point(tmp_path):
    left, right, disparity = photographs()
    splits = split_views(left, right, disparity, 1)
    half = 370
    for name, view in (('left', left), ('right', right)):
        assert np.array_equal(np.concatenate([splits['train'][name], splits['test'][name]], 1), view)
    assert splits['train']['left'].shape[1] == half
    scored = splits['test']['disparity'] > 0
    columns = np.nonzero(scored)[1]
    assert (columns - splits['test']['disparity'][scored] >= 0).all()  # its match lies in the test half
    # the disparity fits the photographs: matched pixels are alike, far more than pixels of the same column
    rows, columns = np.nonzero(disparity > 0)
    matches = np.rint(columns - disparity[rows, columns]).astype(int)
    inside = matches >= 0
    rows, columns, matches = rows[inside], columns[inside], matches[inside]
    difference = np.abs(left[rows, columns].astype(int) - right[rows, matches]).mean()
    assert difference < 0.5 * np.abs(left[rows, columns].astype(int) - right[rows, columns]).mean()


def test_baselines_are_what_the_metric_says():
    splits = split_views(*photographs(), 2)
    for median, error, bad in constant_baselines(splits).values():
        truth = torch.from_numpy(splits['test']['disparity'])
        scores = stereo_scores([stereo_counts(torch.full_like(truth, median), truth)])
        assert (scores['EPE'], scores['3px']) == pytest.approx((error, bad))


def test_half_size_disparity_is_halved(tmp_path):
    convert(tmp_path / 'm', scale=2)
    truth = read_disparity(tmp_path / 'm/train/disparity/motorcycle.pfm')
    np.testing.assert_array_equal(truth, photographs()[2][:500:2, :370:2] / 2)
