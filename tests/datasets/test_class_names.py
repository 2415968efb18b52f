"""Class names that are alike, blank or have control characters, in every kind of data."""
import json

import numpy as np
import pytest
from PIL import Image

from mmkcla.datasets.detection.coco.faults import Use, find_faults
from mmkcla.datasets.detection.coco.table import read_table
from mmkcla.datasets.segmentation.converters.class_names import _names
from mmkcla.errors import UserError
from mmkcla.plan.classification import _load
from mmkcla.utils.text import is_printable, plain_name

# the second of two names; what is said of a COCO file, of class folders, of the classes of masks
NAMES = {
    'other': ('b', None, None, None),
    'accent': ('é', None, None, None),
    'same': ('a', ("categories with the name 'a'", 'refused'), None, 'a is named more than once'),
    'case': ('A', ('category names that differ only by case or spaces', 'note'), 'differ only by case or spaces', None),
    'space': ('a ', ('category names that differ only by case or spaces', 'note'), 'differ only by case or spaces',
              'a is named more than once'),
    'blank': (' ', ("entries of 'categories' with a name that is blank or has control characters", 'refused'),
              'control characters', 'a name is empty'),
    'empty': ('', ("entries of 'categories' with a name that is not text", 'refused'), None, 'a name is empty'),
    'line': ('b\nc', ("entries of 'categories' with a name that is blank or has control characters", 'refused'),
             'control characters', 'has control characters'),
    'tab': ('b\tc', ("entries of 'categories' with a name that is blank or has control characters", 'refused'),
            'control characters', 'has control characters'),
    'escape': ('b\x1b[31m', ("entries of 'categories' with a name that is blank or has control characters", 'refused'),
               'control characters', 'has control characters'),
}


@pytest.mark.parametrize('kind', NAMES)
def test_coco(tmp_path, kind):
    name, expected, _, _ = NAMES[kind]
    annotations = [dict(id=i + 1, image_id=i % 4 + 1, category_id=i % 2 + 1, bbox=[5, 5, 20, 15], area=300, iscrowd=0)
                   for i in range(8)]
    (tmp_path / 'a.json').write_text(json.dumps(dict(
        images=[dict(id=i + 1, file_name=f'{i}.png', width=40, height=40) for i in range(4)], annotations=annotations,
        categories=[dict(id=1, name='a'), dict(id=2, name=name)])))
    found = [(fault.kind, fault.severity) for fault in find_faults(read_table(tmp_path / 'a.json'), Use(masks=False))
             if 'categor' in fault.kind]
    assert found == ([expected] if expected else [])


@pytest.mark.parametrize('kind', [kind for kind in NAMES if kind not in ('same', 'empty')])
def test_class_folders(tmp_path, kind):
    name, _, expected, _ = NAMES[kind]
    for number, folder in enumerate(('a', name)):
        (tmp_path / folder).mkdir()
        Image.fromarray(np.full((8, 8, 3), 40 * number, np.uint8)).save(tmp_path / folder / f'{number}.png')
    if expected is None:
        assert _load(tmp_path)[0] == ['a', name]
        return
    with pytest.raises(UserError, match=expected) as error:
        _load(tmp_path)
    assert '\n' not in str(error.value) and '\x1b' not in str(error.value)


@pytest.mark.parametrize('kind', NAMES)
def test_masks(kind):
    name, _, _, expected = NAMES[kind]
    if expected is None:
        assert _names(['a', name]) == ('a', name)
        return
    with pytest.raises(UserError, match=expected):
        _names(['a', name])


def test_words():
    assert [is_printable(name) for name in ('a', 'é', 'a b', ' ', '', 'a\n', '\x00')] == [True] * 3 + [False] * 4
    assert plain_name(' Red  Apple ') == plain_name('red apple') and plain_name('e\u0301') == plain_name('é')
