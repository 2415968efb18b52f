"""Classify images with an exported model; needs numpy, pillow and onnxruntime.

    python classify_onnx.py MODEL.onnx IMAGE...
"""
import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image

model, *images = sys.argv[1:]
facts = json.loads(Path(model + '.json').read_text(encoding='utf-8'))
height, width = facts['input']['prepared_size']
session = onnxruntime.InferenceSession(model, providers=['CPUExecutionProvider'])
for name in images:
    image = Image.open(name).convert('RGB').resize((width, height), Image.Resampling.BILINEAR)
    scores = session.run(None, {'images': np.asarray(image, np.float32).transpose(2, 0, 1)[None]})[0][0]
    print(name, facts['classes'][scores.argmax()], f'{scores.max():.4f}')
