"""The U-Net: encoder with the stem's map, decode head, Dice loss."""
import pytest
import torch
from mmseg.models.losses import CrossEntropyLoss, DiceLoss
from torch import nn

from mmkcla.errors import UserError
from mmkcla.models.backbones import KCLAResNet, LayerAttentionResNet
from mmkcla.models.decode_heads import UNetHead
from mmkcla.models.losses import BinaryDiceLoss

SMALL = dict(depth=18, small_stem=True, stem_out=True, stem_channels=16, stage_channels=(32, 64, 128, 128),
             strides=(2, 2, 2, 2), out_indices=(0, 1, 2, 3))


def small_unet(**head):
    encoder = KCLAResNet(**SMALL, layer_attention=dict(type='KCLA', head_channels=16, drop_path=0.))
    return encoder, UNetHead(encoder.out_channels, (64, 32, 32, 16), num_classes=2, out_channels=1, threshold=0.5,
                             **head)


def parameters(module):
    return sum(p.numel() for p in module.parameters())


def test_small_unet_is_near_the_papers_size():
    encoder, head = small_unet()
    assert encoder.out_channels == (16, 32, 64, 128, 128) and encoder.out_strides == (1, 2, 4, 8, 16)
    assert 1.4e6 < parameters(encoder) + parameters(head) < 1.7e6


@pytest.mark.parametrize('upsample', ['bilinear', 'deconv'])
@pytest.mark.parametrize('size', [(64, 64), (33, 47), (17, 16)])
def test_any_input_size(upsample, size):
    encoder, head = small_unet(upsample=upsample)
    x = torch.randn(2, 3, *size)
    outs = encoder(x)
    assert [out.shape[1] for out in outs] == list(encoder.out_channels)
    assert head(outs).shape == (2, 1, *size)


def test_every_input_pixel_reaches_the_deepest_map_and_back():
    """The reference decoder crops: only 324 of its 1,024 deepest cells are seen. Here each one counts."""
    head = UNetHead((8, 16), (8, ), num_classes=2, out_channels=1, dropout_ratio=0.).eval()
    deep = torch.randn(1, 16, 8, 8, requires_grad=True)
    head([torch.randn(1, 8, 16, 16), deep]).sum().backward()
    assert (deep.grad.abs().sum(1) > 0).all()


def test_map_with_the_size_of_the_skip_is_unchanged():
    head = UNetHead((8, 16), (8, ), num_classes=2, out_channels=1)
    x = torch.randn(1, 16, 7, 9)
    assert head._to_size(x, head.ups[0], torch.Size((7, 9))) is x


def test_stem_map_is_the_map_before_the_max_pool():
    net = LayerAttentionResNet(18, base_channels=16, stem_channels=16, stem_out=True, out_indices=(0, 3)).eval()
    plain = LayerAttentionResNet(18, base_channels=16, stem_channels=16, out_indices=(0, 3)).eval()
    plain.load_state_dict(net.state_dict())
    x = torch.randn(2, 3, 37, 64)
    stem, *rest = net(x)
    torch.testing.assert_close(stem, net.relu(net.norm1(net.conv1(x))), rtol=0, atol=0)
    for ours, theirs in zip(rest, plain(x), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    assert net.out_channels == (16, 16, 128) and net.out_strides == (2, 4, 32)
    assert stem.shape == (2, 16, 19, 32)


def test_every_parameter_learns():
    encoder, head = small_unet()
    head(encoder(torch.randn(2, 3, 32, 32))).square().sum().backward()
    for name, parameter in nn.ModuleList([encoder, head]).named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize(('make', 'message'), [
    (lambda: UNetHead((8, 16), (8, 8), num_classes=2), r'decoder_channels=\(8, 8\) has 2 entries; 2 maps need 1'),
    (lambda: UNetHead((8, 16), (8, ), in_index=(0, ), num_classes=2), r'in_index=\(0,\) and in_channels=\(8, 16\) dif'),
    (lambda: UNetHead((8, 16), (8, ), upsample='nearest', num_classes=2), "upsample='nearest' is unknown; choose one"),
    (lambda: UNetHead((8, 16), (8, ), upsample='deconv', num_classes=2, out_channels=1)(
        [torch.zeros(1, 8, 8, 8), torch.zeros(1, 16, 8, 8)]), r"cannot upsample a map from \(8, 8\) to \(8, 8\)"),
    (lambda: LayerAttentionResNet(18, stage_channels=(8, 8)), r'stage_channels=\(8, 8\) has 2 entries for 4 stages'),
    (lambda: LayerAttentionResNet(18, small_stem=True, deep_stem=True), 'small_stem and deep_stem cannot both be set'),
])
def test_invalid_values_are_reported(make, message):
    with pytest.raises(UserError, match=message):
        make()


# Losses -------------------------------------------------------------------------------------------------------------

def batch(seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(3, 1, 5, 7, generator=generator)
    labels = torch.randint(0, 2, (3, 5, 7), generator=generator)
    return logits, labels


def dice_by_hand(logits, labels, smooth=1., ignore=255):
    total = 0.
    for image, truth in zip(logits[:, 0], labels, strict=True):
        both = each = 0.
        for logit, label in zip(image.flatten().tolist(), truth.flatten().tolist(), strict=True):
            if label != ignore:
                p = 1 / (1 + torch.tensor(-logit).exp().item())
                both, each = both + p * label, each + p + label
        total += 1 - (2 * both + smooth) / (each + smooth)
    return total / len(logits)


def test_dice_is_the_formula():
    logits, labels = batch()
    assert BinaryDiceLoss()(logits, labels).item() == pytest.approx(dice_by_hand(logits, labels), abs=1e-6)
    labels[0, :2] = 255
    assert BinaryDiceLoss()(logits, labels).item() == pytest.approx(dice_by_hand(logits, labels), abs=1e-6)
    assert BinaryDiceLoss(loss_weight=2.)(logits, labels) == 2 * BinaryDiceLoss()(logits, labels)


def test_dice_of_right_and_wrong_and_empty():
    labels = batch()[1]
    right = (labels[:, None] * 2 - 1) * 50.
    assert BinaryDiceLoss()(right, labels) < 1e-6 and BinaryDiceLoss()(-right, labels) > 0.9
    assert BinaryDiceLoss()(torch.full((1, 1, 4, 4), -50.), torch.zeros(1, 4, 4, dtype=torch.long)) < 1e-6


def test_why_not_the_hosts_dice():
    """mmseg's calls a perfect one-channel prediction wrong, and its inverse right."""
    labels = batch()[1]
    right = (labels[:, None] * 2 - 1) * 50.
    assert DiceLoss()(right, labels) > 0.9 and DiceLoss()(-right, labels) < 0.01


def test_hosts_bce_is_the_formula():
    logits, labels = batch()
    expected = nn.functional.binary_cross_entropy_with_logits(logits[:, 0], labels.float())
    torch.testing.assert_close(CrossEntropyLoss(use_sigmoid=True)(logits, labels, ignore_index=255), expected)


@pytest.mark.parametrize('threshold', [0.5, 0.8])
def test_accuracy_of_one_channel_is_at_the_threshold(threshold):
    """mmseg's own would be the share of the background."""
    from mmengine.structures import PixelData
    from mmseg.structures import SegDataSample
    head = UNetHead((4, 8), (4,), num_classes=2, out_channels=1, threshold=threshold,
                    loss_decode=dict(type='CrossEntropyLoss', use_sigmoid=True))
    truth = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 255, 0, 255]])
    probability = torch.tensor([[.9, .7, .7, .1, .6], [.9, .9, .9, .1, .9]])
    sample = SegDataSample(gt_sem_seg=PixelData(data=truth[None]))
    losses = head.loss_by_feat(probability.logit()[None, None], [sample])
    right = {0.5: 7, 0.8: 6}[threshold]  # of 8 counted: .6 is wrong at .5, the two .7 are at .8
    assert losses['acc_seg'].item() == pytest.approx(100 * right / 8) and losses['loss_ce'] > 0
    two = UNetHead((4, 8), (4,), num_classes=2, loss_decode=dict(type='CrossEntropyLoss'))
    logits = torch.stack([torch.zeros(2, 5), probability.logit()])[None]
    assert two.loss_by_feat(logits, [SegDataSample(gt_sem_seg=PixelData(data=truth[None]))])['acc_seg'].item() == \
        pytest.approx(87.5, abs=1e-3)
