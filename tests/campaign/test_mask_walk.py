"""Mutations of masks: a converter reads each as it was meant, or leaves it out and says so. ``MMKCLA_FUZZ`` sets their
number (default: 60, always the same)."""
import io
import json
import os

import numpy as np
import pytest
from campaign import check, run, write_masks
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

CASES = int(os.environ.get('MMKCLA_FUZZ', '60'))
FORMATS = ('PNG', 'BMP', 'TIFF', 'JPEG', 'GIF')


@pytest.fixture(scope='module')
def photos(tmp_path_factory):
    return write_masks(tmp_path_factory.mktemp('masks') / 'photos')


def mutated_mask(rng, mask):
    """What was done, the bytes of the file, and the foreground that is meant; None where it cannot be read."""
    way = rng.choice(['values', 'values', 'mode', 'size', 'flip', 'cut', 'zero', 'text', 'format', 'sixteen', 'colour'])
    foreground, pixels, image_format = mask > 0, mask, 'PNG'
    if way == 'values':
        low, high = rng.choice([(0, 1), (0, 255), (0, 0), (255, 255), (7, 200), (1, 2), (0, 128)])
        pixels = np.where(foreground, high, low).astype(np.uint8)
        foreground = foreground if low < high else pixels > 0
    elif way == 'size':
        pixels = mask[:rng.randrange(1, 48), :rng.randrange(1, 48)]
    elif way == 'sixteen':
        pixels = np.where(foreground, rng.choice([1, 255, 256, 65535]), 0).astype(np.uint16)
    elif way == 'colour':
        pixels = np.dstack([mask, mask * rng.choice([0, 1]), mask * 0])
    image = Image.fromarray(pixels)
    if way == 'mode':
        image = image.convert(rng.choice(['1', 'P', 'LA', 'RGBA', 'I', 'F']))
        image_format = 'TIFF' if image.mode in ('I', 'F') else 'PNG'
    elif way == 'format':
        image_format = rng.choice(FORMATS)
    buffer = io.BytesIO()
    image.save(buffer, image_format)
    data = buffer.getvalue()
    start = rng.randrange(len(data))
    if way == 'flip':
        data = data[:start] + bytes([data[start] ^ 1 << rng.randrange(8)]) + data[start + 1:]
    elif way == 'zero':
        data = data[:start] + bytes(min(20, len(data) - start)) + data[start + 20:]
    data = {'cut': data[:start], 'text': b'no image\n'}.get(way, data)
    return f'{way} {image.mode} {image_format} {np.unique(pixels)[:4].tolist()} {start}', data, foreground


def test_masks(photos, tmp_path):
    failures, codes = [], {}
    path = photos / 'masks' / '2.png'
    original, mask = path.read_bytes(), np.array(Image.open(path))

    @settings(max_examples=CASES, derandomize=CASES == 60, deadline=None, database=None,
              suppress_health_check=list(HealthCheck))
    @given(st.randoms(use_true_random=False))
    def mutate(rng):
        what, data, foreground = mutated_mask(rng, mask)
        threshold = rng.choice([None, None, 0, 100])
        path.write_bytes(data)
        outcome = run(['data', 'binary-seg', photos, '--out', tmp_path / 'set', '--split', 'train', '--overwrite',
                       '--workers', '1', *([] if threshold is None else ['--threshold', threshold])])
        codes[outcome.code] = codes.get(outcome.code, 0) + 1
        written = tmp_path / 'set' / 'masks' / 'train' / '2.png'
        try:
            check(outcome, what)
            if outcome.code == 2:
                return
            if not written.exists():
                assert '2.png' in outcome.text, f'{what}: left out without a word'
                return
            found = np.array(Image.open(written)) == 1
            if threshold is None and what.split()[0] in ('values', 'mode', 'format', 'sixteen', 'colour'):
                assert found.shape == foreground.shape and (found == foreground).all(), f'{what}: {found.mean()}'
        except AssertionError as error:
            failures.append(f'{str(error).splitlines()[0][:300]} ({threshold}, {outcome.code})')

    try:
        mutate()
    finally:
        path.write_bytes(original)
    assert not failures, f'{len(failures)} failures beside {codes}:\n' + '\n'.join(failures)
    assert json.loads((tmp_path / 'set' / 'manifest.json').read_text())['counts'] and {0, 2} <= set(codes), codes
