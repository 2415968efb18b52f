"""``mmkcla data verify`` on COCO files without content, and on folders of COCO files."""
import json

import pytest
from tiny import write_coco

from mmkcla.cli import main


@pytest.fixture
def root(tmp_path):
    return write_coco(tmp_path / 'data', images=6)


@pytest.mark.parametrize(('edit', 'code', 'line'), [
    (lambda content: content['images'].clear(), 1, "refused: entries of 'images': 0; the file lists no images"),
    (lambda content: content['annotations'].clear(), 0, 'note: images, none of which has an object of the classes: 6'),
    (lambda content: content.pop('annotations'), 0, "note: entries of 'annotations': 0; the file has no labels"),
    (lambda content: None, 0, 'no faults')])
def test_verify_empty_files(root, edit, code, line, capsys):
    content = json.loads((root / 'ann.json').read_text())
    edit(content)
    (root / 'ann.json').write_text(json.dumps(content))
    assert main(['data', 'verify', str(root / 'ann.json')]) == code
    assert line in capsys.readouterr().out


@pytest.mark.parametrize('place', ['annotations/{}.json', '{}.json', '{}/_annotations.coco.json'])
def test_verify_a_folder_of_coco_files(root, place, capsys):
    text = (root / 'ann.json').read_text()
    (root / 'ann.json').unlink()
    for split in ('train', 'val'):
        path = root / place.format(split)
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    path.with_name('captions.json').write_text(json.dumps(dict(images=[], annotations=[])))
    assert main(['data', 'verify', str(root)]) == 0
    out, err = capsys.readouterr()
    assert f'{path}\n' in out and '2 data sets; 0 refused' in out
    assert ('captions.json' in err) == (not place.endswith('coco.json'))
    path.write_text(text.replace('"iscrowd": 0', '"iscrowd": 1'))
    assert main(['data', 'verify', str(root)]) == 1
    path.write_text(text[:-20])
    assert main(['data', 'verify', str(root)]) == 2
    assert f'error: {path} is not JSON' in capsys.readouterr().err
