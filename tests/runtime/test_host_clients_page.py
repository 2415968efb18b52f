"""Each example of docs/host-clients.md runs in a process of its own, with what the page says and no more."""
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, DefaultScope, init_default_scope
from PIL import Image

import mmkcla

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / 'docs' / 'host-clients.md').read_text(encoding='utf-8')
EXAMPLES = dict(re.findall(r'^## (\w+)\n\n```python\n(.*?)```', PAGE, re.DOTALL | re.MULTILINE))
CHECKPOINTS = {'Segmentation': ('unet.pth', 'unet-kcla-small_coins.py'),
               'Detection': ('detector.pth', 'faster-rcnn_r18-kcla_fpn_coins.py'),
               'Classification': ('classifier.pth', 'kcla-resnet20_1xb128-180e_cifar10.py')}


@pytest.mark.parametrize('title', CHECKPOINTS)
def test_example(title, tmp_path):
    assert set(EXAMPLES) == set(CHECKPOINTS)
    name, config = CHECKPOINTS[title]
    mmkcla.use_torchvision_ops()
    config = Config.fromfile(mmkcla.config_file(config))
    init_default_scope(config.default_scope)
    torch.manual_seed(0)
    model = MODELS.build(config.model | dict(data_preprocessor=config.get(
        'data_preprocessor', config.model.get('data_preprocessor'))))
    DefaultScope._instance_dict.clear()
    classes = ('background', 'coin') if title != 'Classification' else tuple('abcdefghij')
    torch.save(dict(state_dict=model.state_dict(), meta=dict(dataset_meta=dict(classes=classes))), tmp_path / name)
    pixels = np.random.default_rng(0).integers(0, 255, (60, 80, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / 'image.png')
    shown = dict(Segmentation='set(mask.ravel().tolist()) <= {0, 1}, mask.shape', Detection='len(boxes[0])',
                 Classification='len(names), answer in "abcdefghij"')[title]
    code = f'{EXAMPLES[title]}\nprint()\nprint({shown})'
    result = subprocess.run([sys.executable, '-W', 'ignore', '-c', code], cwd=tmp_path,
                            capture_output=True, text=True, check=False,
                            env=os.environ | {'PYTHONPATH': str(ROOT), 'OMP_NUM_THREADS': '1'})
    assert result.returncode == 0, result.stderr[-2000:]
    expected = dict(Segmentation='True (60, 80)', Detection='4', Classification='24 True')[title]
    assert result.stdout.strip().splitlines()[-1] == expected
