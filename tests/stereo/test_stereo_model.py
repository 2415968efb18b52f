"""The parts of the stereo net against what they say they are, and the whole one learning."""
import numpy as np
import pytest
import torch
from mmengine.registry import MODELS
from mmengine.structures import BaseDataElement, PixelData
from stereo_data import ATTENTION, shifted_pair, small
from torch import nn

from mmkcla.errors import UserError
from mmkcla.stereo.model import HourglassAggregation, concatenation_volume, soft_argmin, upsample_logits


def build(config):
    model = MODELS.build(config)
    model.init_weights()
    return model


def sample_of(truth):
    return BaseDataElement(metainfo=dict(img_shape=truth.shape), gt_disparity=PixelData(data=truth[None]))


# parts ----------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('planes, width', [(4, 9), (1, 5), (7, 4)])
def test_volume_is_the_loop(planes, width):
    left, right = torch.randn(2, 2, 3, 5, width, dtype=torch.float64, requires_grad=True)
    expected = torch.zeros(2, 6, planes, 5, width, dtype=torch.float64)
    for d in range(planes):
        for x in range(d, width):
            expected[:, :3, d, :, x], expected[:, 3:, d, :, x] = left[..., x], right[..., x - d]
    volume = concatenation_volume(left, right, planes)
    assert torch.equal(volume, expected)
    volume.sum().backward()  # runs through the view of windows


def test_soft_argmin_of_known_volumes():
    logits = torch.full((1, 8, 1, 3), -1000.)
    logits[0, 5, 0, 0] = 0.  # certain: plane 5
    logits[0, 2:4, 0, 1] = 0.  # between 2 and 3
    logits[0, :, 0, 2] = 7.  # no idea: the mean
    assert soft_argmin(logits).flatten().tolist() == pytest.approx([5, 2.5, 3.5])
    probabilities = torch.tensor([.1, .2, .3, .4])
    assert soft_argmin(probabilities.log()[None, :, None, None]).item() == pytest.approx(2.0)
    assert soft_argmin(logits.half()).dtype == torch.float32
    fine = torch.randn(1, 192, 2, 2)
    expected = soft_argmin(fine)
    with torch.autocast('cpu', torch.bfloat16):
        assert torch.equal(soft_argmin(fine), expected)


def test_upsampled_plane_k_is_disparity_4k():
    d, y, x = torch.meshgrid(torch.arange(4.), torch.arange(3.), torch.arange(5.), indexing='ij')
    large = upsample_logits((4 * (10000 * d + 100 * y + x))[None], 4)[0]
    assert large.shape == (16, 12, 20)
    inner = large[:13, :9, :17]  # beyond the last plane, row and column the values go on
    d, y, x = torch.meshgrid(torch.arange(13.), torch.arange(9.), torch.arange(17.), indexing='ij')
    torch.testing.assert_close(inner, 10000 * d + 100 * y + x, rtol=1e-5, atol=0.05)
    torch.testing.assert_close(large[12:], large[12:13].expand(4, -1, -1))


def test_preprocessor_normalises_and_pads_both_views_alike():
    processor = MODELS.build(dict(type='mmkcla.StereoDataPreprocessor', mean=[1., 2., 3.], std=[2.] * 3,
                                  bgr_to_rgb=True))
    pairs = [torch.randint(0, 255, (2, 3, *size), dtype=torch.uint8) for size in ((4, 6), (5, 3))]
    inputs = processor(dict(inputs=pairs, data_samples=[BaseDataElement()] * 2))['inputs']
    assert inputs.shape == (2, 2, 3, 5, 6)
    for pair, padded in zip(pairs, inputs, strict=True):
        expected = (pair.flip(1).float() - torch.tensor([1., 2., 3.])[:, None, None]) / 2
        height, width = pair.shape[2:]
        torch.testing.assert_close(padded[..., :height, :width], expected)
        assert (padded[..., height:, :] == 0).all() and (padded[..., width:] == 0).all()


# the whole ------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('size', [(48, 64), (33, 50), (17, 16), (5, 7)])
@pytest.mark.parametrize('kind', ['BasicAggregation', 'HourglassAggregation'])
def test_any_size(size, kind):
    model = build(small(ATTENTION, aggregation=dict(type=f'mmkcla.{kind}', channels=4))).eval()
    with torch.no_grad():
        disparity = model(torch.randn(2, 2, 3, *size))
    assert disparity.shape == (2, *size) and disparity.isfinite().all()
    assert disparity.min() >= 0 and disparity.max() <= 15


def test_samples_of_a_batch_do_not_see_each_other_and_padding_changes_little():
    model = build(small(ATTENTION)).eval()
    inputs = torch.randn(3, 2, 3, 32, 48)
    with torch.no_grad():
        torch.testing.assert_close(model(inputs)[1:2], model(inputs[1:2]), rtol=1e-4, atol=1e-4)


def test_prediction_has_each_samples_own_size():
    model = build(small()).eval()
    samples = [BaseDataElement(metainfo=dict(img_shape=size)) for size in ((20, 30), (24, 17))]
    with torch.no_grad():
        samples = model(torch.randn(2, 2, 3, 24, 30), samples, mode='predict')
    assert [tuple(sample.pred_disparity.data.shape) for sample in samples] == [(1, 20, 30), (1, 24, 17)]


@pytest.mark.parametrize('attention', [None, ATTENTION])
def test_every_parameter_learns(attention):
    model = build(small(attention, aggregation=dict(type='mmkcla.HourglassAggregation', channels=4))).train()
    samples = [sample_of(torch.full((32, 48), 6.))] * 2
    losses = model(torch.randn(2, 2, 3, 32, 48), samples, mode='loss')
    sum(value for name, value in losses.items() if 'loss' in name).backward()
    dead = [name for name, parameter in model.named_parameters() if parameter.grad is None or not parameter.grad.any()]
    # a softmax over positions does not see a bias of the keys
    assert [name for name in dead if not name.endswith('keys.bias')] == []
    assert any('attentions' in name for name, _ in model.named_parameters()) is (attention is not None)


def test_loss_is_the_smooth_l1_of_valid_pixels_with_the_papers_weights():
    model = build(small(aggregation=dict(type='mmkcla.HourglassAggregation', channels=4))).train()
    model.disparities = lambda inputs: outputs
    outputs = [torch.rand(2, 4, 6) * 10 for _ in range(3)]
    truth = torch.rand(2, 4, 6) * 14 + 1
    truth[0, 0] = 0
    truth[0, 1, 0], truth[0, 1, 1], truth[0, 1, 2] = torch.nan, torch.inf, 16.
    losses = model(torch.zeros(2, 2, 3, 4, 6), [sample_of(truth[0]), sample_of(truth[1, :3, :5])], mode='loss')
    known = np.zeros((2, 4, 6), bool)
    known[0, 1:], known[1, :3, :5] = True, True
    known[0, 1, :3] = False
    for number, weight in enumerate((.5, .7, 1.)):
        error = np.abs((outputs[number] - truth).numpy()[known])
        expected = weight * np.where(error < 1, error**2 / 2, error - .5).mean()
        assert losses[f'loss_disparity_{number}'].item() == pytest.approx(expected, rel=1e-5)
    assert losses['epe'].item() == pytest.approx(error.mean(), rel=1e-5)


def test_no_valid_pixel_is_a_loss_of_zero_with_gradients():
    model = build(small()).train()
    losses = model(torch.randn(2, 2, 3, 16, 32), [sample_of(torch.zeros(16, 32))] * 2, mode='loss')
    assert losses['loss_disparity_0'].item() == 0
    losses['loss_disparity_0'].backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())


def test_zero_start_of_attention_survives_init_weights():
    plain, ours = build(small()), build(small({**ATTENTION, 'zero_init': True}))
    assert not ours.feature_net.attentions['3'].reprojection.weight.any()
    missing = ours.load_state_dict(plain.state_dict(), strict=False)
    assert all('attentions.3' in key for key in missing.missing_keys) and not missing.unexpected_keys
    inputs = torch.randn(1, 2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(plain.eval()(inputs), ours.eval()(inputs))


def test_attention_where_it_is_asked_for():
    config = small(ATTENTION)
    config['feature_net']['attention_stages'] = (1, 3)
    net = build(config).feature_net
    assert [net.attentions[key].in_channels for key in ('1', '3')] == [16, 16]
    assert sum(parameter.numel() for parameter in net.attentions.parameters()) == 2 * (3 * (16 * 8 + 8) + 8 * 16 + 16)


@pytest.mark.parametrize('attention', [None, ATTENTION])
def test_learns_a_shifted_texture(attention):
    """Training and test textures differ; the disparities are whole, so that the truth is exact."""
    torch.manual_seed(1)
    model = build(small(attention))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    generator = np.random.default_rng(0)

    def batch(size):
        disparities = generator.integers(2, 13, size)
        pairs = [np.stack(shifted_pair(generator, int(d))) for d in disparities]
        inputs = (torch.from_numpy(np.stack(pairs)).permute(0, 1, 4, 2, 3).float() - 127) / 50
        return inputs, [sample_of(torch.full(inputs.shape[-2:], float(d))) for d in disparities]

    test = batch(8)
    model.train()
    for _ in range(80):
        loss = model(*batch(8), mode='loss')['loss_disparity_0']
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        error = torch.stack([(sample.pred_disparity.data - sample.gt_disparity.data).abs().mean()
                             for sample in model(*test, mode='predict')])
    assert error.mean() < 1


@pytest.mark.parametrize('options, message', [
    (dict(max_disparity=18), 'max_disparity=18 must be a multiple of 4 for BasicAggregation'),
    (dict(max_disparity=24, aggregation={}), 'max_disparity=24 must be a multiple of 16 for HourglassAggregation'),
    (dict(loss_weights=(1., 2.)), r'loss_weights=\(1.0, 2.0\) must be one number for each of the 1 outputs'),
    (dict(feature_net=dict(stage_blocks=(1, 1, 1))), r'stage_blocks=\(1, 1, 1\) must be 4 integers of at least 1'),
    (dict(feature_net=dict(attention_stages=(4, ))), 'attention_stages has 4; the stages are 0 to 3'),
    (dict(feature_net=dict(attention=dict(type='mmkcla.EfficientAttention', num_heads=3))),
     'key_channels=64 is not divisible by num_heads=3'),
])
def test_bad_arguments(options, message):
    with pytest.raises(UserError, match=message):
        MODELS.build(small() | options)


def test_bad_inputs():
    model = build(small())
    with pytest.raises(UserError, match=r'pairs of colour images \(B, 2, 3, H, W\), got \(1, 3, 8, 8\)'):
        model(torch.zeros(1, 3, 8, 8))
    with pytest.raises(UserError, match='the pair a/b.png has no ground-truth disparity'):
        model(torch.zeros(1, 2, 3, 8, 8), [BaseDataElement(metainfo=dict(left_path='a/b.png'))], mode='loss')
    with pytest.raises(UserError, match="mode='loss' needs a data sample for each of the 1 pairs, got 0"):
        model(torch.zeros(1, 2, 3, 8, 8), mode='loss')
    with pytest.raises(UserError, match="mode='train' is unknown; choose one of: tensor, predict, loss"):
        model(torch.zeros(1, 2, 3, 8, 8), mode='train')


def test_hourglasses_written_out():
    """PSMNet's: the first one's way down goes to all later ones, the way up to the next, logits add up."""
    net = HourglassAggregation(6, 4, stacks=3).double().eval()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm3d):
            module.running_mean.normal_(), module.running_var.uniform_(.5, 2.), module.weight.data.normal_()
    volume = torch.randn(1, 6, 4, 8, 8, dtype=torch.float64)
    x = net.reduction(volume)
    base = x + net.pair(x)
    expected, x, way_down, way_up = [], base, None, None
    for number in range(3):
        glass = net.hourglasses[number]
        down = glass.middle(glass.down(x))
        down = (down if number == 0 else down + way_up).relu()
        way_down = down if number == 0 else way_down
        way_up = (glass.up(glass.bottom(down)) + way_down).relu()
        x = glass.out(way_up) + base
        expected.append(net.outputs[number](x)[:, 0] + (expected[-1] if expected else 0))
    for ours, written in zip(net(volume), expected, strict=True):
        torch.testing.assert_close(ours, written)
    assert all((a - b).abs().max() > 1e-3 for a, b in zip(expected, expected[1:], strict=False))


def test_full_size_net_of_the_config_is_batch_norms_and_convolutions():
    model = MODELS.build(dict(type='mmkcla.EAPSMNet'))
    assert (model.max_disparity, model.divisor, model.loss_weights) == (192, 16, (.5, .7, 1.))
    with_bias = [name for name, module in model.named_modules()
                 if isinstance(module, (nn.Conv2d, nn.Conv3d, nn.ConvTranspose3d)) and module.bias is not None]
    assert with_bias == []
