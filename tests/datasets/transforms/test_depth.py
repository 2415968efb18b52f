"""Images of every kind: training, test and inference load the same 8 bits, by the stated rule, or refuse the file."""
import io
from pathlib import Path

import cv2
import numpy as np
import pytest
from class_folders import class_config, write_classes
from mmengine.dataset import Compose
from PIL import Image
from seg_folders import SHAPE, seg_config, write_pairs

from mmkcla.datasets.check import check_config
from mmkcla.datasets.transforms import LoadImageFromFile, LoadImageFromNDArray
from mmkcla.errors import UserError
from mmkcla.runtime.inference.base import Predictor
from mmkcla.utils.images import bit_depth, to_8_bits

GREY = (np.arange(48).reshape(6, 8) * 1300).astype(np.uint16)  # 0 to 61100
COLOUR = np.dstack([GREY, GREY // 2, GREY // 4])
SMALL = np.rint(GREY / 257).astype(np.uint8)


def coded(pixels, suffix) -> bytes:
    return cv2.imencode(suffix, pixels)[1].tobytes()


def pillow(picture, kind, **options) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def bgr(pixels) -> np.ndarray:
    """The rule, written out: 65535 becomes 255."""
    scaled = np.floor(pixels.astype(np.float64) * 255 / 65535 + 0.5).astype(np.uint8)
    return np.repeat(scaled[..., None], 3, 2) if scaled.ndim == 2 else scaled[..., :3]


RGB8 = np.dstack([SMALL, SMALL // 2, 255 - SMALL])
PALETTE = Image.fromarray(RGB8).quantize(200)
# name: content, and what it is loaded as (BGR); None: as mmcv loads it
KINDS = {
    'grey16.png': (coded(GREY, '.png'), bgr(GREY)),
    'rgb16.png': (coded(COLOUR, '.png'), bgr(COLOUR)),
    'rgba16.png': (coded(np.dstack([COLOUR, GREY]), '.png'), bgr(COLOUR)),
    'grey16.tif': (coded(GREY, '.tif'), bgr(GREY)),
    'rgb16.tif': (coded(COLOUR, '.tif'), bgr(COLOUR)),
    'rgb16.ppm': (coded(COLOUR, '.ppm'), bgr(COLOUR)),
    'bits10.ppm': (b'P5\n8 6\n1023\n' + (np.arange(48) * 20).astype('>u2').tobytes(),
                   np.repeat(np.rint(np.arange(48) * 20 * 255 / 1023).reshape(6, 8, 1), 3, 2)),
    'bits4.ppm': (b'P5\n# a comment\n8 6\n15\n' + (np.arange(48) % 16).astype('u1').tobytes(),
                  np.repeat((np.arange(48) % 16 * 17).reshape(6, 8, 1), 3, 2)),
    'declared12.tif': (pillow(Image.fromarray(GREY // 16), 'TIFF', tiffinfo={281: 4095}),
                       np.repeat(np.rint((GREY // 16).astype(np.float64) * 255 / 4095)[..., None], 3, 2)),
    'bit1.png': (pillow(Image.fromarray(GREY > 20000), 'PNG'), np.repeat((GREY > 20000)[..., None], 3, 2) * 255),
    'bit1.tif': (pillow(Image.fromarray(GREY > 20000), 'TIFF'), np.repeat((GREY > 20000)[..., None], 3, 2) * 255),
    'palette.png': (pillow(PALETTE, 'PNG'), np.asarray(PALETTE.convert('RGB'))[..., ::-1]),
    'palette.tif': (pillow(PALETTE, 'TIFF'), np.asarray(PALETTE.convert('RGB'))[..., ::-1]),
    'cmyk.jpg': (pillow(Image.fromarray(RGB8).convert('CMYK'), 'JPEG'), None),
    'cmyk.tif': (pillow(Image.fromarray(RGB8).convert('CMYK'), 'TIFF'), None),
    'alpha.png': (pillow(Image.fromarray(np.dstack([RGB8, SMALL]), 'RGBA'), 'PNG'), RGB8[..., ::-1]),
    'greyalpha.png': (pillow(Image.fromarray(np.dstack([SMALL, SMALL]), 'LA'), 'PNG'), np.dstack([SMALL] * 3)),
    'pages.tif': (pillow(Image.fromarray(RGB8), 'TIFF', save_all=True, append_images=[Image.new('RGB', (8, 6))]),
                  RGB8[..., ::-1]),
    'animated.webp': (pillow(Image.fromarray(RGB8), 'WEBP', save_all=True, lossless=True,
                             append_images=[Image.new('RGB', (8, 6))]), RGB8[..., ::-1]),
    'animated.png': (pillow(Image.fromarray(RGB8), 'PNG', save_all=True, append_images=[Image.new('RGB', (8, 6))]),
                     RGB8[..., ::-1]),
    'grey8.png': (coded(SMALL, '.png'), np.dstack([SMALL] * 3)),
    'float.tif': (pillow(Image.fromarray((GREY / 65535).astype(np.float32)), 'TIFF'), 'its 32-bit values'),
    'int32.tif': (pillow(Image.fromarray(GREY.astype(np.int32)), 'TIFF'), 'its 32-bit values'),
}


class Bare(Predictor):
    """The loading of ``mmkcla infer``, without a model."""

    def __init__(self, pipeline):
        from mmkcla.runtime.inference.base import without_annotations
        loader, *_ = without_annotations(pipeline)
        self.loader, self.prepare = Compose([loader]), lambda results: results


@pytest.mark.parametrize('name', KINDS)
def test_training_test_and_inference_load_the_same(tmp_path, name):
    content, expected = KINDS[name]
    path = tmp_path / name
    path.write_bytes(content)
    step = dict(type='mmkcla.LoadImageFromFile')
    predictor = Bare([step, dict(type='PackSegInputs')])
    if isinstance(expected, str):
        for load in (lambda: LoadImageFromFile()(dict(img_path=str(path))), lambda: predictor.load(path)):
            with pytest.raises(UserError, match=expected) as caught:
                load()
            assert str(path) in str(caught.value) and '\n' not in str(caught.value)
        return
    trained = LoadImageFromFile()(dict(img_path=str(path)))['img']
    shown, inferred = predictor.load(path)
    assert trained.dtype == np.uint8 and trained.shape == (6, 8, 3)
    assert np.array_equal(inferred['img'], trained) and np.array_equal(shown[..., ::-1], trained)
    if expected is not None:
        assert np.array_equal(trained, expected)
    grey = LoadImageFromFile(color_type='grayscale')(dict(img_path=str(path)))['img']
    assert grey.dtype == np.uint8 and grey.shape == (6, 8)


def test_twelve_bits(tmp_path):
    path = str(tmp_path / 'a.png')
    values = np.array([[0, 1, 8, 9], [2048, 4000, 4094, 4095]], np.uint16)
    cv2.imwrite(path, values)
    loaded = LoadImageFromFile(bits=12)(dict(img_path=path))['img'][..., 0]
    assert loaded.tolist() == [[0, 0, 0, 1], [128, 249, 255, 255]]
    assert LoadImageFromFile()(dict(img_path=path))['img'].max() == 16
    with pytest.raises(UserError, match='it has the value 4095, but 1023 is the largest of 10 bits'):
        LoadImageFromFile(bits=10)(dict(img_path=path))
    assert np.array_equal(LoadImageFromFile(color_type='unchanged')(dict(img_path=path))['img'], values)
    for bits in (8, 17, '12', 12.0):
        with pytest.raises(UserError, match='must be an integer from 9 to 16'):
            LoadImageFromFile(bits=bits)


@pytest.mark.parametrize('backend', ['cv2', 'pillow'])
def test_backends_agree_on_16_bits(tmp_path, backend):
    path = str(tmp_path / 'a.png')
    cv2.imwrite(path, GREY)
    assert np.array_equal(LoadImageFromFile(imdecode_backend=backend)(dict(img_path=path))['img'], bgr(GREY))


@pytest.mark.parametrize('kind', ['mmdet.InferencerLoader', 'mmdet.LoadImageFromNDArray'])
def test_mmdet_loaders_know_no_bits(kind):
    """What docs/host-clients.md says of them, and its remedy."""
    import mmdet.datasets.transforms  # noqa: F401
    from mmengine.registry import TRANSFORMS, DefaultScope
    with DefaultScope.overwrite_default_scope('mmdet'):
        with pytest.raises(TypeError, match="unexpected keyword argument 'bits'"):
            TRANSFORMS.build(dict(type=kind, _scope_='mmkcla', bits=12))
        loader = TRANSFORMS.build(dict(type=kind, _scope_='mmkcla'))
    deep = np.full((2, 3, 3), 4095, np.uint16)
    assert (loader(dict(img=to_8_bits(deep, 2**12 - 1)))['img'] == 255).all()
    assert (LoadImageFromNDArray(bits=12)(dict(img=deep))['img'] == 255).all()


@pytest.mark.parametrize('orientation', range(1, 9))
def test_orientation_of_webp_is_applied(tmp_path, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    contents = {kind: pillow(Image.fromarray(RGB8), kind, exif=exif, **options)
                for kind, options in (('WEBP', dict(lossless=True)), ('PNG', {}))}
    loaded = {}
    for kind, content in contents.items():
        path = tmp_path / f'a.{kind.lower()}'
        path.write_bytes(content)
        loaded[kind] = LoadImageFromFile()(dict(img_path=str(path)))['img']
        shown, _ = Bare([dict(type='mmkcla.LoadImageFromFile')]).load(path)
        assert np.array_equal(shown[..., ::-1], loaded[kind])
    assert np.array_equal(loaded['WEBP'], loaded['PNG'])


def test_bit_depth():
    assert {name: bit_depth(content)[0] for name, (content, _) in KINDS.items() if '16' in name} == {
        name: 16 for name in KINDS if '16' in name}
    assert bit_depth(KINDS['declared12.tif'][0]) == (16, 4095)
    assert bit_depth(KINDS['bits10.ppm'][0]) == (16, 1023)
    assert bit_depth(KINDS['bits4.ppm'][0]) == (8, 15)
    assert bit_depth(KINDS['float.tif'][0])[0] == 32
    assert bit_depth(b'') == bit_depth(b'\xff\xd8\xff') == (8, None)
    assert to_8_bits(np.array([0, 128, 129, 65535], np.uint16), 65535).tolist() == [0, 0, 1, 255]


def deep_folder(root: Path, top: int) -> Path:
    write_pairs(root)
    for number, path in enumerate(sorted((root / 'images' / 'train').iterdir())):
        values = np.random.default_rng(number).integers(0, top + 1, SHAPE, dtype=np.uint16)
        values[0, 0] = top
        cv2.imwrite(str(path), values)
    return root


OURS = 'mmkcla.LoadImageFromFile'


def test_dark_images_are_refused_before_a_run(tmp_path, capsys):
    deep_folder(tmp_path, 4095)
    with pytest.raises(UserError, match='3 images of more than 8 bits, of which LoadImageFromFile drops the low ones; '
                                        "use type='mmkcla.LoadImageFromFile'"):
        check_config(seg_config(tmp_path), ('train',))
    with pytest.raises(UserError, match='3 images of 16 bits with values up to 4095 only, so that they would be dark; '
                                        'set bits=12 in mmkcla.LoadImageFromFile'):
        check_config(seg_config(tmp_path, image_loader=dict(type=OURS)), ('train',))
    for loader in (dict(type=OURS, bits=12), dict(type=OURS, bits=16), dict(type=OURS, color_type='unchanged'),
                   dict(type='LoadImageFromFile', color_type='unchanged')):
        check_config(seg_config(tmp_path, image_loader=loader), ('train',))
    assert capsys.readouterr().err == ''


@pytest.mark.parametrize('top', [20000, 65535])
def test_full_range_passes(tmp_path, top):
    check_config(seg_config(deep_folder(tmp_path, top), image_loader=dict(type=OURS)), ('train',))


def test_class_folders_of_deep_and_float_images(tmp_path):
    write_classes(tmp_path / 'train')
    config = class_config(tmp_path, dict(pipeline=[dict(type='LoadImageFromFile')]))
    check_config(config, ('train',))
    cv2.imwrite(str(tmp_path / 'train' / 'apple' / '0.png'), GREY)
    with pytest.raises(UserError, match='1 image of more than 8 bits'):
        check_config(config, ('train',))
    (tmp_path / 'train' / 'apple' / '0.png').unlink()
    (tmp_path / 'train' / 'apple' / '0.tif').write_bytes(KINDS['float.tif'][0])
    with pytest.raises(UserError, match='1 image of 32-bit or floating-point values'):
        check_config(config, ('train',))


def test_the_scope_names_our_loader_too(tmp_path):
    """``_scope_='mmkcla'`` with the plain type is the loader of this package: no finding about dropped bits."""
    from types import SimpleNamespace

    from mmkcla.datasets.image_files import depth_findings
    deep = [SimpleNamespace(path=tmp_path / 'a.png', bits=16)]
    ours = dict(type='LoadImageFromFile', _scope_='mmkcla', bits=16)
    assert depth_findings(deep, ours) == depth_findings(deep, dict(type='mmkcla.LoadImageFromFile', bits=16)) == []
    assert 'drops the low ones' in depth_findings(deep, dict(type='LoadImageFromFile'))[0].text
