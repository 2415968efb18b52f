"""Write masks with an exported model; needs numpy, pillow and onnxruntime.

    python segment_onnx.py MODEL.onnx IMAGE...
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
    image = Image.open(name).convert('RGB')
    pixels = np.asarray(image.resize((width, height), Image.Resampling.BILINEAR), np.float32).transpose(2, 0, 1)[None]
    scores = session.run(None, {'images': pixels})[0][0]
    mask = (scores[0] > facts['threshold']) * 255 if len(scores) == 1 else scores.argmax(0)
    Image.fromarray(mask.astype(np.uint8)).resize(image.size, Image.Resampling.NEAREST).save(name + '_mask.png')
