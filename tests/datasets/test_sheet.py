"""The picture sheet: which samples, and labels where they belong."""
import numpy as np
from PIL import Image

from mmkcla.datasets.sheet import CROWD, Sample, draw_sheet, spread_out
from mmkcla.plan.config_text import comment, names, setting, source
from mmkcla.plan.rules import Setting


def test_samples_are_spread_over_classes_and_sizes():
    assert spread_out([list(range(100))], 5) == [0, 25, 50, 74, 99]
    assert spread_out([list(range(50)), list(range(50, 100))], 4) == [0, 50, 49, 99]
    assert spread_out([[3], [], [1, 3]], 12) == [3, 1]  # each once
    assert spread_out([[number] for number in range(20)], 12) == list(range(12))
    assert spread_out([], 12) == []


def test_boxes_and_masks_are_where_the_labels_are(tmp_path):
    Image.new('RGB', (160, 80), (0, 0, 0)).save(tmp_path / 'a.png')
    mask = np.zeros((80, 160), np.uint8)
    mask[20:60, 100:140] = 1
    draw_sheet(tmp_path / 'sheet.png', [
        Sample(tmp_path / 'a.png', 'boxes', boxes=[(40, 20, 80, 40, 0), (0, 0, 10, 10, CROWD)]),
        Sample(tmp_path / 'a.png', 'mask', mask=mask)], ['a', 'b'], foreground=1)
    sheet = np.asarray(Image.open(tmp_path / 'sheet.png')).astype(int)
    # cells of 320 px, 8 px apart; the picture of 320×160 in the middle of its cell
    x, y = 8, 8 + 80
    assert sheet[y + 2 * 20 + 1, x + 2 * 60].tolist() == [255, 160, 0]  # upper edge of the box
    assert sheet[y + 2 * 40, x + 2 * 40 + 1].tolist() == [255, 160, 0]  # its left edge
    assert sheet[y + 2 * 40, x + 2 * 80].tolist() == [0, 0, 0]  # inside
    assert sheet[y + 2 * 10 - 2, x + 10].tolist() == [150, 150, 150]  # the crowd's lower edge
    x += 328
    assert sheet[y + 2 * 40, x + 2 * 120].tolist() == [0, 59, 89]  # 35 % of class 1's blue
    assert sheet[y + 2 * 40, x + 2 * 80].tolist() == [0, 0, 0]  # the background is not painted


def test_pieces_of_a_config():
    assert setting('lr', Setting(0.1, 'why')) == 'lr = 0.1  # why'
    assert setting('lr', Setting(0.1, 'long ' * 30)).splitlines()[-1] == 'lr = 0.1'
    assert source(dict(a=(1,), b=['x', 2.5])) == "dict(a=(1,), b=['x', 2.5])"
    assert all(line.startswith('# ') and len(line) <= 120 for line in comment('word ' * 100).splitlines())
    classes = [f'a class, number {number}, with "quotes" and \'these\'' for number in range(30)]
    scope: dict = {}
    text = names('classes', classes)
    exec(text, scope)
    assert list(scope['classes']) == classes and max(map(len, text.splitlines())) <= 120
    exec(names('classes', ['one']), scope)
    assert scope['classes'] == ('one',)
