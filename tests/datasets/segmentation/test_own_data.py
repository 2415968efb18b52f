"""Own data: any folders of images and masks, from their names to a data set that is verified."""
import io
import json
import shutil

import numpy as np
import pytest
from mmengine.registry import DATASETS
from PIL import Image

pytest.importorskip('skimage')

from medical_files import encode, hashes, manifest
from own_folders import crops, own, write

from mmkcla.datasets.check import check_config
from mmkcla.datasets.segmentation.converters.folders import convert_folders
from mmkcla.datasets.segmentation.converters.pairing import Affix, find_affix
from mmkcla.datasets.segmentation.verify import check, verify_once
from mmkcla.errors import UserError

FLAT = [f'a{i}' for i in range(10)]
PATIENTS = [f'p{i // 3}/a{i}' for i in range(10)]


def convert(root, **options):
    outcome = convert_folders(root / 'images', root / 'masks', root / 'out', progress=False, **options)
    report = check(root / 'out')
    assert not report.problems
    return outcome


def names(root, split):
    return sorted(path.stem for path in (root / 'out' / 'images' / split).iterdir())


def build(root, **options):
    return DATASETS.build(dict(type='mmkcla.BinarySegDataset', data_root=str(root / 'out'), pipeline=[], **options))


# --- pairs


def test_flat_folders_keep_images_and_masks(tmp_path):
    own(tmp_path, FLAT)
    outcome = convert(tmp_path)
    assert outcome.text == f'{tmp_path / "out"}: 8 train, 1 val, 1 test images with masks (8:1:1 drawn by seed 0)'
    assert not outcome.problems and not outcome.notes
    for entry in manifest(tmp_path / 'out')['files']:
        crop = crops()[FLAT.index(entry['name'])]
        assert (tmp_path / 'out' / entry['image']).read_bytes() == encode(crop.pixels, 'JPEG')
        mask = np.asarray(Image.open(tmp_path / 'out' / entry['mask']))
        assert np.array_equal(mask, crop.mask) and entry['foreground'] == crop.mask.sum()
    before = hashes(tmp_path / 'out')
    assert convert(tmp_path).text == f'{tmp_path / "out"}: already there' and hashes(tmp_path / 'out') == before
    with pytest.raises(UserError, match='was written with seed 0 .requested: 1.; choose another folder, or use'):
        convert(tmp_path, seed=1)
    assert 'already there' not in convert(tmp_path, seed=1, overwrite=True).text


@pytest.mark.parametrize('mask_name', ['{}_mask.png', '{}_segmentation.png', 'mask_{}.png', 'GT-{}.png'])
def test_one_text_beside_the_names_of_masks(tmp_path, mask_name):
    own(tmp_path, FLAT[:4], mask_name)
    outcome = convert(tmp_path, split='train')
    assert outcome.notes == (f'paired by name: NAME is the image of {mask_name.format("NAME")[:-4]}',)
    assert names(tmp_path, 'train') == FLAT[:4]


@pytest.mark.parametrize(('images', 'masks', 'affix'), [
    (['1', '11', '21'], ['1', '11', '21'], Affix()),
    (['a', 'a_b'], ['a_mask', 'a_b_mask'], Affix(mask=('', '_mask'))),
    (['image_1', 'image_12'], ['mask_1', 'mask_12'], Affix(('image_', ''), ('mask_', ''))),
    (['x_left', 'y_left'], ['x_ids', 'y_ids'], Affix(('', '_left'), ('', '_ids'))),
    ([str(i) for i in range(1, 10)], [str(i) for i in range(11, 20)], Affix()),  # 11 is not the mask of 1
    (['cat'], ['dog'], Affix()),
    (['a1', 'a2', 'a3'], ['b3', 'b4'], Affix()),
])
def test_affix(images, masks, affix):
    assert find_affix(images, masks) == affix


def test_sub_folders_and_suffixes(tmp_path):
    """The same name in two folders, and suffixes of all kinds."""
    for end, part in (('.JPEG', ['p/1', 'q/1']), ('.png', ['p/2']), ('.tif', ['deep/er/1']), ('.bmp', ['3'])):
        own(tmp_path, part, image_end=end)
    for number, crop in enumerate(crops(5)):  # all different
        for path in [sorted((tmp_path / 'images').rglob('*.*'))[number]]:
            Image.fromarray(crop.pixels).resize((40, 30)).save(path)
            mask = tmp_path / 'masks' / path.relative_to(tmp_path / 'images').with_suffix('.png')
            Image.fromarray(crop.mask).resize((40, 30)).save(mask)
    outcome = convert(tmp_path, split='train')
    assert outcome.notes == ('images in sub-folders are named by their path, with __ for /',) and not outcome.problems
    assert sorted(path.name for path in (tmp_path / 'out/images/train').iterdir()) == [
        '3.bmp', 'deep__er__1.tif', 'p__1.jpeg', 'p__2.png', 'q__1.jpeg']
    assert len(build(tmp_path, split='train')) == 5


def test_masks_in_one_folder_of_images_in_several(tmp_path):
    own(tmp_path, ['p1/a', 'p2/b'])
    for path in list((tmp_path / 'masks').rglob('*.png')):
        shutil.move(path, tmp_path / 'masks' / path.name)
    outcome = convert(tmp_path, split='train')
    assert outcome.notes[0] == 'paired by name alone: the sub-folders of images and masks differ'
    assert names(tmp_path, 'train') == ['p1__a', 'p2__b']


def test_what_does_not_pair_is_named(tmp_path):
    own(tmp_path, FLAT)
    (tmp_path / 'masks/a0.png').unlink()
    (tmp_path / 'images/a1.jpg').unlink()
    shutil.copy(tmp_path / 'masks/a2.png', tmp_path / 'masks/a2_1.png')
    shutil.copy(tmp_path / 'images/a3.jpg', tmp_path / 'images/a3.jpeg')
    (tmp_path / 'images/a4.jpg').write_bytes(b'no picture')
    (tmp_path / 'images/notes.csv').write_text('')
    with pytest.raises(UserError, match=r'^images and masks: 5 problems: image without mask: .*strict\)$'):
        convert(tmp_path, split='train', strict=True)
    outcome = convert(tmp_path, split='train')
    assert [str(problem) for problem in outcome.problems] == [
        'corrupt image: images/a4.jpg (not a JPEG, PNG, BMP, WEBP, TIFF, PPM file)',
        'image without mask: images/a0.jpg', 'mask without image: masks/a1.png',
        'name twice: images/a3.jpeg (2 files of this name)', 'name twice: images/a3.jpg (2 files of this name)',
        'several masks of one image: images/a2.jpg (masks/a2_1.png)']
    assert any(note.startswith(f'1 file in {tmp_path / "images"} skipped') for note in outcome.notes)
    assert names(tmp_path, 'train') == ['a5', 'a6', 'a7', 'a8', 'a9']


def test_folders_that_cannot_pair(tmp_path):
    own(tmp_path, FLAT[:4])
    images, masks, out = tmp_path / 'images', tmp_path / 'masks', tmp_path / 'out'
    with pytest.raises(UserError, match=r'^no folder .*/none: it is to hold the masks$'):
        convert_folders(images, tmp_path / 'none', out)
    with pytest.raises(UserError, match=r'^images and masks are both in .*; put the masks into a folder of their own$'):
        convert_folders(images, images, out)
    write(tmp_path / 'text', {'a.txt': b'', 'b.txt': b''})
    with pytest.raises(UserError, match=r'^no masks \(.jpg .*\) in .*text; it has a.txt, b.txt$'):
        convert_folders(images, tmp_path / 'text', out)
    for path in list(masks.iterdir()):
        path.rename(masks / f'z{path.stem[1:]}9.png')
    with pytest.raises(UserError, match=r'^no image of .* has a mask of its name in .*: images a0.jpg, a1.jpg, a2.jpg '
                                        r'and 1 more; masks z09.png, z19.png, z29.png and 1 more. Names must be equal'):
        convert_folders(images, masks, out)
    assert not out.exists()


def test_images_in_the_masks_parent_folder(tmp_path):
    own(tmp_path, FLAT[:3])
    shutil.move(tmp_path / 'masks', tmp_path / 'images' / 'masks')
    outcome = convert_folders(tmp_path / 'images', tmp_path / 'images' / 'masks', tmp_path / 'out', split='test')
    assert outcome.text.endswith('3 test images with masks (all in test)') and not outcome.problems


# --- masks of two classes


@pytest.mark.parametrize('scale', [1, 255])
def test_masks_of_one_and_of_255(tmp_path, scale):
    own(tmp_path, FLAT[:3], scale=scale)
    convert(tmp_path, split='train')
    assert {entry['stored'] for entry in manifest(tmp_path / 'out')['files']} == {f'0/{scale}'}
    assert np.array_equal(np.asarray(Image.open(tmp_path / 'out/masks/train/a1.png')), crops(3)[1].mask)


def test_masks_of_both_kinds_need_a_rule(tmp_path):
    own(tmp_path, FLAT[:4])
    write(tmp_path / 'masks', {'a2.png': encode(crops(4)[2].mask)})
    with pytest.raises(UserError, match=r'with 0 and 1: 1 \(e.g. a2\), with 0 and 255: 3 \(e.g. a0\): 255'):
        convert(tmp_path, split='train')
    outcome = convert(tmp_path, split='train', threshold=0)
    assert outcome.notes[-1] == 'foreground is above 0 (masks as stored: 1 0/1, 3 0/255)'
    assert np.array_equal(np.asarray(Image.open(tmp_path / 'out/masks/train/a2.png')), crops(4)[2].mask)
    with pytest.raises(UserError, match=r'^masks/a2.png: the values 0, 1: a threshold of 127 would empty this mask'):
        convert(tmp_path, split='train', threshold=127, overwrite=True)


def test_other_values_need_a_threshold(tmp_path):
    own(tmp_path, FLAT[:3], scale=200)
    with pytest.raises(UserError, match=r'^masks/a0.png: the values 0, 200, where 0 and 1, or 0 and 255 are expected; '
                                        'give --threshold 127 if'):
        convert(tmp_path, split='train')
    convert(tmp_path, split='train', threshold=127)
    assert np.array_equal(np.asarray(Image.open(tmp_path / 'out/masks/train/a1.png')), crops(3)[1].mask)
    with pytest.raises(UserError, match=r'not one of the 3 masks has foreground: no value is above 220, the largest '):
        convert(tmp_path, split='train', threshold=220, overwrite=True)
    with pytest.raises(UserError, match=r'^threshold 255: must be from 0 to 254'):
        convert(tmp_path, threshold=255)


def test_a_refusal_leaves_no_unfinished_work(tmp_path):
    own(tmp_path, FLAT[:3], scale=200)
    for options, message in ((dict(), 'the values 0, 200'), (dict(threshold=220), 'not one of the 3 masks has')):
        with pytest.raises(UserError, match=message):
            convert(tmp_path, split='train', **options)
        assert sorted(path.name for path in tmp_path.iterdir()) == ['images', 'masks']


def test_jpeg_masks_and_colours_name_the_remedy(tmp_path):
    own(tmp_path, FLAT[:1])
    (tmp_path / 'masks/a0.png').unlink()
    write(tmp_path / 'masks', {'a0.jpg': crops(1)[0].mask_jpeg()})
    with pytest.raises(UserError, match=r'^masks/a0.jpg: .*; JPEG compression leaves grey values at edges; .*127'):
        convert(tmp_path, split='train')
    convert(tmp_path, split='train', threshold=127)
    (tmp_path / 'masks/a0.jpg').unlink()
    write(tmp_path / 'masks', {'a0.png': encode(crops(1)[0].pixels)})
    with pytest.raises(UserError, match=r'^masks/a0.png: coloured mask .*give a palette'):
        convert(tmp_path, split='train', overwrite=True)


@pytest.mark.parametrize('orientation', [1, 3, 6])
def test_orientation_that_the_size_does_not_show(tmp_path, orientation):
    own(tmp_path, FLAT[:4])
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(np.zeros((9, 9, 3), np.uint8)).save(tmp_path / 'images/a0.jpg', exif=exif)
    Image.fromarray(np.eye(9, dtype=np.uint8) * np.uint8(255)).save(tmp_path / 'masks/a0.png')
    outcome = convert(tmp_path, split='train')
    assert any(note.startswith('1 image turned or mirrored by the EXIF orientation, with a mask of the same size') and
               note.endswith(': images/train/a0.png') for note in outcome.notes) == (orientation != 1)
    assert 'unseen' not in (tmp_path / 'out' / 'manifest.json').read_text(encoding='utf-8')


def test_sizes_frames_and_exif(tmp_path):
    own(tmp_path, FLAT[:4])
    crop = crops(4)
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(crop[0].pixels).transpose(Image.Transpose.ROTATE_90).save(tmp_path / 'images/a0.jpg', exif=exif)
    write(tmp_path / 'masks', {'a1.png': encode(crop[1].mask[1:])})
    (tmp_path / 'images/a2.jpg').unlink()
    stack = io.BytesIO()
    Image.fromarray(crop[2].pixels).save(stack, 'TIFF', save_all=True, append_images=[Image.fromarray(crop[3].pixels)])
    write(tmp_path / 'images', {'a2.tif': stack.getvalue()})
    outcome = convert(tmp_path, split='train')
    height, width = crop[1].mask.shape
    assert [str(problem) for problem in outcome.problems] == [
        'several frames in one image: images/a2.tif (2; save each as a file of its own)',
        f'size mismatch: masks/a1.png (mask {width}x{height - 1}, image {width}x{height})']
    assert np.asarray(Image.open(tmp_path / 'out/images/train/a0.png')).shape == crop[0].pixels.shape


# --- splits


def test_split_already(tmp_path):
    own(tmp_path, [f'{split}/{i}' for split in ('Training', 'valid', 'test') for i in range(2)])
    outcome = convert(tmp_path)
    assert outcome.text.endswith('2 train, 2 val, 2 test images with masks (split as given)')
    assert outcome.notes == ('2 names in more than one split (as 0): all names begin with their split (test__0)',)
    assert names(tmp_path, 'train') == ['train__0', 'train__1']
    drawn = convert_folders(tmp_path / 'images', tmp_path / 'masks', tmp_path / 'drawn', split='2:1')
    assert drawn.text.endswith('4 train, 2 test images with masks (2:1 drawn by seed 0)')
    with pytest.raises(UserError, match="^split 'given' needs the sub-folders train, val or test in"):
        own(tmp_path / 'flat', FLAT[:3])
        convert(tmp_path / 'flat', split='given')


@pytest.mark.parametrize('split', ['test', 'train'])
def test_one_split_only(tmp_path, split):
    own(tmp_path, [f'{split}/{name}' for name in FLAT[:3]])
    assert convert(tmp_path).text.endswith(f'3 {split} images with masks (split as given)')
    assert not verify_once(tmp_path / 'out') and len(build(tmp_path, split=split)) == 3
    config = dict(type='mmkcla.BinarySegDataset', data_root=str(tmp_path / 'out'), split='train')
    check_train = lambda: check_config(dict(train_dataloader=dict(dataset=config), model={}), ['train'])  # noqa: E731
    if split == 'train':
        check_train()
    else:
        with pytest.raises(UserError, match=r'no folder .*images/train .*has: test; this data set is for testing only'):
            check_train()


def test_split_files(tmp_path):
    own(tmp_path, PATIENTS)
    (tmp_path / 'lists.txt').write_text('train images/p0/a0.jpg\ntrain p0__a1\ntest a9\nval p1\\a3.png\ntest gone\n')
    outcome = convert(tmp_path, split_file=tmp_path / 'lists.txt')
    found = [names(tmp_path, split) for split in ('train', 'val', 'test')]
    assert found == [['p0__a0', 'p0__a1'], ['p1__a3'], ['p3__a9']]
    assert [str(problem) for problem in outcome.problems] == ['in the split file, not in the data: gone (test)']
    assert '6 images are left out: the split file does not name them' in outcome.notes
    (tmp_path / 'test.txt').write_text('test a0\ntest a1')
    only = convert_folders(tmp_path / 'images', tmp_path / 'masks', tmp_path / 'only', split_file=tmp_path / 'test.txt')
    assert only.text.endswith('2 test images with masks (split file test.txt)')
    with pytest.raises(UserError, match=r'^the group p1 is in train and in test \(as p1__a4\)$'):
        (tmp_path / 'cross.txt').write_text('train a3\ntest a4')
        convert(tmp_path, split_file=tmp_path / 'cross.txt', groups='^(p.)', overwrite=True)
    (tmp_path / 'bad.txt').write_text('train x\n')
    with pytest.raises(UserError, match=r'bad.txt: not one of its names is of an image here; names: x; images: p0__a0'):
        convert(tmp_path, split_file=tmp_path / 'bad.txt')


@pytest.mark.parametrize(('options', 'message'), [
    (dict(split='8:x'), "^split '8:x': must be like 7:3 .* or given, or one of train, val, test for all images$"),
    (dict(split='8:1:1', split_file='x'), '^split 8:1:1 and split file x: give one of them$'),
    (dict(seed=-1), '^seed -1'), (dict(workers=0), '^workers 0'), (dict(folds=1), '^folds 1: must be 2 or more$'),
    (dict(folds=11), '^11 folds: must be from 2 to the number of images, 10$'),
    (dict(folds=3, split='test'), '^folds 3: split test leaves no images for folds$'),
    (dict(groups='p'), r"^groups 'p' has 0 capturing groups in place of one"),
    (dict(groups='('), r"^groups '\(' is neither a file nor a regular expression"),
    (dict(groups='^(b)'), r"^groups '\^\(b\)' does not match 10 of 10 names: a0, a1, a2 and 7 more$"),
    (dict(groups='none.csv'), '^no file of groups none.csv$'),
    (dict(groups='^(a)'), r'^1 group \(a\) cannot be split into 3 \(train, val, test\) without dividing one$'),
])
def test_arguments_that_are_refused(tmp_path, options, message):
    own(tmp_path, FLAT)
    with pytest.raises(UserError, match=message):
        convert(tmp_path, **options)
    assert not (tmp_path / 'out').exists()


# --- folds


def test_folds(tmp_path):
    own(tmp_path, PATIENTS)
    shutil.copy(tmp_path / 'images/p0/a0.jpg', tmp_path / 'images/p1/copy.jpg')
    shutil.copy(tmp_path / 'masks/p0/a0.png', tmp_path / 'masks/p1/copy.png')
    outcome = convert(tmp_path, folds=3, groups='^(p.)')
    assert outcome.text.endswith('11 train images with masks (all in train, 3 folds)')
    folds = json.loads((tmp_path / 'out/folds.json').read_text())['folds']
    assert sorted(sum(folds, [])) == names(tmp_path, 'train')
    together = {frozenset(name[:2] for name in fold) for fold in folds}
    assert together == {frozenset({'p0', 'p1'}), frozenset({'p2'}), frozenset({'p3'})}  # copies join p0 and p1
    for number, fold in enumerate(folds):
        found = {split: {data.get_data_info(i)['img_path'].split('/')[-1][:-4] for i in range(len(data))}
                 for split in ('train', 'val') for data in [build(tmp_path, split=split, fold=number)]}
        assert found == {'val': set(fold), 'train': set(names(tmp_path, 'train')) - set(fold)}
    with pytest.raises(UserError, match=r'^fold 3: .*folds.json has the folds 0 to 2$'):
        build(tmp_path, split='val', fold=3)
    with pytest.raises(UserError, match=r"fold=0 needs data_root and split='train' or 'val', got .*split='test'"):
        build(tmp_path, split='test', fold=0)
    config = dict(type='mmkcla.BinarySegDataset', data_root=str(tmp_path / 'out'), split='val', fold=1)
    check_config(dict(val_dataloader=dict(dataset=config), model={}), ['val'])
    (tmp_path / 'out/folds.json').write_text(json.dumps({'format': 'mmkcla folds 1', 'folds': [['p0__a0'], ['x']]}))
    problems = check(tmp_path / 'out', quick=True).problems
    assert 'folds.json: x is not of train' in problems and 'folds.json: lacks p3__a9 of train' in problems
    with pytest.raises(UserError, match='the folds of .* do not match its training images: p0__a1, '):
        build(tmp_path, split='val', fold=0)
    (tmp_path / 'out/folds.json').unlink()
    assert check(tmp_path / 'out').problems == ['folds.json: is in the manifest, but not there']
    with pytest.raises(UserError, match=r'^no file .*folds.json: the data set has no folds; prepare it with --folds'):
        build(tmp_path, split='val', fold=0)


def test_folds_beside_a_test_set(tmp_path):
    own(tmp_path, FLAT)
    assert convert(tmp_path, folds=4, split='8:2').text.endswith('8 train, 2 test images with masks (8:2 drawn by seed '
                                                                 '0, 4 folds)')
    folds = json.loads((tmp_path / 'out/folds.json').read_text())['folds']
    assert [len(fold) for fold in folds] == [2, 2, 2, 2] and sorted(sum(folds, [])) == names(tmp_path, 'train')


# --- the data set


def test_classes_of_the_data_set(tmp_path):
    own(tmp_path, FLAT[:3])
    convert(tmp_path, split='train')
    assert build(tmp_path, split='train').metainfo['classes'] == ('background', 'foreground')
    data = build(tmp_path, split='train', metainfo=dict(classes=('background', 'polyp')))
    assert data.metainfo['classes'] == ('background', 'polyp') and len(data.metainfo['palette']) == 2
    assert data.metainfo['label_map'] is None
    for classes, message in ((('a', 'b', 'c'), r'BinarySegDataset: 3 classes \(a, b, c\), but it needs two'),
                             (('polyp',), '1 classes'), ('polyp', "is the string 'polyp'; write classes=")):
        with pytest.raises(UserError, match=message):
            build(tmp_path, split='train', metainfo=dict(classes=classes))


def test_train_and_val_need_the_same_fold(tmp_path):
    own(tmp_path, FLAT[:6])
    convert(tmp_path, folds=2)
    config = lambda train, val: {  # noqa: E731
        f'{split}_dataloader': dict(dataset=dict(type='mmkcla.BinarySegDataset', data_root=str(tmp_path / 'out'),
                                                 split=split, **({} if fold is None else {'fold': fold})))
        for split, fold in (('train', train), ('val', val))} | {'model': {}}
    check_config(config(1, 1), ['train', 'val'])
    for train, val in ((None, 0), (1, 0)):
        with pytest.raises(UserError, match=f'^fold is {train} for train and 0 for val .*: set both to the same fold$'):
            check_config(config(train, val), ['train', 'val'])
