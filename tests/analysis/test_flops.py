"""Parameters and MACs of configs, against counts of the papers' code."""
import csv

import pytest
from tiny import error_of

from mmkcla.analysis.flops import complexity, markdown
from mmkcla.cli import main
from mmkcla.runtime.config import load_config
from mmkcla.runtime.hosts import prepare_hosts


def count(name, *shape, options=()):
    config = load_config(name, list(options))
    prepare_hosts(config)
    return complexity(config, shape)


def phi(stages, width):
    """MACs of KCLA's Φ, which the papers' counters take for a matrix product and which is element-wise here."""
    return sum(depth * (channels // width) ** 2 for channels, depth in stages)


# the papers' code, measured: millions of MACs, and parameters without dead ones and temperatures
@pytest.mark.parametrize(('name', 'shape', 'published', 'digits', 'parameters', 'stages', 'width'), [
    ('resnet20_1xb128-180e_cifar100', 32, .0338, 4, 243_508, [], 1),
    ('kcla-resnet20_1xb128-180e_cifar100', 32, .0362, 4, 258_637 - 643 - 56, [(64, 2), (128, 2), (256, 2)], 16),
    ('kcla-resnet56_1xb128-180e_cifar100', 32, .0939, 4, 650_853 - 643 - 168, [(64, 6), (128, 6), (256, 6)], 16),
    ('resnet50_8xb32_in1k', 224, 4.089, 3, 25_557_032, [], 1),
    ('kcla-resnet50_8xb32_in1k', 224, 4.162, 3, 25_850_133, [(256, 3), (512, 4), (1024, 6), (2048, 3)], 64),
])
def test_counts_of_the_papers_code(name, shape, published, digits, parameters, stages, width) -> None:
    result = count(name, shape, shape)
    assert result.parameters == parameters
    assert round((result.macs + phi(stages, width)) / 1e9, digits) == published
    top = [part for part in result.parts if not part.inside]
    assert sum(part.parameters for part in top) == result.parameters
    assert sum(part.macs for part in top) == result.macs
    assert result.proposals is None


def test_parts_by_hand() -> None:
    result = count('kcla-resnet20_digits', 16, 16)
    parts = {part.name: part for part in result.parts}
    assert list(parts) == ['backbone', 'layer_attentions', 'neck', 'head']
    assert parts['head'].macs == 256 * 10 and parts['head'].parameters == 256 * 10 + 10
    values = 9 * 2 * (64 * 16**2 + 128 * 8**2 + 256 * 4**2)
    carries = 128 * 64 // 8 * 8**2 + 256 * 128 // 16 * 4**2
    keys = 4 * (3 * 64 + 5 * 128 + 5 * 256) + 5 * 128 + 5 * 256  # queries and keys of the layers, keys of the carries
    assert parts['layer_attentions'].inside == 'backbone'
    assert parts['layer_attentions'].macs == values + carries + keys
    uncounted = {name: (calls, elements) for name, calls, elements in result.uncounted}
    assert uncounted['lerp'] == (5, 64 * 16**2 + 2 * 128 * 8**2 + 2 * 256 * 4**2)
    assert not {'convolution', 'addmm', 'view'} & uncounted.keys()


def test_detector_and_segmentor_without_data() -> None:
    result = count('mask-rcnn_r18-kcla_fpn_coins', 96, 96)
    parts = {part.name: part.macs for part in result.parts}
    assert list(parts) == ['backbone', 'layer_attentions', 'neck', 'rpn_head', 'roi_head']
    assert min(parts.values()) > 0 and result.proposals > 0
    listed = {name: calls for name, calls, _ in result.uncounted}
    assert listed['torchvision::roi_align'] == 2 and 'torchvision::nms' in listed
    assert f'mask-rcnn_r18-kcla_fpn_coins: {result.proposals}.' in markdown([result])[-1]
    result = count('unet-kcla-small_coins', 64, 96)
    parts = {part.name: part.macs for part in result.parts}
    assert list(parts) == ['backbone', 'layer_attentions', 'decode_head'] and min(parts.values()) > 0
    assert sum(parts.values()) - parts['layer_attentions'] == result.macs


def test_command_makes_one_table(tmp_path, capsys) -> None:
    assert main(['analyse', 'flops', 'kcla-resnet20_digits', 'resnet20_digits', '--shape', '16', '24', '--out-dir',
                 str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert 'GMAC (multiply-accumulates of convolutions and matrix products; FLOPs are twice that) at 16×24' in shown
    with open(tmp_path / 'flops.csv', encoding='utf-8') as file:
        rows = list(csv.DictReader(file))
    assert [(row['config'], row['part']) for row in rows] == [
        *(('kcla-resnet20_digits', part) for part in
          ('backbone', 'backbone.layer_attentions', 'neck', 'head', 'total')),
        *(('resnet20_digits', part) for part in ('backbone', 'neck', 'head', 'total'))]
    report = (tmp_path / 'flops.md').read_text(encoding='utf-8')
    assert '| kcla-resnet20_digits | 16×24 | **total** |' in report and '* resnet20_digits: ' in report
    assert 'lerp' in (tmp_path / 'uncounted.csv').read_text()


def test_errors(tmp_path, capsys) -> None:
    assert error_of(capsys, 'analyse', 'flops', 'resnet20_digits', '--shape', '1', '2', '3', '--out-dir', tmp_path) == \
        '--shape takes one or two positive numbers, got 1 2 3'
    (tmp_path / 'a.py').write_text('a = 1')
    assert error_of(capsys, 'analyse', 'flops', tmp_path / 'a.py', '--out-dir', tmp_path) == \
        f"config {tmp_path}/a.py has no 'model'"
    name = 'unet-s5-d16_1xb8-300e_kvasir-seg-256x256'
    message = error_of(capsys, 'analyse', 'flops', name, '--shape', '24', '--out-dir', tmp_path)
    assert f'{name}.py cannot be run on an input of 24×24: ' in message and message.endswith('; try another --shape')
