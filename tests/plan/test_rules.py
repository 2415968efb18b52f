"""The rules, by value."""
import math

import pytest

from mmkcla.errors import UserError
from mmkcla.plan import rules
from mmkcla.plan.fingerprint import quantiles
from mmkcla.plan.machine import Machine, pick_machine

GPU, SMALL_GPU, CPU = Machine(True, 24, 8), Machine(True, 6, 8), Machine(False, 16, 2)


def every(value):
    return quantiles([value] * 3)


def test_network_by_memory_and_by_request():
    assert [rules.network_size(machine, None).value for machine in (GPU, SMALL_GPU, CPU)] == ['base', 'small', 'small']
    assert rules.network_size(CPU, 'base').value == 'base'


@pytest.mark.parametrize('longer, side, machine, expected', [
    (500, 60, GPU, 512), (512, 60, GPU, 512), (513, 60, GPU, 544),
    (500, 8, GPU, 1024),  # small objects: twice as large
    (500, 12, GPU, 672),  # 16/12
    (4000, 60, GPU, 1344), (4000, 60, CPU, 512), (20, 60, CPU, 64)])
def test_detection_size(longer, side, machine, expected):
    chosen = rules.detection_size(every(longer), every(side), machine)
    assert chosen.value == expected
    assert f'median longer side {longer} px' in chosen.reason
    assert ('at most' in chosen.reason) == (longer == 4000)


def test_other_sizes():
    assert rules.segmentation_size(every(300), every(200), GPU).value == (320, 224)
    assert rules.segmentation_size(every(1024), every(768), GPU).value == (512, 384)
    assert rules.segmentation_size(every(1024), every(100), CPU).value == (256, 64)
    assert '× 0.5 for a longer side of at most 512' in rules.segmentation_size(every(1024), every(768), GPU).reason
    assert [rules.classification_size(every(side), GPU).value for side in (8, 28, 32, 64, 65, 300)] == [
        16, 32, 32, 64, 96, 224]
    assert rules.classification_size(every(300), CPU).value == 128


def test_batch_is_the_largest_power_of_two_within_all_limits():
    memory = rules.batch_size(Machine(True, 8), 1024 ** 2, 'detection-base', 10000, 16)
    # 0.6 × 8 GiB over 2910 MiB an image
    assert memory.value == 1 and memory.reason.startswith('1 fit into 60% of 8 GiB')
    assert rules.batch_size(Machine(True, 24), 1024 ** 2, 'detection-base', 10000, 16).value == 4  # 5.1
    data = rules.batch_size(GPU, 64 ** 2, 'detection-base', 100, 16)
    assert data.value == 8 and 'at least 8 iterations' in data.reason  # 12
    assert rules.batch_size(GPU, 64 ** 2, 'detection-base', 5, 16).value == 2
    few = rules.batch_size(GPU, 64 ** 2, 'resnet18', 30, 64, least=16)
    assert (few.value, few.reason) == (16, '30 training images, at least 16 for batch norm')
    assert rules.batch_size(Machine(True, 1), 1024 ** 2, 'resnet18', 30, 64, least=16).value == 1  # 575 MiB
    most = rules.batch_size(GPU, 64 ** 2, 'detection-base', 10000, 16)
    assert (most.value, most.reason) == (16, 'at most 16')
    with_masks = rules.batch_size(Machine(True, 8), 256 ** 2, 'detection-base', 10000, 16,
                                  rules.BYTES_PER_IMAGE['mask'])
    assert with_masks.value == 8  # 4915 MiB over 182 + 280
    none = rules.batch_size(Machine(True, 1), 4096 ** 2, 'detection-base', 10000, 16)
    assert none.value == 1 and none.reason == (
        'not even one fits into 60% of 1 GiB at 46560 MiB an image: lower image_size')


def test_learning_rate_scales_linearly():
    chosen = rules.learning_rate(0.02, 16, 4, "the host's SGD")
    assert chosen.value == 0.005 and chosen.reason == "0.02 for 16 images an iteration (the host's SGD), scaled to 4"


def test_epochs_aim_at_iterations_within_bounds():
    assert rules.epochs(800, 8, 2000, 12, 100).value == 20
    few = rules.epochs(24, 2, 2000, 12, 100)
    assert few.value == 100 and few.reason.startswith('12 iterations an epoch; 1200 iterations (aim: 2000')
    assert rules.epochs(100000, 8, 2000, 12, 100).value == 12
    assert rules.epochs(801, 8, 2000, 12, 100).value == math.ceil(2000 / 101)
    assert (rules.warmup(20), rules.warmup(1000), rules.warmup(10 ** 6), rules.warmup(3)) == (2, 100, 500, 1)


@pytest.mark.parametrize('relative, side, scale', [(0.1, 1024, 8), (0.02, 1024, 7), (0.01, 1024, 3), (0.001, 1024, 2)])
def test_anchor_scale(relative, side, scale):
    chosen = rules.anchor_scale(every(relative), side)
    assert chosen.value == scale
    # no larger than √2 times the small objects, unless it is the least scale
    assert scale == 2 or 4 * scale <= math.sqrt(2) * relative * side
    assert f'anchors are {4 * scale} to {64 * scale} px' in chosen.reason


def test_anchor_ratios():
    assert rules.anchor_ratios(quantiles([0.5, 1, 2])).value == [0.5, 1., 2.]
    assert rules.anchor_ratios(every(1)).value == [1.]
    assert rules.anchor_ratios(every(4)).value == [1., 4.]  # lying or standing objects only
    assert rules.anchor_ratios(quantiles([0.1] * 50 + [1] * 50)).value == [0.125, 0.25, 0.5, 1.]


def test_detections_and_workers():
    assert rules.detections(4).value == 100 and rules.detections(240).value == 360
    assert rules.workers(CPU).value == 0 and rules.workers(GPU).value == 4
    assert rules.workers(Machine(True, 24, 2)).value == 2


def test_machine_from_a_number():
    assert pick_machine(23.7) == Machine(True, 23)
    with pytest.raises(UserError, match='--device-memory 0.5: must be at least 1 GiB'):
        pick_machine(0.5)
    assert pick_machine().memory >= 1


def test_quantiles():
    assert quantiles(list(range(101))) == {'0': 0, '5': 5, '10': 10, '50': 50, '95': 95, '100': 100}
    assert quantiles([]) == dict.fromkeys(('0', '5', '10', '50', '95', '100'), 0.)
