"""Write a COCO file of the size of COCO2017, and measure how long its check takes and how much memory.

    python tools/dev/large_coco.py

writes instances_train2017.json (118,287 images, 860,001 annotations with polygons) and instances_val2017.json (5,000
and 36,781) to a temporary folder, reads both in a process of its own, twice, and prints wall time and peak memory.
The contents are random; no image files are written. Options: --images and --annotations for other sizes.
"""
import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

_READ = '''
import resource, sys, time
from pathlib import Path
import numpy
from mmkcla.datasets.detection.coco.cache import cached_table
from mmkcla.datasets.detection.coco.faults import Use, find_faults
from mmkcla.datasets.detection.coco.report import counts
began = time.perf_counter()
for path in sys.argv[1:]:
    table = cached_table(Path(path))
    faults = find_faults(table, Use(masks=True))
    print(Path(path).name, counts(table, Use())["annotations"], [str(fault) for fault in faults][:5])
print(f"{time.perf_counter() - began:.1f} s, {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")
'''


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--images', type=int, nargs=2, default=(118287, 5000), help='of train and val')
    parser.add_argument('--annotations', type=int, nargs=2, default=(860001, 36781), help='of train and val')
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for split, images, annotations in zip(('train', 'val'), args.images, args.annotations, strict=True):
            paths.append(Path(folder) / f'instances_{split}2017.json')
            write(paths[-1], images, annotations)
            print(f'{paths[-1].name}: {paths[-1].stat().st_size / 1e6:.0f} MB')
        for what in ('first time', 'second time'):
            print(what, flush=True)
            began = time.perf_counter()
            subprocess.run([sys.executable, '-c', _READ, *map(str, paths)], check=True)
            print(f'{time.perf_counter() - began:.1f} s with the start of Python')
    print(f'peak of the reading processes: {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2 ** 20:.2f} GiB')


def write(path: Path, images: int, annotations: int, seed: int = 0) -> None:
    """Write one file, with polygons of 10 to 60 points and one percent of crowds as run-length masks."""
    rng = np.random.default_rng(seed)
    with open(path, 'w', encoding='utf-8') as file:
        file.write('{"info": {}, "licenses": [], "images": [')
        for number in range(images):
            file.write((', ' if number else '') + json.dumps(dict(
                license=1, file_name=f'{number:012d}.jpg', coco_url=f'http://localhost/train2017/{number:012d}.jpg',
                height=480, width=640, date_captured='2013-11-14 11:18:45', id=number)))
        file.write('], "annotations": [')
        for number in range(annotations):
            file.write((', ' if number else '') + json.dumps(_annotation(rng, number, images)))
        file.write('], "categories": ' + json.dumps([dict(supercategory='thing', id=i, name=f'class {i}')
                                                      for i in range(1, 81)]) + '}')


def _annotation(rng: np.random.Generator, number: int, images: int) -> dict:
    points = int(rng.integers(10, 30))
    angle = np.linspace(0, 2 * np.pi, points, endpoint=False)
    radius = rng.uniform(4, 100) * rng.uniform(0.7, 1, points)
    x = np.clip(rng.uniform(50, 590) + radius * np.cos(angle), 0, 640).round(2)
    y = np.clip(rng.uniform(50, 430) + radius * np.sin(angle), 0, 480).round(2)
    box = [round(float(value), 2) for value in (x.min(), y.min(), np.ptp(x), np.ptp(y))]
    area = 0.5 * abs(float(np.dot(x, np.roll(y, 1)) - np.dot(y, np.roll(x, 1))))
    crowd = number % 100 == 0
    outline = np.stack([x, y], 1).ravel().tolist()
    if crowd:  # the box and the area of the run-length mask
        box, area = [631, 0, 3, 480], 1000
    return dict(segmentation=dict(counts=[640 * 480 - 4000, 1000, 3000], size=[480, 640]) if crowd else [outline],
                area=area, iscrowd=int(crowd), image_id=int(rng.integers(0, images)), bbox=box,
                category_id=int(rng.integers(1, 81)), id=number + 1)


if __name__ == '__main__':
    main()
