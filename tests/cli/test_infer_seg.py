"""Inference of segmentation: masks of the right values in the right place, whatever the image file is."""
import json
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.model import BaseModule
from mmseg.registry import MODELS
from PIL import Image
from tiny import error_of, write_coco, write_detector

from mmkcla.cli import main
from mmkcla.runtime.config import load_config
from mmkcla.runtime.inference.sliding import slide, window_starts

SLOPE = 20  # of the pixelwise model: logit = 20 (mean of R, G, B / 255 - 0.5)
PIXELWISE = '''
default_scope = 'mmseg'
model = dict(
    type='EncoderDecoder',
    data_preprocessor=dict(type='SegDataPreProcessor', mean=[0., 0., 0.], std=[255., 255., 255.], bgr_to_rgb=True),
    backbone=dict(type='PixelsAsFeatures'),
    decode_head=dict(type='FCNHead', in_channels=3, channels=3, num_convs=0, concat_input=False, dropout_ratio=0.,
                     align_corners=False, num_classes=2, out_channels=1, threshold=0.5),
    test_cfg=dict(mode='whole'))
test_dataloader = dict(dataset=dict(type='mmkcla.KvasirSEGDataset', data_root='nowhere', split='test', pipeline=[
    dict(type='mmkcla.LoadImageFromFile'),
    dict(type='Resize', scale=(48, 48), keep_ratio=False),
    dict(type='mmkcla.LoadBinaryMask'),
    dict(type='PackSegInputs')]))
'''
WHOLE = 'test_dataloader.dataset.pipeline.1.scale=(61,37)'  # the size of the images here: no resize


@MODELS.register_module(force=True)
class PixelsAsFeatures(BaseModule):
    """Hands the image to the head: what is predicted is known of each pixel."""

    def forward(self, x):
        return (x, )


def weights_file(path: Path, weight, bias) -> Path:
    torch.save(dict(state_dict={
        'decode_head.conv_seg.weight': torch.tensor(weight, dtype=torch.float32).reshape(-1, 3, 1, 1),
        'decode_head.conv_seg.bias': torch.tensor(bias, dtype=torch.float32)}), path)
    return path


@pytest.fixture
def model(tmp_path):
    """The words that stand for the pixelwise model on the command line."""
    (tmp_path / 'pixelwise.py').write_text(PIXELWISE)
    return [str(tmp_path / 'pixelwise.py'),
            str(weights_file(tmp_path / 'w.pth', [SLOPE / 3] * 3, [-SLOPE / 2]))]


def picture(height=37, width=61):
    """An image without symmetry, and its bright part."""
    truth = np.zeros((height, width), bool)
    truth[height // 6:height // 2, width // 8:width // 4] = True
    truth[height // 2:3 * height // 4, width // 8:2 * width // 3] = True
    return np.where(truth, 215, 40).astype(np.uint8), truth


def write_ramp(path):
    """An image from dark to bright, and what the pixelwise model makes of it."""
    grey = np.tile(np.linspace(90, 165, 61).astype(np.uint8), (37, 1))
    cv2.imwrite(str(path), grey)
    return 1 / (1 + np.exp(-SLOPE * (grey / 255 - 0.5)))


def infer(words, inputs, out, *more):
    assert main(['infer', *words, str(inputs), '--out-dir', str(out), '--device', 'cpu', *map(str, more)]) == 0
    return json.loads((out / 'predictions.json').read_text())


def read(path):
    return cv2.imread(str(path), cv2.IMREAD_UNCHANGED)


def write_odd_images(folder):
    """The same scene in each kind of file; returns the truth as displayed, by name."""
    folder.mkdir()
    grey, truth = picture()
    pixels = np.dstack([grey] * 3)
    image = Image.fromarray(pixels)
    cv2.imwrite(str(folder / 'gray.png'), grey)
    cv2.imwrite(str(folder / 'gray16.png'), grey.astype(np.uint16) * 257)
    cv2.imwrite(str(folder / 'rgb16.tif'), pixels.astype(np.uint16) * 257)
    image.convert('LA').save(folder / 'gray_alpha.png')
    Image.fromarray(np.dstack([pixels, np.full_like(grey, 7)])).save(folder / 'rgba.png')
    image.convert('CMYK').save(folder / 'cmyk.jpg', quality=98)
    image.convert('CMYK').save(folder / 'cmyk.tif')
    image.convert('P').save(folder / 'palette.png')
    Image.fromarray(truth).save(folder / 'bilevel.bmp')
    found = {path.name: truth for path in folder.iterdir()}
    turns = {3: Image.Transpose.ROTATE_180, 5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_270,
             8: Image.Transpose.ROTATE_90}
    for suffix, options in (('jpg', dict(quality=98)), ('png', {}), ('webp', dict(lossless=True)), ('tif', {})):
        for number, turn in turns.items():
            exif = Image.Exif()
            exif[0x0112] = number
            image.save(folder / f'turned_{number}_{suffix}.{suffix}', exif=exif, **options)
            found[f'turned_{number}_{suffix}.{suffix}'] = np.asarray(Image.fromarray(truth).transpose(turn))
    for height, width in ((1, 1), (5, 3), (201, 99)):
        grey, truth = picture(height, width)
        cv2.imwrite(str(folder / f'{width}x{height}.png'), grey)
        found[f'{width}x{height}.png'] = truth
    return found


def test_every_kind_of_file_and_two_broken_ones(model, tmp_path, capsys):
    """In windows, i.e. without a resize: masks equal the truth as the image is displayed."""
    truths = write_odd_images(tmp_path / 'in')
    Image.fromarray(np.zeros((4, 4), np.float32)).save(tmp_path / 'in' / 'float.tif')
    (tmp_path / 'in' / 'cut.png').write_bytes((tmp_path / 'in' / 'gray.png').read_bytes()[:60])
    out = tmp_path / 'out'
    assert main(['infer', *model, str(tmp_path / 'in'), '--out-dir', str(out), '--slide', '32', '--stride', '20',
                 '--batch-size', '5']) == 1
    shown = capsys.readouterr().err
    for line in (f'cannot read the image {tmp_path}/in/cut.png: the PNG is truncated',
                 f'cannot read the image {tmp_path}/in/float.tif: its 32-bit values have no known range',
                 f'2 of {len(truths) + 2} images could not be processed'):
        assert f'error: {line}' in shown
    result = json.loads((out / 'predictions.json').read_text())
    assert result['classes'] == ['background', 'polyp'] and len(result['failed']) == 2
    assert (result['threshold'], result['window'], result['stride']) == (0.5, 32, 20)
    assert result['mask_values'] == '255 is foreground, 0 background'
    entries = {Path(entry['file']).name: entry for entry in result['images']}
    assert entries.keys() == truths.keys()
    for name, truth in truths.items():
        entry, mask = entries[name], read(out / entries[name]['mask'])
        assert (mask.dtype, mask.shape, entry['height'], entry['width']) == (np.uint8, truth.shape, *truth.shape), name
        wrong = (mask != truth * 255).mean()
        assert wrong == 0 or name.endswith('.jpg') and wrong < 0.02, name
        assert entry['foreground_share'] == pytest.approx((mask == 255).mean(), abs=1e-6)
        counts = {'background': (mask == 0).sum(), 'polyp': (mask > 0).sum()}
        assert {found['class']: found['pixels'] for found in entry['predictions']} == {
            key: n for key, n in counts.items() if n}
        assert read(out / entry['picture']).shape == (*truth.shape, 3) and 'probability' not in entry


def test_orientation_that_the_config_ignores(model, tmp_path):
    """With these flags mmcv does not turn; the prediction is upright all the same."""
    truths = write_odd_images(tmp_path / 'in')
    name = 'turned_6_jpg.jpg'
    for flag in ('unchanged', 'color_ignore_orientation'):
        result = infer(model, tmp_path / 'in' / name, tmp_path / flag, '--slide', '32', '--cfg-options',
                       f'test_dataloader.dataset.pipeline.0.color_type={flag}')
        mask = read(tmp_path / flag / result['images'][0]['mask'])
        assert mask.shape == truths[name].shape and ((mask > 0) != truths[name]).mean() < 0.02


@pytest.mark.parametrize('channels', [1, 2])
@pytest.mark.parametrize('threshold', [None, 0.2, 0.8])
def test_probabilities_and_threshold(model, tmp_path, channels, threshold):
    """A sigmoid head and a softmax one of the same probabilities; without a threshold the latter's argmax."""
    expected = write_ramp(tmp_path / 'a.png')
    options = ['--cfg-options', WHOLE]
    if channels == 2:
        weights_file(tmp_path / 'w.pth', [[-SLOPE / 6] * 3, [SLOPE / 6] * 3], [SLOPE / 4, -SLOPE / 4])
        options += ['model.decode_head.out_channels=2', 'model.decode_head.threshold=None']
    result = infer(model, tmp_path / 'a.png', tmp_path / 'o', '--probability',
                   *(['--threshold', threshold] if threshold else []), *options)
    entry, = result['images']
    assert (entry['picture'], entry['mask'], entry['probability']) == ('a.png', 'a_mask.png', 'a_probability.png')
    stored = read(tmp_path / 'o' / 'a_probability.png')
    assert (stored.dtype, stored.shape) == (np.uint16, expected.shape)
    assert np.abs(stored / 65535 - expected).max() < 2e-5
    assert np.array_equal(read(tmp_path / 'o' / 'a_mask.png') == 255, expected > (threshold or 0.5))
    assert result['threshold'] == (threshold or 0.5)
    assert result['probability_values'] == 'probability of the polyp = value / 65535'


def test_overlay_is_the_image_with_tint_and_outline(model, tmp_path):
    grey, truth = picture()
    cv2.imwrite(str(tmp_path / 'a.png'), grey)
    infer(model, tmp_path / 'a.png', tmp_path / 'out', '--cfg-options', WHOLE)
    painted = read(tmp_path / 'out' / 'a.png')[..., ::-1]
    inner = cv2.erode(truth.astype(np.uint8), cv2.getStructuringElement(cv2.MORPH_CROSS, (3, 3))) == 1
    colour = np.array([0, 200, 120])  # of the data set's palette
    assert np.array_equal(painted[inner][0], np.round(215 * 0.7 + colour * 0.3))
    assert len(np.unique(painted[inner], axis=0)) == 1
    assert (painted[truth & ~inner] == colour).all() and (painted[~truth] == 40).all()  # the outline lies inside


def test_whole_image_is_resized_and_windows_are_not(model, tmp_path):
    """Stripes of a pixel, at four times the network's size: gone after a resize."""
    stripes = np.tile(np.array([0, 255], np.uint8), (192, 96))
    cv2.imwrite(str(tmp_path / 'a.png'), stripes)
    infer(model, tmp_path / 'a.png', tmp_path / 'whole')
    assert len(np.unique(read(tmp_path / 'whole' / 'a_mask.png')[:, 8:-8])) == 1
    infer(model, tmp_path / 'a.png', tmp_path / 'slid', '--slide', 48)
    assert np.array_equal(read(tmp_path / 'slid' / 'a_mask.png'), stripes)


def test_batches_do_not_change_the_result(model, tmp_path):
    """Images of different sizes, one prepared size; and without a resize, prepared sizes that differ."""
    folder = tmp_path / 'in'
    folder.mkdir()
    for number, size in enumerate([(30, 40), (30, 40), (64, 50), (30, 40), (51, 33)]):
        small = np.random.default_rng(number).integers(0, 256, (5, 5), dtype=np.uint8)
        cv2.imwrite(str(folder / f'{number}.png'), cv2.resize(small, size, interpolation=cv2.INTER_CUBIC))
    keep = ['--cfg-options', 'test_dataloader.dataset.pipeline.1.scale=(2000,200)',
            'test_dataloader.dataset.pipeline.1.keep_ratio=True']
    for name, options in (('whole', []), ('keep', keep), ('slid', ['--slide', 16, '--stride', 7])):
        outs = [tmp_path / f'{name}{size}' for size in (1, 4)]
        entries = [infer(model, folder, out, '--batch-size', size, '--probability', *options)['images']
                   for out, size in zip(outs, (1, 4), strict=True)]
        assert entries[0] == entries[1] and len(entries[0]) == 5
        for entry in entries[0]:
            one, many = (read(out / entry['probability']).astype(int) for out in outs)
            assert np.abs(one - many).max() <= 2


def less_window_mean(windows):
    """A network whose output depends on the window: two channels."""
    stacked = torch.stack(windows).float()
    return torch.cat([stacked, stacked - stacked.mean((1, 2, 3), keepdim=True)], 1)


@pytest.mark.parametrize(('height', 'width', 'window', 'stride', 'batch'), [
    (20, 31, 8, 4, 1), (16, 24, 8, 8, 3), (9, 8, 8, 3, 2), (5, 20, 8, 4, 4), (3, 2, 8, 8, 1), (17, 17, 16, 16, 2)])
def test_windows_against_a_plain_reference(height, width, window, stride, batch):
    rng = np.random.default_rng(height)
    image = rng.integers(0, 256, (1, height, width)).astype(np.float32)
    padded = np.pad(image, [(0, 0), (0, max(0, window - height)), (0, max(0, window - width))], mode='symmetric')[0]
    total, weights = np.zeros((2, *padded.shape)), np.zeros(padded.shape)
    for y in window_starts(padded.shape[0], window, stride):
        for x in window_starts(padded.shape[1], window, stride):
            part = padded[y:y + window, x:x + window]
            rows, columns = np.mgrid[1:window + 1, 1:window + 1]
            weight = np.minimum(rows, window + 1 - rows) * np.minimum(columns, window + 1 - columns)
            total[:, y:y + window, x:x + window] += np.stack([part, part - part.mean()]) * weight
            weights[y:y + window, x:x + window] += weight
    result = slide(less_window_mean, torch.from_numpy(image), window, stride, batch)
    np.testing.assert_allclose(result.numpy(), (total / weights)[:, :height, :width], rtol=1e-5, atol=1e-3)
    np.testing.assert_allclose(result[0].numpy(), image[0], rtol=1e-5)


def test_windows_side_by_side_are_those_of_mmseg():
    from mmseg.models import EncoderDecoder
    segmentor = object.__new__(EncoderDecoder)
    torch.nn.Module.__init__(segmentor)
    segmentor.test_cfg, segmentor.out_channels = Config(dict(stride=(8, 8), crop_size=(8, 8))), 2
    segmentor.encode_decode = lambda inputs, metas: less_window_mean(list(inputs))
    image = torch.randn(1, 16, 24)
    theirs = segmentor.slide_inference(image[None], [{}])[0]
    torch.testing.assert_close(slide(less_window_mean, image, 8, 8), theirs)


def test_where_windows_start():
    for side, starts in ((8, [0]), (3, [0]), (9, [0, 1]), (16, [0, 4, 8]), (17, [0, 4, 8, 9])):
        assert window_starts(side, 8, 4) == starts


def test_three_classes(model, tmp_path, capsys):
    """Labels in place of 0 and 255; the red, green and blue thirds of a picture."""
    pixels = np.zeros((30, 61, 3), np.uint8)
    for channel in range(3):
        pixels[:, 20 * channel:20 * channel + 20, channel] = 255
    Image.fromarray(pixels).save(tmp_path / 'a.png')
    words = [model[0], str(weights_file(tmp_path / 'three.pth', np.eye(3) * 5, [0.1, 0, 0]))]
    options = ['--cfg-options', 'model.decode_head.out_channels=3', 'model.decode_head.num_classes=3',
               'test_dataloader.dataset.metainfo.classes=[red,green,blue]',
               'test_dataloader.dataset.pipeline.1.scale=(61,30)']
    for more in ([], ['--slide', 16]):
        out = tmp_path / f'out{len(more)}'
        result = infer(words, tmp_path / 'a.png', out, '--probability', *more, *options)
        mask = read(out / 'a_mask.png')
        assert np.array_equal(mask, np.minimum(pixels.argmax(2), 2))  # the last column is black: red by its bias
        entry, = result['images']
        assert [(found['class'], found['pixels']) for found in entry['predictions']] == [
            ('red', 630), ('green', 600), ('blue', 600)]
        assert 'foreground_share' not in entry and 'threshold' not in result and result['mask_values'] == 'labels'
        assert result['probability_values'] == 'probability of the predicted class = value / 65535'
        stored = read(out / 'a_probability.png') / 65535
        assert stored[0, 30] == pytest.approx(np.exp(5) / (np.exp(5) + 1 + np.exp(0.1)), abs=2e-5)
        assert read(out / 'a.png').shape == pixels.shape
    assert error_of(capsys, 'infer', *words, tmp_path / 'a.png', '--out-dir', tmp_path / 'o', '--threshold', 0.4,
                    *options) == ('--threshold is for two classes; this model has 3 and predicts the most probable one')


def test_threshold_that_the_config_does_not_state(model, tmp_path, capsys):
    cv2.imwrite(str(tmp_path / 'a.png'), picture()[0])
    result = infer(model, tmp_path / 'a.png', tmp_path / 'out', '--cfg-options', 'model.decode_head.threshold=None')
    note = 'note: the decode head of the config sets no threshold; using 0.3, the default of mmseg'
    assert result['threshold'] == 0.3 and note in capsys.readouterr().err
    infer(model, tmp_path / 'a.png', tmp_path / 'out', '--threshold', 0.5, '--score-thr', 0.4)
    shown = capsys.readouterr().err
    assert note not in shown
    assert 'note: --score-thr is for detection and is ignored; use --threshold for segmentation' in shown


def test_unet_of_the_package(tmp_path):
    """The KCLA U-Net at odd sizes, whole and in windows; with windows as large as the image both agree."""
    from mmengine.registry import init_default_scope
    narrow = ['model.backbone.stage_channels=[8,8,16,16]', 'model.backbone.stem_channels=8',
              'model.backbone.layer_attention.head_channels=8', 'model.decode_head.in_channels=[8,8,8,16,16]',
              'model.decode_head.decoder_channels=[8,8,8,8]']
    config = load_config('unet-kcla-small_1xb8-300e_isic2017-256x256', narrow)
    init_default_scope('mmseg')
    torch.save(dict(state_dict=MODELS.build(config.model).state_dict()), tmp_path / 'w.pth')
    rng = np.random.default_rng(0)
    cv2.imwrite(str(tmp_path / 'a.png'), rng.integers(0, 256, (96, 96, 3), dtype=np.uint8))
    cv2.imwrite(str(tmp_path / 'b.png'), rng.integers(0, 256, (75, 131, 3), dtype=np.uint8))
    words = ['unet-kcla-small_1xb8-300e_isic2017-256x256', str(tmp_path / 'w.pth'), str(tmp_path / 'b.png')]
    for name, more in (('whole', []), ('slid', ['--slide', 96])):  # of a.png the window is the whole
        infer(words, tmp_path / 'a.png', tmp_path / name, '--probability', *more, '--cfg-options', *narrow,
              'test_dataloader.dataset.pipeline.1.scale=(96,96)')
        assert read(tmp_path / name / 'b_mask.png').shape == (75, 131)
    one, other = (read(tmp_path / name / 'a_probability.png').astype(int) for name in ('whole', 'slid'))
    assert np.abs(one - other).max() <= 2


def test_options_that_make_no_sense(model, tmp_path, capsys):
    cv2.imwrite(str(tmp_path / 'a.png'), picture()[0])
    run = ['infer', *model, tmp_path / 'a.png', '--out-dir', tmp_path / 'o']
    for options, message in (
            (['--threshold', 1.5], '--threshold must be a probability between 0 and 1, got 1.5'),
            (['--threshold', 'nan'], '--threshold must be a probability between 0 and 1, got nan'),
            (['--stride', 8], '--stride needs --slide'),
            (['--slide', 8], '--slide must be at least 16 pixels, got 8'),
            (['--slide', 64, '--stride', 65], '--stride must be between 1 and the window size of 64 pixels, got 65')):
        assert error_of(capsys, *run, *options) == message
    crop = 'test_dataloader.dataset.pipeline.1=dict(_delete_=True, type=CenterCrop, crop_size=(64, 64))'
    assert 'contains CenterCrop, which moves pixels' in error_of(capsys, *run, '--cfg-options', crop)


def test_options_of_segmentation_are_refused_elsewhere(model, tmp_path, capsys):
    cv2.imwrite(str(tmp_path / 'a.png'), picture()[0])
    config = write_detector(tmp_path / 'detector.py', write_coco(tmp_path / 'coco', images=1))
    run = ['infer', config, model[1], tmp_path / 'a.png', '--out-dir', tmp_path / 'o']
    for options in (['--threshold', 0.5], ['--slide', 64], ['--probability']):
        assert error_of(capsys, *run, *options) == \
            f'{options[0]} is for segmentation (mmseg), but the config is for mmdet'


def test_sizes_that_a_network_refuses(model, tmp_path, capsys):
    """mmseg's U-Net takes multiples of 16 alone."""
    from mmengine.registry import init_default_scope
    init_default_scope('mmseg')
    config = Path(model[0]).with_name('unet.py')
    config.write_text("_base_ = './pixelwise.py'\nmodel = dict(\n    backbone=dict(_delete_=True, type='UNet', "
                      "base_channels=4, norm_cfg=dict(type='BN')),\n"
                      "    decode_head=dict(in_channels=4, channels=4, in_index=4))\n")
    torch.save(dict(state_dict=MODELS.build(Config.fromfile(config).model).state_dict()), tmp_path / 'u.pth')
    words = [str(config), str(tmp_path / 'u.pth')]
    cv2.imwrite(str(tmp_path / 'a.png'), picture()[0])
    message = error_of(capsys, 'infer', *words, tmp_path / 'a.png', '--out-dir', tmp_path / 'o', '--slide', 40)
    assert message.startswith('the network does not support 40×40 pixels (The input image size (40, 40) should be '
                              'divisible by the whole downsample rate 16')
    assert message.endswith('; choose another --slide')
    cv2.imwrite(str(tmp_path / 'b.png'), picture(48, 64)[0])
    assert main(['infer', *words, str(tmp_path / 'a.png'), str(tmp_path / 'b.png'), '--out-dir', str(tmp_path / 'o'),
                 '--batch-size', '2', '--cfg-options', 'test_dataloader.dataset.pipeline.1.scale=(64,48)',
                 'test_dataloader.dataset.pipeline.1.keep_ratio=True']) == 1  # one of a batch does not take all with it
    shown = capsys.readouterr().err
    result = json.loads((tmp_path / 'o' / 'predictions.json').read_text())
    assert [entry['picture'] for entry in result['images']] == ['b.png'] and len(result['failed']) == 1
    assert f'error: {tmp_path}/a.png: the network does not support 64×39 pixels' in shown
    assert 'data_preprocessor.test_cfg=dict(size_divisor=16)' in shown
    for more in (['--slide', 48], ['--slide', 40, '--cfg-options', 'model.data_preprocessor.test_cfg.size_divisor=16']):
        infer(words, tmp_path / 'a.png', tmp_path / 'o', *more)
        assert read(tmp_path / 'o' / 'a_mask.png').shape == (37, 61)


def test_values_that_are_not_finite(model, tmp_path, capsys):
    weights_file(Path(model[1]), [3e38] * 3, [0])  # finite, unlike the sums
    cv2.imwrite(str(tmp_path / 'a.png'), picture()[0])
    assert main(['infer', *model, str(tmp_path / 'a.png'), '--out-dir', str(tmp_path / 'o')]) == 1
    assert f'error: {tmp_path}/a.png: the network output is not finite' in capsys.readouterr().err
    assert json.loads((tmp_path / 'o' / 'predictions.json').read_text())['images'] == []


def test_notes_on_what_is_lost(model, tmp_path, capsys):
    grey, _ = picture()
    cv2.imwrite(str(tmp_path / 'twelve.png'), grey.astype(np.uint16) * 16)
    page = Image.fromarray(grey)
    page.save(tmp_path / 'pages.tif', save_all=True, append_images=[page, page])
    infer([*model, str(tmp_path / 'pages.tif')], tmp_path / 'twelve.png', tmp_path / 'o')
    shown = capsys.readouterr().err
    assert f'note: {tmp_path}/pages.tif has 3 pages; using the first' in shown
    assert (f'note: {tmp_path}/twelve.png has 16 bits per channel, but only small values, so that it is dark (maximum '
            '13 of 255); for 12 bits, set bits=12 in LoadImageFromFile of the test pipeline') in shown


def test_names_of_masks_do_not_collide(model, tmp_path):
    folder = tmp_path / 'in'
    folder.mkdir()
    for name in ('x.png', 'x_mask.png', 'X.jpg', 'x_probability.png'):
        cv2.imwrite(str(folder / name), picture()[0])
    entries = infer(model, folder, tmp_path / 'o', '--probability')['images']
    names = [entry[key].casefold() for entry in entries for key in ('picture', 'mask', 'probability')]
    assert len(entries) == 4 and len(set(names)) == 12
    assert {path.name.casefold() for path in (tmp_path / 'o').iterdir()} == {*names, 'predictions.json'}
