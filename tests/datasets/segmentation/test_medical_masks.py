"""Masks whose values do not say what is foreground are refused by name; turned masks are turned alike everywhere."""
import io

import numpy as np
import pytest
from medical_files import DISC, MASKS, encode, isic, manifest, picture
from mmcv.transforms import LoadImageFromFile as McvLoadImageFromFile
from PIL import Image

from mmkcla.cli import main
from mmkcla.datasets.segmentation import masks as pixels
from mmkcla.datasets.segmentation.converters.isic import convert_isic2017
from mmkcla.datasets.segmentation.verify import verify
from mmkcla.datasets.transforms import LoadBinaryMask, LoadImageFromFile
from mmkcla.errors import UserError
from mmkcla.utils import images
from mmkcla.utils.images import ORIENTATION, UPRIGHT, upright_size

GOOD = encode(DISC * 255)


def deep(values, image_format='PNG') -> bytes:
    """A picture of 16 or 32 bits, by the type of ``values``."""
    buffer = io.BytesIO()
    Image.fromarray(np.asarray(values)).save(buffer, image_format)
    return buffer.getvalue()


def written(folder, name='a'):
    return np.asarray(Image.open(folder / 'masks' / 'train' / f'{name}.png'))


@pytest.mark.parametrize(('mask', 'found'), [
    (encode(DISC), 'values 0 and 1'), (encode(np.dstack([DISC] * 3)), 'values 0 and 1'),
    (encode(DISC * 0 + 1), 'only the value 1'), (deep(DISC.astype(np.uint16)), 'values 0 and 1')],
    ids=['grey', 'rgb', 'ones', '16 bits'])
def test_masks_of_0_and_1_are_refused(tmp_path, mask, found):
    raw = isic(tmp_path / 'raw', {'a': picture(), 'b': picture(1)}, {'a': mask, 'b': GOOD})
    outcome = convert_isic2017(raw, tmp_path / 'out')
    assert str(outcome.problems[0]) == (f'0/1 mask: {MASKS}/a_segmentation.png ({found}: not a grey mask of 0 to 255; '
                                        'multiply it by 255)')
    assert [entry['name'] for entry in manifest(tmp_path / 'out')['files']] == ['b']


def test_a_data_set_without_foreground_is_an_error(tmp_path, capsys):
    none = 'not one of the 2 masks has foreground: no value is above 127, the largest is {}; masks are grey, with a ' \
           'foreground of 255\n'
    for name, masks, message in (('ones', [DISC, DISC], 'no pair is left for training (6 problems: 0/1 mask: '),
                                 ('zeros', [DISC * 0, DISC * 0], none.format(0)),
                                 ('faint', [DISC * 0, DISC * 90], none.format(90))):
        raw = isic(tmp_path / name, {'a': picture(), 'b': picture(1)}, dict(zip('ab', map(encode, masks), strict=True)))
        assert main(['data', 'isic2017', str(raw), '--out', str(tmp_path / 'out')]) == 2
        printed = capsys.readouterr()
        assert printed.out == '' and printed.err.startswith(f'error: {raw}: {message}') and printed.err.count('\n') == 1
        assert not (tmp_path / 'out').exists()


@pytest.mark.parametrize('highest', [128, 255, 65535])
def test_deep_masks_that_are_read(tmp_path, highest):
    raw = isic(tmp_path / 'raw', {'a': picture()}, {'a': deep(DISC.astype(np.uint16) * highest)})
    outcome = convert_isic2017(raw, tmp_path / 'out')
    assert {problem.kind for problem in outcome.problems} == {'missing part'}  # val and test
    assert np.array_equal(written(tmp_path / 'out'), DISC)


def test_deep_values_are_scaled_by_the_whole_range():
    values = np.array([[0, 32767, 32896, 65535]], np.uint16)
    assert pixels.grey(pixels.decode(deep(values), 'mask')).tolist() == [[0, 127, 128, 255]]
    low = np.array([[0, 7, 200]], np.uint16)
    assert pixels.grey(pixels.decode(deep(low), 'mask')).tolist() == [[0, 7, 200]]


@pytest.mark.parametrize(('values', 'found'), [
    (DISC.astype(np.uint16) * 256, 'values from 0 to 256; the largest must be 65535, or at most 255, and all must'),
    (DISC.astype(np.uint16) * 1000, 'values from 0 to 1000; '),
    (DISC.astype(np.int32) * 70000, 'values from 0 to 70000; '),
    (DISC.astype(np.int32) * -1, 'values from -1 to 0; '), (DISC.astype(np.float32) * 0.9, 'values from 0 to 0.9; '),
    (np.where(DISC, np.nan, 0).astype(np.float32), 'values from nan to nan; ')],
    ids=['256', '1000', '32 bits', 'negative', 'fractions', 'nan'])
def test_deep_masks_that_are_refused(tmp_path, values, found):
    mask = pixels.decode(deep(values, 'TIFF'), 'mask')
    with pytest.raises(pixels.PixelError) as caught:
        pixels.grey(mask)
    assert caught.value.kind == '16-bit mask' and caught.value.detail.startswith(found)
    if values.dtype == np.uint16:
        raw = isic(tmp_path / 'raw', {'a': picture(), 'b': picture(1)}, {'a': deep(values), 'b': GOOD})
        line = str(convert_isic2017(raw, tmp_path / 'out').problems[0])
        assert line.startswith(f'16-bit mask: {MASKS}/a_segmentation.png ({found}')


def test_deep_masks_in_colour_are_refused():
    cv2 = pytest.importorskip('cv2')  # Pillow writes none
    data = cv2.imencode('.png', np.repeat(DISC[..., None].astype(np.uint16) * 200, 3, axis=2))[1].tobytes()
    with pytest.raises(pixels.PixelError) as caught:
        pixels.decode(data, 'mask')
    assert caught.value.args == ('16-bit mask', 'in colour or with alpha; save it as grey of 8 bits')
    assert pixels.decode(data, 'image').size == (12, 10)  # an image may be


# --- EXIF orientations


def turned(values, tag, image_format, **options) -> bytes:
    """``values`` as a file that is stored turned, so that its EXIF orientation ``tag`` makes them upright."""
    stored, exif = Image.fromarray(values), Image.Exif()
    if tag > 1:
        stored = stored.transpose({6: UPRIGHT[8], 8: UPRIGHT[6]}.get(tag, UPRIGHT[tag]))
    exif[ORIENTATION] = tag
    buffer = io.BytesIO()
    stored.save(buffer, image_format, exif=exif, **options)
    return buffer.getvalue()


@pytest.mark.parametrize('backend', ['cv2', 'pillow'])
@pytest.mark.parametrize('image_format', ['PNG', 'JPEG', 'TIFF'])
@pytest.mark.parametrize('tag', range(1, 9))
def test_masks_are_turned_as_images_are(tmp_path, tag, image_format, backend):
    upright = np.zeros((16, 32), np.uint8)
    upright[:8, :16], upright[8:, 24:] = 1, 1
    path = tmp_path / f'a.{image_format.lower()}'
    path.write_bytes(turned(upright * 255, tag, image_format, **({'quality': 100} if image_format == 'JPEG' else {})))
    mask = LoadBinaryMask(threshold=127, imdecode_backend=backend)({'seg_map_path': str(path)})['gt_seg_map']
    assert mask.dtype == np.uint8 and mask.flags.c_contiguous and np.array_equal(mask, upright)
    for loader in (LoadImageFromFile, McvLoadImageFromFile):
        image = loader(imdecode_backend=backend)({'img_path': str(path)})['img']
        assert np.array_equal(image[..., 0] > 127, upright)
    decoded = pixels.decode(path.read_bytes(), 'mask')
    assert upright_size(decoded) == (32, 16)
    assert np.array_equal(np.asarray(images.upright(decoded)) > 127, upright)
    assert upright_size(Image.open(path)) == (32, 16)  # of its head alone


def test_verify_and_training_agree_on_a_turned_mask(tmp_path):
    upright = np.zeros((10, 12), np.uint8)
    upright[:5, :4] = 1
    for kind, content in (('images', picture()), ('masks', turned(upright, 6, 'PNG'))):
        (tmp_path / kind / 'train').mkdir(parents=True)
        (tmp_path / kind / 'train' / ('a.jpg' if kind == 'images' else 'a.png')).write_bytes(content)
    path = tmp_path / 'masks' / 'train' / 'a.png'
    results = LoadImageFromFile()({'img_path': str(tmp_path / 'images' / 'train' / 'a.jpg')})
    assert np.array_equal(LoadBinaryMask()({**results, 'seg_map_path': str(path)})['gt_seg_map'], upright)
    assert verify(tmp_path) == []
    path.write_bytes(turned(upright.T.copy(), 6, 'PNG'))  # stored of the image's size, but turned out of it
    with pytest.raises(UserError, match='has 10×12 pixels, but its image .* has 12×10'):
        LoadBinaryMask()({**results, 'seg_map_path': str(path)})
    assert verify(tmp_path) == ['masks/train/a.png: size mismatch (mask 10x12, image 12x10)']
