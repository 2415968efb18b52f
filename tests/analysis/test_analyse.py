"""The analyses of a model on images: values, files, words, errors."""
import csv
import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from tiny import error_of

from mmkcla.analysis.decay import decay
from mmkcla.analysis.key_similarity import Similarity, conclusions, cosines, key_similarity
from mmkcla.analysis.layer_weights import layer_weights
from mmkcla.analysis.subject import build_subject
from mmkcla.cli import main
from mmkcla.runtime.config import load_config
from mmkcla.runtime.hosts import prepare_hosts

CONFIG = 'kcla-resnet20_digits'


@pytest.fixture(scope='module')
def images(tmp_path_factory):
    """Two smooth images in a folder."""
    folder = tmp_path_factory.mktemp('images')
    rows, columns = np.mgrid[:24, :24]
    for number in range(2):
        wave = np.sin(rows / (3 + number) + columns / 4)[..., None] * [100, 60, -80] + 128
        Image.fromarray(wave.astype(np.uint8)).save(folder / f'{number}.png')
    return folder


def files_of(folder):
    return sorted(folder.glob('*.png'))


def subject_of(name, checkpoint=None, **options):
    config = load_config(name, [])
    prepare_hosts(config)
    return build_subject(config, checkpoint, **options)


def rows_of(path):
    with open(path, encoding='utf-8', newline='') as file:
        return list(csv.DictReader(file))


# -- values ------------------------------------------------------------------------------------------------------------

def test_cosines_by_hand() -> None:
    # two layers, one sample, two heads of two channels: parallel in the first head, at 60° in the second
    stage_keys = torch.tensor([[[[3., 0.], [1., 0.]]], [[[5., 0.], [1., 3 ** 0.5]]]])
    torch.testing.assert_close(cosines(stage_keys)[0], torch.tensor([[1, .75], [.75, 1]], dtype=torch.float64))
    assert cosines(torch.zeros(2, 1, 1, 2)).abs().max() == 0


def test_conclusion_of_keys(images) -> None:
    subject = subject_of(CONFIG)
    mean = np.array([[1, .9, .5], [.9, 1, .7], [.5, .7, 1]])
    result = Similarity(subject, 3, 12, mean, mean * 0)
    assert conclusions([result]) == [
        f'{CONFIG} (KCLA, random weights, seed 0), stage 3: keys of neighbouring layers have mean cosine 0.800, '
        'of layers 2 apart 0.500 (12 images)']
    assert conclusions([Similarity(subject, 1, 1, np.ones((1, 1)), np.ones((1, 1)))])[0].endswith('one layer, no pairs')


def test_images_are_prepared_as_the_tests_do(images) -> None:
    subject = subject_of(CONFIG)
    file = files_of(images)[0]
    prepared = subject.prepare(file)
    assert prepared.shape == (1, 3, 16, 16)  # the config's Resize
    resized = subject_of(CONFIG, size=(24, 24)).prepare(file)
    pixels = torch.from_numpy(np.array(Image.open(file))).permute(2, 0, 1)
    torch.testing.assert_close(resized[0], (pixels - 78.) / 96.)
    cifar = [subject_of('kcla-resnet20_1xb128-180e_cifar10', **size).prepare(file)[0]
             for size in ({}, dict(size=(24, 24)))]  # mmpretrain's CIFAR is RGB, and not turned by to_rgb
    mean, std = (255 * torch.tensor(values)[:, None, None] for values in ([.4914, .4822, .4465],
                                                                           [.2023, .1994, .2010]))
    torch.testing.assert_close(cifar[0], (pixels - mean) / std)
    torch.testing.assert_close(cifar[1], cifar[0], rtol=0, atol=0)


def test_random_weights_follow_the_seed() -> None:
    first, again, other = (subject_of(CONFIG, seed=seed).model.backbone.state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first['conv1.weight'], other['conv1.weight'])


def test_key_similarity_is_the_mean_over_images(images) -> None:
    subject = subject_of(CONFIG)
    single = [cosines(stage.keys())[0].detach().numpy()
              for stage in (subject.stages(file)[1] for file in files_of(images))]
    result = key_similarity(subject, files_of(images))[1]
    assert result.stage == 2 and result.images == 2 and result.mean.shape == (2, 2)
    np.testing.assert_allclose(result.mean, np.mean(single, 0))
    np.testing.assert_allclose(result.std, np.std(single, 0, ddof=1), atol=1e-12)


@pytest.mark.parametrize('name', [CONFIG, 'mrla-light-resnet20_digits', 'softmax-resnet20_digits',
                                  'mrla-base-resnet20_digits', 'dla-light-resnet20_digits'])
def test_decay_of_every_method(images, name) -> None:
    subject = subject_of(name)
    files = files_of(images)
    found = decay(subject, files)
    light = name.startswith(('mrla-light', 'dla-light'))
    for stage in (1, 2, 3):
        own = {share.token: share for share in found if share.stage == stage and share.layer == 2}
        assert sorted(own) == ([0, 1, 2] if name == CONFIG and stage > 1 else [1, 2])
        assert sum(share.relative for share in own.values()) == pytest.approx(1, abs=1e-5)
        if light:
            assert own[2].mean == 1 and own[1].with_norm > 0
        else:
            assert sum(share.mean for share in own.values()) == pytest.approx(1, abs=1e-5)
            assert own[1].with_norm is None
    second = next(share for share in found if (share.stage, share.layer, share.token) == (2, 2, 1))
    expected = []
    for file in files:
        stage = subject.stages(file)[1]
        parts = stage.shares(1)
        expected.append(float(parts.weights[parts.tokens.index(1)].detach().abs().mean()))
    assert second.mean == pytest.approx(np.mean(expected)) and second.back == 1
    assert second.std == pytest.approx(np.std(expected, ddof=1), abs=1e-9)
    if name == 'mrla-light-resnet20_digits':
        past = subject.model.backbone.layer_attentions[1][1].past
        assert second.mean == pytest.approx(float(past.detach().abs().mean()))


def test_layer_weights_of_a_stage(images) -> None:
    subject = subject_of(CONFIG)
    first, second, _ = layer_weights(subject, files_of(images))
    grid = second.heat_map()
    assert grid.shape == (2, 3) and np.isnan(grid[0, 2]) and not np.isnan(grid[1]).any()
    np.testing.assert_allclose(np.nansum(grid, 1), 1, atol=1e-5)
    assert first.heat_map().shape == (2, 2) and first.heat_map()[0, 0] == pytest.approx(1)
    layer = subject.model.backbone.layer_attentions[1][1]
    np.testing.assert_allclose(second.phi[2], layer.head_mixing.weight.detach())
    np.testing.assert_allclose(second.temperatures[2], np.stack([layer.log_temperature.exp()] * 2), rtol=1e-6)
    assert all(0 < value < 1 for of_image in second.gates[1] for value in of_image)


# -- the command -------------------------------------------------------------------------------------------------------

def test_keys_command(images, tmp_path, capsys) -> None:
    assert main(['analyse', 'keys', CONFIG, 'softmax-resnet20_digits', '--images', str(images), '--out-dir',
                 str(tmp_path)]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert sum('random weights, seed 0), stage' in line and line.endswith('(2 images)') for line in shown) == 6
    rows = rows_of(tmp_path / 'key_similarity.csv')
    assert len(rows) == 2 * 3 * 3 and {row['weights'] for row in rows} == {'random weights, seed 0'}
    assert all(float(row['cosine']) == pytest.approx(1) for row in rows if row['layer_i'] == row['layer_j'])
    value = next(row['cosine'] for row in rows if row['layer_i'] != row['layer_j'])
    assert f'mean cosine {float(value):.3f}' in shown[0]
    for name in (CONFIG, 'softmax-resnet20_digits'):
        assert Image.open(tmp_path / f'key_similarity_{name}.png').size[0] > 500


def test_decay_command_with_checkpoints(images, tmp_path, capsys) -> None:
    subject = subject_of(CONFIG, seed=3)
    torch.save(dict(state_dict=subject.model.state_dict()), tmp_path / 'whole.pth')
    torch.save(subject.model.backbone.state_dict(), tmp_path / 'backbone.pth')
    tables = []
    for checkpoint, seed in (('whole.pth', '0'), ('backbone.pth', '0'), ('-', '3')):
        given = checkpoint if checkpoint == '-' else str(tmp_path / checkpoint)
        assert main(['analyse', 'decay', CONFIG, 'mrla-light-resnet20_digits', '--checkpoint', given, '-', '--seed',
                     seed, '--images', *map(str, files_of(images)), '--out-dir', str(tmp_path / 'out')]) == 0
        shown = capsys.readouterr().out
        assert f'{CONFIG} (KCLA, {"random weights, seed 3" if checkpoint == "-" else checkpoint}), stage 1' in shown
        assert 'of what was carried over' in shown and '|Πλ|, not normalised' in shown
        tables.append([row['share'] for row in rows_of(tmp_path / 'out' / 'decay.csv') if row['method'] == 'KCLA'])
    assert tables[0] == tables[1] == tables[2] and len(tables[0]) == 3 + 5 + 5
    assert Image.open(tmp_path / 'out' / 'decay.png').size[0] > 500


def test_weights_command(images, tmp_path, capsys) -> None:
    assert main(['analyse', 'weights', CONFIG, 'mrla-base-resnet20_digits', '--images', str(images), '--size', '16',
                 '20', '--max-images', '1', '--out-dir', str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert 'note: using the first 1 of 2 images (--max-images)' in captured.err
    assert 'temperatures from 0.700 to 1.429; gates 0.' in captured.out
    names = {path.name for path in tmp_path.iterdir()}
    assert {f'{name}_{CONFIG}.csv' for name in ('layer_weights', 'temperatures', 'phi', 'gates')} < names
    assert 'layer_weights_mrla-base-resnet20_digits.png' in names
    assert not any(name.startswith(('phi_mrla', 'gates_mrla', 'temperatures_mrla')) for name in names)
    assert len(rows_of(tmp_path / f'phi_{CONFIG}.csv')) == 2 * (4**2 + 8**2 + 16**2)
    gates = rows_of(tmp_path / f'gates_{CONFIG}.csv')
    assert len(gates) == 6 and {row['image'] for row in gates} == {'0.png'}
    weights = rows_of(tmp_path / f'layer_weights_{CONFIG}.csv')
    assert sum(float(row['weight']) for row in weights if row['stage'] == '3' and row['layer'] == '2') == \
        pytest.approx(16, abs=1e-3)  # heads
    assert weights[0]['weight_std'] == ''  # one image


@pytest.mark.parametrize('name', ['faster-rcnn_r18-kcla_fpn_coins', 'unet-kcla-small_coins'])
def test_detectors_and_segmentors(images, tmp_path, capsys, name) -> None:
    assert main(['analyse', 'decay', name, '--images', str(images), '--max-images', '1', '--size', '64', '--out-dir',
                 str(tmp_path)]) == 0
    assert f'{name} (KCLA, random weights, seed 0), stage 4, output of layer 2' in capsys.readouterr().out
    subject = subject_of(name)
    assert len(subject.stages(files_of(images)[0])) == 4  # through the config's own test pipeline


def test_errors(images, tmp_path, capsys) -> None:
    def failing(*arguments):
        return error_of(capsys, 'analyse', *arguments, '--out-dir', tmp_path / 'out')

    message = failing('keys', 'resnet20_digits', '--images', images)
    assert message.startswith('the backbone of config ') and 'has no layer attention; if its type' in message
    (tmp_path / 'empty').mkdir()
    assert failing('decay', CONFIG, '--images', tmp_path / 'empty').startswith(f'no images in {tmp_path}/empty ')
    options = ('--cfg-options', 'model.backbone.layer_attention.type=EfficientLayerAttention',
               'model.backbone.layer_attention.key_channels=8')
    assert failing('keys', CONFIG, '--images', images, *options) == \
        'EfficientLayerAttention has no key of a layer: it looks at its own map alone'
    assert failing('weights', CONFIG, '--images', images, *options) == \
        'EfficientLayerAttention gives earlier layers no share: it looks at its own map alone'
    torch.save(subject_of('mrla-base-resnet20_digits').model.state_dict(), tmp_path / 'mrla.pth')
    message = failing('keys', CONFIG, '--images', images, '--checkpoint', tmp_path / 'mrla.pth')
    assert message.startswith(f'checkpoint {tmp_path}/mrla.pth fits the model of the config only partially (')
    assert 'missing: layer_attentions.0.0.log_temperature' in message
    assert failing('keys', CONFIG, '--images', images, '--checkpoint', '-', '-') == \
        '--checkpoint has 2 values for 1 configs; give one per config (- for random weights)'
    assert failing('keys', CONFIG, '--images', images, '--checkpoint', 'no.pth') == 'no such checkpoint: no.pth'
    assert failing('keys', CONFIG, CONFIG, '--images', images) == \
        f'two configs are named {CONFIG}; rename one of them'
    assert failing('keys', CONFIG, '--images', images, '--max-images', '0') == '--max-images must be at least 1, got 0'
    assert failing('keys', CONFIG, '--images', images, '--size', '0') == \
        '--size takes one or two positive numbers, got 0'
    shutil.copy(__file__, tmp_path / 'not.png')
    assert str(tmp_path / 'not.png') in failing('keys', CONFIG, '--images', tmp_path / 'not.png')
