"""``mmkcla export``: files that compute what the host computes, for any size, run without OpenMMLab."""
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tiny import error_of

from mmkcla.analysis.subject import seeded_model
from mmkcla.cli import main
from mmkcla.runtime.config import load_config
from mmkcla.runtime.export import formats, modules, parity
from mmkcla.runtime.hosts import prepare_hosts

EXAMPLES = Path(__file__).parents[2] / 'examples' / 'deploy'
SHALLOW = ['model.backbone.depth=11', 'model.head.in_channels=256']
DIGITS, UNET = 'demo/kcla-resnet20_digits.py', 'demo/unet-kcla-small_coins.py'
DETECTOR = 'demo/faster-rcnn_r18-kcla_fpn_coins.py'
# the scripts must not import them; a finder that refuses stands for an environment without them
WITHOUT = '''
import runpy, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in {'torch', 'mmengine', 'mmcv', 'mmdet', 'mmseg', 'mmpretrain', 'mmkcla', 'cv2'}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name='__main__')
'''


def weights(config: str, path: Path, options: tuple[str, ...] | list[str] = ()) -> Path:
    """A checkpoint of random weights with statistics of batch norms that are not neutral."""
    config = load_config(config, list(options))
    prepare_hosts(config)
    model = seeded_model(config)
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if name.endswith('running_var'):
                value.uniform_(0.5, 1.5)
            elif name.endswith('running_mean'):
                value.normal_(std=0.3)
    torch.save(dict(state_dict=model.state_dict(), meta={}), path)
    return path


@pytest.fixture
def photo(tmp_path):
    """Red, green and blue differ, so that a wrong channel order shows."""
    rows, columns = np.mgrid[:40, :56]
    pixels = np.stack([rows * 6, columns * 4, 255 - rows * 3 - columns * 2], -1).clip(0, 255).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / 'photo.png')
    return tmp_path / 'photo.png'


def run_example(script: str, *args: Path) -> str:
    done = subprocess.run([sys.executable, '-c', WITHOUT, str(EXAMPLES / script), *map(str, args)], text=True,
                          capture_output=True, check=False, env={**os.environ, 'PYTHONPATH': ''})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_onnx_classifier_runs_without_openmmlab(tmp_path, photo, capsys):
    for package in ('onnx', 'onnxscript', 'onnxruntime'):
        pytest.importorskip(package)
    checkpoint = weights(DIGITS, tmp_path / 'w.pth', SHALLOW)
    out = tmp_path / 'digits.onnx'
    assert main(['export', DIGITS, str(checkpoint), '--image', str(photo), '--out', str(out), '--cfg-options',
                 *SHALLOW]) == 0
    shown = capsys.readouterr().out
    assert 'ONNX opset 18, input batch × 3 × height × width (any batch and size), outputs: probabilities' in shown
    facts = json.loads((tmp_path / 'digits.onnx.json').read_text())
    assert facts['classes'] == [str(digit) for digit in range(10)]
    assert facts['input']['shape'] == ['batch', 3, 'height', 'width'] and facts['task'] == 'classification'
    assert len(facts['largest_difference']) == 4 and max(facts['largest_difference'].values()) <= 1e-4
    small = tmp_path / 'small.png'  # of the prepared size: the two programs see the same pixels
    Image.open(photo).resize(facts['input']['prepared_size'][::-1]).save(small)
    name, label, score = run_example('classify_onnx.py', out, small).rsplit(None, 2)
    assert main(['infer', DIGITS, str(checkpoint), str(small), '--out-dir', str(tmp_path / 'p'), '--cfg-options',
                 *SHALLOW]) == 0
    best = json.loads((tmp_path / 'p' / 'predictions.json').read_text())['images'][0]['predictions'][0]
    assert (name, label) == (str(small), best['class']) and float(score) == pytest.approx(best['score'], abs=1e-4)


def test_torch_export_of_a_segmentor_equals_infer(tmp_path, photo, capsys):
    checkpoint = weights(UNET, tmp_path / 'w.pth')
    out = tmp_path / 'unet.pt2'
    assert main(['export', UNET, str(checkpoint), '--format', 'torch-export', '--image', str(photo),
                 '--out', str(out)]) == 0
    assert '1 image of 160×192: ' in capsys.readouterr().out
    square = tmp_path / 'square.png'
    Image.open(photo).resize((128, 128)).save(square)
    assert main(['infer', UNET, str(checkpoint), str(square), '--out-dir', str(tmp_path / 'p'), '--probability']) == 0
    expected = np.asarray(Image.open(tmp_path / 'p' / 'square_probability.png')) / 65535
    pixels = torch.from_numpy(np.asarray(Image.open(square), np.float32)).permute(2, 0, 1)[None]
    found = torch.export.load(out).module()(pixels)[0, 0].detach().numpy()
    assert np.ptp(expected) > 0.01 and np.abs(found - expected).max() < 1e-4


@pytest.mark.slow
def test_onnx_segmentor_runs_without_openmmlab(tmp_path, photo):
    checkpoint = weights(UNET, tmp_path / 'w.pth')
    out = tmp_path / 'unet.onnx'
    assert main(['export', UNET, str(checkpoint), '--image', str(photo), '--out', str(out)]) == 0
    square = tmp_path / 'square.png'
    Image.open(photo).resize((128, 128)).save(square)
    run_example('segment_onnx.py', out, square)
    assert main(['infer', UNET, str(checkpoint), str(square), '--out-dir', str(tmp_path / 'p')]) == 0
    mask, expected = (np.asarray(Image.open(path)) for path in
                      (f'{square}_mask.png', tmp_path / 'p' / 'square_mask.png'))
    assert 0 < (expected > 0).mean() < 1 and (mask != expected).mean() < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize('kind', ['onnx', 'torch-export'])
def test_features_of_a_detector(tmp_path, photo, kind, capsys):
    checkpoint = weights(DETECTOR, tmp_path / 'w.pth')
    out = tmp_path / f'features{".onnx" if kind == "onnx" else ".pt2"}'
    assert main(['export', DETECTOR, str(checkpoint), '--format', kind, '--part', 'features', '--image', str(photo),
                 '--out', str(out)]) == 0
    assert 'outputs: feature_0, feature_1, feature_2, feature_3, feature_4' in capsys.readouterr().out
    assert json.loads(out.with_name(out.name + '.json').read_text())['input']['size_divisor'] == 32


def test_refusals(tmp_path, photo, capsys):
    checkpoint = weights(DETECTOR, tmp_path / 'w.pth')
    assert error_of(capsys, 'export', DETECTOR, checkpoint, '--image', photo, '--out', tmp_path / 'a.onnx') == (
        'FasterRCNN selects its boxes in Python, a different number for each image, which neither format can hold; '
        'export its backbone and neck with --part features')
    assert error_of(capsys, 'export', DETECTOR, checkpoint, '--out', tmp_path / 'a.pt').endswith(
        'files of --format onnx end with .onnx')
    assert error_of(capsys, 'export', DETECTOR, checkpoint, '--image', tmp_path / 'nothing.png') == (
        f'no such image or folder: {tmp_path}/nothing.png')
    assert not list(tmp_path.glob('a.*'))


def test_a_file_that_computes_something_else_is_not_published(tmp_path, photo, monkeypatch, capsys):
    """Every form of the file is refused, and the message has the differences."""
    checkpoint = weights(DIGITS, tmp_path / 'w.pth', SHALLOW)
    load = formats.load
    monkeypatch.setattr(formats, 'load', lambda kind, path: lambda images: [
        out + 0.01 for out in load(kind, path)(images)])
    message = error_of(capsys, 'export', DIGITS, checkpoint, '--format', 'torch-export', '--image', photo,
                       '--fixed-size', '--out', tmp_path / 'digits.pt2', '--cfg-options', *SHALLOW)
    assert message.startswith('ImageClassifier cannot be exported as torch-export; one image of one size: differs from '
                              'PyTorch, 1 image of 16×16: 1.0e-02')
    assert not list(tmp_path.glob('digits*'))


def test_a_size_that_a_model_fixes_is_named(tmp_path, capsys):
    """A model that looks at its input's height is exported with that size, and a note says why."""
    class Fixed(modules.ImageModel):
        def __init__(self):
            torch.nn.Module.__init__(self)
            self.size_divisor, self.kind, self.model = 1, 'features', torch.nn.Identity()

        def forward(self, images):
            return images * 2 if images.shape[2] == 8 else images

    from mmkcla.runtime.export.run import _write_checked
    exported = _write_checked(Fixed().eval(), 'torch-export', tmp_path / 'a.pt2', torch.rand(1, 3, 8, 8), ['feature_0'],
                              False)
    assert exported.input_shape == ['batch', 3, 8, 8] and exported.free == 'any batch, one size'
    assert 'note: not exported with any batch and size: ' in capsys.readouterr().err


def test_differences_are_relative_and_infinite_for_other_shapes():
    one = torch.tensor([[1., 50.]])
    assert parity.largest_difference([one], [one + torch.tensor([0., 5.])]) == pytest.approx(5 / 55)
    assert parity.largest_difference([one], [one[:, :1]]) == float('inf')
    assert parity.largest_difference([one], [one * float('nan')]) == float('inf')
    assert parity.exceeding({'a': float('nan'), 'b': 1e-5}) == ['a: nan']
