"""ISIC 2017, ISIC 2018 and Kvasir-SEG: sample downloads, conversion, problems by name, damaged and hostile archives."""
import io
import json
import os
import zipfile

import numpy as np
import pytest
from PIL import Image

pytest.importorskip('skimage')

from medical_files import DISC, IMAGES, MASKS, encode, hashes, isic, manifest, picture, unpack, write_zip

from mmkcla.cli import main
from mmkcla.datasets.detection import coins
from mmkcla.datasets.segmentation import samples
from mmkcla.datasets.segmentation.converters import splits
from mmkcla.datasets.segmentation.converters.isic import ISIC2017, convert_isic2017, convert_isic2018
from mmkcla.datasets.segmentation.converters.kvasir import convert_kvasir_seg
from mmkcla.datasets.segmentation.verify import check
from mmkcla.errors import UserError

CONVERT = {'isic2017': convert_isic2017, 'isic2018': convert_isic2018, 'kvasir_seg': convert_kvasir_seg}
COUNT = (9, 2, 3)


@pytest.fixture(scope='module')
def raw(tmp_path_factory):
    folder = tmp_path_factory.mktemp('raw')
    for dataset in samples.DATASETS:
        samples.make_samples(folder / dataset, dataset, COUNT)
    return folder


# --- from the sample download to a data set that is verified


@pytest.mark.parametrize('dataset', samples.DATASETS)
def test_sample_to_data_set(raw, tmp_path, dataset):
    listed = {'split_file': raw / dataset / 'kvasir_split.json'} if dataset == 'kvasir_seg' else {}
    outcome = CONVERT[dataset](raw / dataset, tmp_path / 'out', **listed)
    protocol = 'split file kvasir_split.json' if listed else 'official'
    assert outcome.text == f'{tmp_path / "out"}: 9 train, 2 val, 3 test images with masks ({protocol})'
    assert not outcome.problems and os.listdir(tmp_path) == ['out']
    report = check(tmp_path / 'out', near=True)
    assert report.counts == {'train': 9, 'val': 2, 'test': 3} and not report.problems and not report.notes
    content = manifest(tmp_path / 'out')
    assert content['counts'] == {'train': 9, 'val': 2, 'test': 3} and content['protocol'] == protocol
    # the pixels are the photograph's, upright, and the mask is its coins
    crops = {crop.number: crop for crops in samples._crops('coins', dict(zip(splits.SPLITS, COUNT, strict=True)),
                                                           0).values() for crop in crops}
    files = sorted(content['files'], key=lambda entry: list(splits.SPLITS).index(entry['split']))
    numbers = ({name: n for n, name in enumerate(sum(json.loads(listed['split_file'].read_text()).values(), []))}
               if listed else {f'ISIC_{7 * n:07d}': n for n in crops})
    for entry in files:
        crop = crops[numbers[entry['name']]]
        image = np.asarray(Image.open(tmp_path / 'out' / entry['image'])).astype(int)
        mask = np.asarray(Image.open(tmp_path / 'out' / entry['mask']))
        assert image.shape == crop.pixels.shape and abs(image - crop.pixels).mean() < 4
        assert (mask.shape, mask.dtype) == (crop.mask.shape, np.uint8) and set(np.unique(mask)) <= {0, 1}
        overlap = ((mask == 1) & crop.mask).sum() / ((mask == 1) | crop.mask).sum()
        assert overlap > 0.98 if listed else overlap == 1
        assert entry['image'].endswith('.png' if crop.number in (3, 11) else '.jpg')
        assert entry.get('turned_upright', False) == (crop.number in (3, 11))
        assert entry['foreground'] == mask.sum() and [entry['height'], entry['width']] == list(mask.shape)


@pytest.mark.parametrize('dataset', samples.DATASETS)
def test_zip_files_and_folders_give_the_same_bytes(raw, tmp_path, dataset):
    CONVERT[dataset](raw / dataset, tmp_path / 'zip')
    CONVERT[dataset](unpack(raw / dataset, tmp_path / 'unpacked'), tmp_path / 'folder', workers=1)
    one = next((raw / dataset).glob('*.zip'))  # the path of a zip file stands for its folder
    CONVERT[dataset](one, tmp_path / 'one', workers=5)
    assert hashes(tmp_path / 'zip') == hashes(tmp_path / 'folder') == hashes(tmp_path / 'one')
    jpegs = {path.name: path.read_bytes() for path in (tmp_path / 'unpacked').rglob('*.jpg')
             if path.parent.name != 'masks'}
    kept = list((tmp_path / 'zip' / 'images').rglob('*.jpg'))
    assert len(kept) == 12 and all(path.read_bytes() == jpegs[path.name] for path in kept)


def test_a_zip_file_beside_what_was_unpacked(raw, tmp_path):
    unpack(raw / 'kvasir_seg', tmp_path / 'both')
    (tmp_path / 'both' / 'Kvasir-SEG.zip').write_bytes((raw / 'kvasir_seg' / 'kvasir-seg.zip').read_bytes())
    outcome = convert_kvasir_seg(tmp_path / 'both', tmp_path / 'out')
    assert outcome.text.endswith(': 11 train, 2 val, 1 test images with masks (8:1:1 drawn by seed 0)')
    assert 'images is there as a zip file and unpacked; the zip file Kvasir-SEG.zip is read' in outcome.notes


@pytest.mark.parametrize('tag', range(1, 9))
def test_exif_orientation(tmp_path, tag):
    upright = np.zeros((16, 32, 3), np.uint8)
    upright[:8, :8], upright[8:, 24:] = 255, 128
    crop = samples._Crop(3 + 8 * (tag - 2), upright, upright[..., 0] > 200)
    data = crop.jpeg() if tag > 1 else encode(upright, 'JPEG')
    isic(tmp_path / 'raw', {'a': data}, {'a': crop.mask_png()})
    convert_isic2017(tmp_path / 'raw', tmp_path / 'out')
    image, = (tmp_path / 'out' / 'images' / 'train').iterdir()
    mask = np.asarray(Image.open(tmp_path / 'out' / 'masks' / 'train' / 'a.png'))
    assert image.suffix == ('.jpg' if tag == 1 else '.png')
    assert abs(np.asarray(Image.open(image)).astype(int) - upright).max() < 40
    assert np.array_equal(mask, crop.mask)


def test_samples_are_reproducible_and_left_alone(raw, tmp_path):
    again = samples.make_samples(tmp_path / 'a', 'isic2017', COUNT)
    assert again.startswith(f'{tmp_path / "a"}: 9 train, 2 val, 3 test images in ISIC-2017_Test_v2_Data.zip, ')
    assert hashes(tmp_path / 'a') == hashes(raw / 'isic2017')
    assert samples.make_samples(tmp_path / 'a', 'isic2017', COUNT) == f'{tmp_path / "a"}: already there'
    with pytest.raises(UserError, match=r'a was written with seed 0 \(requested: 1\); choose another folder, or'):
        samples.make_samples(tmp_path / 'a', 'isic2017', COUNT, seed=1)
    with zipfile.ZipFile(tmp_path / 'a' / f'{IMAGES}.zip') as archive:
        names = archive.namelist()
    assert names[:3] == [f'{IMAGES}/{IMAGES}_metadata.csv', f'{IMAGES}/ISIC_0000000.jpg',
                         f'{IMAGES}/ISIC_0000000_superpixels.png']
    with pytest.raises(UserError, match=r"data set 'isic': must be one of isic2017, isic2018, kvasir_seg"):
        samples.make_samples(tmp_path / 'b', 'isic')
    with pytest.raises(UserError, match=r'count 0 1 1: must be three numbers up to 2000'):
        samples.make_samples(tmp_path / 'b', count=(0, 1, 1))


def test_samples_of_test_share_no_pixel_with_train():
    for photograph in samples.PHOTOGRAPHS:
        _, foreground, left = {'coins': samples._coins, 'ihc': samples._ihc}[photograph]()
        assert 0.1 < foreground[left].mean() < 0.7 and 0.1 < foreground[~left].mean() < 0.7
    photo, part = coins.photograph(), coins.train_part()
    for split, crops in samples._crops('coins', {'train': 4, 'val': 4, 'test': 4}, 0).items():
        for crop in crops:
            height, width = crop.mask.shape
            assert min(height, width) >= 112 and max(height, width) <= 192
            corners = np.lib.stride_tricks.sliding_window_view(photo, (16, 16))
            (y, x), = np.argwhere((corners == crop.pixels[:16, :16, 0]).all((2, 3)))
            assert np.array_equal(photo[y:y + height, x:x + width], crop.pixels[..., 0])
            assert (part[y:y + height, x:x + width] == (split != 'test')).all()


# --- problems


def problem_set(folder):
    """A part in which everything that can be wrong with a pair is wrong once; ``good`` pairs are fine."""
    names = ['good1', 'good2', 'no_mask', 'resized', 'cut_image', 'cut_mask', 'text', 'empty', 'faint', 'colour',
             'turned', 'copy']
    images = {name: picture(number) for number, name in enumerate(names)}
    exif = Image.Exif()
    exif[0x0112] = 6
    images |= {'cut_image': images['cut_image'][:-40], 'text': b'no image', 'turned': picture(99, exif=exif),
               'copy': images['good1']}
    masks = {name: encode(DISC * 255) for name in [*names, 'no_image'] if name != 'no_mask'}
    masks |= {'resized': encode(np.ones((10, 13)) * 255), 'cut_mask': masks['cut_mask'][:-14],
              'empty': encode(DISC * 0), 'faint': encode(DISC * 127),
              'colour': encode(np.dstack([DISC * 255, DISC * 0, DISC * 0]))}
    isic(folder, images, masks)
    (folder / IMAGES / 'sub').mkdir()
    (folder / IMAGES / 'sub' / 'twice.jpg').write_bytes(picture(50))
    (folder / IMAGES / 'twice.png').write_bytes(picture(51))
    (folder / MASKS / 'twice_Segmentation.PNG').write_bytes(encode(DISC * 255))
    for junk in ('._good1.jpg', '.DS_Store', 'Thumbs.db', 'good1_superpixels.png', 'notes.csv', '__MACOSX/x.jpg'):
        path = folder / IMAGES / junk
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b'junk')
    return isic(folder, {'leak': images['good2'], 'v': picture(60)}, dict.fromkeys(['leak', 'v'], encode(DISC * 255)),
                part=1)


PROBLEMS = f'''\
all-zero mask: masks/train/empty.png (kept; no value above 127)
all-zero mask: masks/train/faint.png (kept; no value above 127, the largest is 127)
coloured mask: {MASKS}/colour_segmentation.png (red, green and blue differ by up to 255; two-class masks must be grey)
corrupt image: {IMAGES}/cut_image.jpg (cut off or truncated)
corrupt image: {IMAGES}/text.jpg (not a JPEG, PNG, BMP, WEBP, TIFF, PPM file)
corrupt mask: {MASKS}/cut_mask_segmentation.png (cut off or truncated)
duplicate image: images/train/good1.jpg (kept; the same as images/train/copy.jpg)
duplicate image across splits: images/train/good2.jpg (left out; the same as images/val/leak.jpg)
image without mask: {IMAGES}/no_mask.jpg
mask without image: {MASKS}/no_image_segmentation.png
mask without image: {MASKS}/twice_Segmentation.PNG
missing part: ISIC-2017_Test_v2_Data.zip (test is left out)
missing part: ISIC-2017_Test_v2_Part1_GroundTruth.zip (test is left out)
name twice: {IMAGES}/twice.png (2 files of this name)
name twice: sub/twice.jpg (2 files of this name)
size mismatch: {MASKS}/resized_segmentation.png (mask 13x10, image 12x10)
size mismatch: {MASKS}/turned_segmentation.png (mask 12x10, image 10x12, but turned as the EXIF data of the image say)
'''


def test_every_problem_is_reported_by_name(tmp_path, capsys):
    source, out = problem_set(tmp_path / 'raw'), tmp_path / 'out'
    assert main(['data', 'isic2017', str(source), '--out', str(out)]) == 0
    told = (out / 'problems.txt').read_text().splitlines()
    for line, expected in zip(told, PROBLEMS.splitlines(), strict=True):
        if 'cut off or truncated' in expected:  # the decoder's words
            assert line.startswith(expected.split(' (')[0]) and ('cut off' in line or 'truncated' in line)
        else:
            assert line == expected
    assert sorted(hashes(out / 'images')) == ['train/copy.jpg', 'train/empty.jpg', 'train/faint.jpg',
                                              'train/good1.jpg', 'val/leak.jpg', 'val/v.jpg']
    assert sorted(hashes(out / 'masks')) == ['train/copy.png', 'train/empty.png', 'train/faint.png', 'train/good1.png',
                                             'val/leak.png', 'val/v.png']
    assert [problem['file'] for problem in manifest(out)['problems'] if problem['kept']] == [
        'masks/train/empty.png', 'masks/train/faint.png', 'images/train/good1.jpg']
    printed = capsys.readouterr()
    assert printed.out == f'{out}: 4 train, 2 val images with masks (official)\n'
    assert '17 problems (3 only reported, 14 left out; all in problems.txt):' in printed.err
    assert f'  image without mask (1): {IMAGES}/no_mask.jpg\n' in printed.err
    report = check(out)
    assert not report.problems and report.empty_masks == 2


def test_strict_writes_nothing(tmp_path):
    out = tmp_path / 'out'
    with pytest.raises(UserError, match=r'^ISIC 2017: 7 problems: image without mask: .*no_mask.jpg; .* \(--strict\)$'):
        convert_isic2017(problem_set(tmp_path / 'raw'), out, strict=True)
    one = isic(tmp_path / 'one', {'a': picture(), 'b': picture(1)}, {'a': encode(DISC * 0), 'b': encode(DISC * 255)})
    isic(one, {'v': picture(2)}, {'v': encode(DISC * 255)}, part=1)
    with pytest.raises(UserError, match=r'2 problems: missing part: ISIC-2017_Test_v2_Data.zip \(test is left out'):
        convert_isic2017(one, out, strict=True)
    with pytest.raises(UserError, match=r'1 problem: all-zero mask: masks/\w+/a.png \(kept; no value above 127\) '
                                        r'\(--strict; what is done is kept in .*out.partial\)$'):
        convert_isic2017(one, out, strict=True, split='1:1:1')
    assert not out.exists()
    assert convert_isic2017(one, out, split='1:1:1').reused == 3
    assert sorted(os.listdir(tmp_path)) == ['one', 'out', 'raw']


@pytest.mark.parametrize('mask', [
    encode(DISC * 255), encode(np.dstack([DISC * 255] * 3)), encode(np.dstack([DISC * 255] * 3), 'JPEG', quality=100),
    encode(np.dstack([DISC * 255] * 3 + [np.full_like(DISC, 9)])), encode(DISC * 128), encode(DISC * 173 + 82),
], ids=['grey', 'rgb', 'jpeg', 'alpha', 'above the threshold', 'grey background'])
def test_masks_that_are_read(tmp_path, mask):
    convert_isic2017(isic(tmp_path / 'raw', {'a': picture()}, {'a': mask}), tmp_path / 'out')
    assert np.array_equal(np.asarray(Image.open(tmp_path / 'out' / 'masks' / 'train' / 'a.png')), DISC)


def test_16_bit_and_palette_masks(tmp_path):
    deep, palette = io.BytesIO(), io.BytesIO()
    Image.fromarray(DISC.astype(np.uint16) * 65535).save(deep, 'PNG')
    indexed = Image.fromarray(DISC)
    indexed.putpalette([0, 0, 0, 255, 255, 255])
    indexed.save(palette, 'PNG')
    raw = isic(tmp_path / 'raw', {'a': picture(), 'b': picture(1)}, {'a': deep.getvalue(), 'b': palette.getvalue()})
    convert_isic2017(raw, tmp_path / 'out')
    for name in 'ab':
        assert np.array_equal(np.asarray(Image.open(tmp_path / 'out' / 'masks' / 'train' / f'{name}.png')), DISC)


# --- archives


@pytest.mark.parametrize('name', ['../x.jpg', 'Kvasir-SEG/../../x.jpg', '/x.jpg', 'C:/x.jpg', '..\\x.jpg'])
def test_hostile_member(tmp_path, name):
    path = write_zip(tmp_path / 'raw' / 'kvasir-seg.zip', {'Kvasir-SEG/images/a.jpg': picture(), name: picture()})
    with pytest.raises(UserError, match=r'kvasir-seg.zip has the member .*x.jpg.*, which points outside it'):
        convert_kvasir_seg(path, tmp_path / 'out')
    assert sorted(os.listdir(tmp_path)) == ['raw'] and os.listdir(tmp_path / 'raw') == ['kvasir-seg.zip']


def test_links_and_encrypted_members(tmp_path):
    link = zipfile.ZipInfo('images/a.jpg')
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / 'kvasir-seg.zip', 'w') as archive:
        archive.writestr(link, '/etc/passwd')
    with pytest.raises(UserError, match=r"kvasir-seg.zip has the link 'images/a.jpg'"):
        convert_kvasir_seg(tmp_path, tmp_path / 'out')
    data = bytearray(write_zip(tmp_path / 'kvasir-seg.zip', {'images/a.jpg': b'x'}).read_bytes())
    data[data.index(b'PK\1\2') + 8] |= 1
    (tmp_path / 'kvasir-seg.zip').write_bytes(data)
    with pytest.raises(UserError, match=r"kvasir-seg.zip is encrypted \(member 'images/a.jpg'\); unpack it first"):
        convert_kvasir_seg(tmp_path, tmp_path / 'out')


def test_damaged_zip(raw, tmp_path):
    whole = (raw / 'kvasir_seg' / 'kvasir-seg.zip').read_bytes()
    path = tmp_path / 'kvasir-seg.zip'
    for content in (whole[:len(whole) // 2], b''):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r'^the zip file \S+kvasir-seg.zip is damaged or cut off \(File is not a '
                                            r'zip file\); download it again$'):
            convert_kvasir_seg(tmp_path, tmp_path / 'out')
    middle = len(whole) // 2
    path.write_bytes(whole[:middle] + b'?' * 300 + whole[middle + 300:])  # a hole; the directory at the end is whole
    with pytest.raises(UserError, match=r'kvasir-seg.zip is damaged or cut off \(.*; download it again'):
        convert_kvasir_seg(tmp_path, tmp_path / 'out')
    assert not (tmp_path / 'out').exists()


def test_two_zip_files_of_one_name(raw, tmp_path):
    for folder in ('a', 'b'):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / 'kvasir-seg.zip').write_bytes((raw / 'kvasir_seg' / 'kvasir-seg.zip').read_bytes())
    with pytest.raises(UserError, match=r'two zip files of one name: \S+a/kvasir-seg.zip and \S+b/kvasir-seg.zip'):
        convert_kvasir_seg(tmp_path, tmp_path / 'out')


def test_source_that_lacks_what_is_needed(raw, tmp_path):
    with pytest.raises(UserError, match=r'no folder or zip file \S+none; it is where the downloaded files are'):
        convert_isic2017(tmp_path / 'none', tmp_path / 'out')
    (tmp_path / f'{IMAGES}.zip').write_bytes((raw / 'isic2017' / f'{IMAGES}.zip').read_bytes())
    with pytest.raises(UserError, match=rf'no {MASKS}.zip in \S+; ISIC 2017 needs both of {IMAGES}.zip and '):
        convert_isic2017(tmp_path, tmp_path / 'out')
    (tmp_path / f'{MASKS}.zip').write_bytes((raw / 'isic2017' / f'{MASKS}.zip').read_bytes())
    outcome = convert_isic2017(tmp_path, tmp_path / 'out')
    assert outcome.text.endswith(': 9 train images with masks (official)')
    assert {str(problem) for problem in outcome.problems} == {
        f'missing part: {folder}.zip ({part.name} is left out)' for part in ISIC2017.parts[1:]
        for folder in (part.images, part.masks)}
    with pytest.raises(UserError, match=r'no folder images and no folder masks in \S+; Kvasir-SEG needs both'):
        convert_kvasir_seg(tmp_path, tmp_path / 'out2')
