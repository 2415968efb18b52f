"""Samples as mmseg gives them to a metric."""
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn.functional as F
from mmengine.evaluator import Evaluator
from mmengine.structures import PixelData
from mmseg.models.segmentors import EncoderDecoder
from mmseg.structures import SegDataSample

from mmkcla.evaluation import BinarySegMetric

LESION = dict(classes=('background', 'lesion'))


def sample(truth, img_path='a.jpg', network=(32, 32), **more):
    result = SegDataSample(metainfo=dict(img_path=img_path, seg_map_path=img_path.replace('jpg', 'png'),
                                         ori_shape=tuple(truth.shape[-2:]), img_shape=network, **more))
    result.gt_sem_seg = PixelData(data=torch.as_tensor(truth)[None].long())
    return result


def predicted(logits, samples, threshold=0.5):
    """What mmseg's ``EncoderDecoder.predict`` makes of logits ``(B, C, h, w)`` at the network's size."""
    host = SimpleNamespace(align_corners=False, decode_head=SimpleNamespace(threshold=threshold))
    return EncoderDecoder.postprocess_result(host, logits, samples)


def evaluate(samples, meta=LESION, **options):
    evaluator = Evaluator([BinarySegMetric(**options)])
    evaluator.dataset_meta = meta
    evaluator.process(samples)
    return evaluator.evaluate(len(samples))


def circle(shape, middle, radius):
    y, x = np.mgrid[:shape[0], :shape[1]]
    return ((y - middle[0])**2 + (x - middle[1])**2 <= radius**2).astype(np.uint8)


def cases(number=6, channels=2, seed=0, folder='', network=(32, 32), shape=None, threshold=0.5):
    """Samples with true circles of several image sizes and noisy logits that are near them, for an mmseg metric."""
    generator = torch.Generator().manual_seed(seed)
    result = []
    for n in range(number):
        size = shape or (40 + 7 * n, 61 - 5 * n)
        truth = circle(size, (size[0] // 2, size[1] // 2 - n), size[1] // 4)
        item = sample(truth, f'{folder}{n:03d}.jpg', network)
        guess = F.interpolate(torch.from_numpy(circle(size, (size[0] // 2 + n, size[1] // 2), size[1] // 3))[
            None, None].float(), size=network, mode='bilinear')
        logits = 6 * guess - 3 + torch.randn(1, channels, *network, generator=generator)
        if channels == 2:
            logits[:, 0] *= -1
        result += predicted(logits, [item], threshold)
    return result


def in_process(rank, world, port, folder, number):
    """Evaluate :func:`cases` in one of several processes; here, where a spawned process can import it."""
    import os

    import torch.distributed as dist
    from mmengine.dataset import DefaultSampler
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world),
                      LOCAL_RANK=str(rank))
    torch.set_num_threads(1)
    os.chdir(folder)
    dist.init_process_group('gloo', rank=rank, world_size=world)
    samples = cases(number)
    metric = BinarySegMetric(out_dir=os.path.join(folder, 'two'), worst=3, hd95=True, polyp_protocol=True)
    metric.dataset_meta = LESION
    for index in DefaultSampler(samples, shuffle=False):
        metric.process({}, [samples[index].to_dict()])
    torch.save(metric.evaluate(number), os.path.join(folder, f'{rank}.pt'))
    dist.destroy_process_group()
