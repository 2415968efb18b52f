"""Files that would run code when they are read, through every command and every entry of a config that names a file."""
import pickle

import pytest
import torch
from PIL import Image

from mmkcla.cli import main
from mmkcla.errors import UserError
from mmkcla.runtime.untrusted import refuse_pickled_data
from mmkcla.weights.safe_loading import load_safely


class Payload:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return open, (str(self.marker), 'w')


TEACHER = '''
import torch
from mmengine.runner import load_checkpoint
from mmpretrain.registry import MODELS
from mmpretrain.models import ImageClassifier


@MODELS.register_module()
class Distilled(ImageClassifier):
    """A classifier that loads its teacher when it is built."""

    def __init__(self, teacher, way, **kwargs):
        super().__init__(**kwargs)
        open('built', 'w').close()
        if way == 'mmengine':
            load_checkpoint(self, teacher)
        else:
            torch.load(teacher, weights_only=False)
'''

CONFIG = '''
_base_ = __import__('mmkcla').config_file('{base}')
custom_imports = dict(imports=['teacher_{way}'])
model = dict(type='Distilled', way='{way}', teacher='{teacher}')
'''
BASE = 'demo/kcla-resnet20_digits.py'


@pytest.fixture
def trap(tmp_path, monkeypatch):
    """A folder with a hostile checkpoint, and the marker that its code would write."""
    monkeypatch.chdir(tmp_path)
    torch.save({'state_dict': Payload(tmp_path / 'marker')}, tmp_path / 'evil.pth')
    Image.new('L', (28, 28)).save(tmp_path / 'image.png')
    return tmp_path / 'marker'


@pytest.fixture(scope='module')
def teachers(tmp_path_factory):
    """The modules of the two models, importable: each is registered once in this process."""
    folder = tmp_path_factory.mktemp('modules')
    for way in ('mmengine', 'torch'):
        (folder / f'teacher_{way}.py').write_text(TEACHER.replace('Distilled(', f'Distilled{way.title()}('))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield


@pytest.mark.usefixtures('teachers')
@pytest.mark.parametrize('way', ['mmengine', 'torch'])
@pytest.mark.parametrize('command', [
    'infer {config} evil.pth --out-dir out image.png', 'analyse keys {config} --images image.png',
    'analyse flops {config}',
    'test {config} good.pth --no-checks', 'train {config} --no-checks --work-dir w',
])
def test_module_that_loads_a_file_when_it_is_built(trap, capfd, way, command):
    config = CONFIG.format(base=BASE, way=way, teacher='evil.pth').replace("'Distilled'", f"'Distilled{way.title()}'")
    (trap.parent / 'config.py').write_text(config)
    torch.save({'state_dict': {'w': torch.ones(1)}}, 'good.pth')
    words = command.format(config='config.py').split()
    try:
        code = main(words)
    except Exception as error:  # torch's own refusal, in a module that calls torch.load
        assert 'Weights only load failed' in str(error)
        code = 2
    output = capfd.readouterr().err
    assert code != 0 and (trap.parent / 'built').exists() and not trap.exists(), output


@pytest.mark.parametrize('command', [
    'infer {config} evil.pth --out-dir out image.png', 'test {config} evil.pth --no-checks',
    'train {config} --no-checks --work-dir w --cfg-options load_from=evil.pth',
    'train {config} --no-checks --work-dir w --resume evil.pth',
    'analyse keys {config} --images image.png --checkpoint evil.pth',
    'convert evil.pth out.pth',
])
def test_hostile_checkpoint(trap, capfd, command):
    from mmkcla import config_file
    words = command.format(config=config_file(BASE)).split()
    assert main(words) == 2 and not trap.exists()
    assert 'it is refused, since loading it could run code' in capfd.readouterr().err


@pytest.mark.parametrize(('key', 'value'), [
    ('ann_file', 'train.pkl'), ('ann_file', 'TRAIN.PKL'), ('ann_file', 'train.pickle'),
    ('pipeline', [dict(type='LoadProposals', proposal_file='p.pkl')]),
    ('pipeline', [dict(type='LoadBiomedicalImageFromFile', decode_backend='pickle')]),
])
def test_data_in_pickles_are_refused_by_key(key, value):
    with pytest.raises(UserError, match=rf'^train_dataloader.dataset.{key}.*pickle'):
        refuse_pickled_data({'train_dataloader': {'dataset': {key: value}}})


def test_written_pickles_are_no_input():
    refuse_pickled_data({'test_evaluator': [dict(type='DumpResults', out_file_path='out.pkl')],
                         'test_dataloader': {'dataset': {'ann_file': 'test.json'}}})


def test_mmengine_writes_pickles_and_reads_none(tmp_path):
    import mmengine
    load_safely()
    marker = tmp_path / 'marker'
    mmengine.dump([1, 2], tmp_path / 'out.pkl')
    assert pickle.loads((tmp_path / 'out.pkl').read_bytes()) == [1, 2]
    (tmp_path / 'evil.pkl').write_bytes(pickle.dumps(Payload(marker)))
    with pytest.raises(UserError, match='is a pickle, which could run code when it is read'):
        mmengine.load(tmp_path / 'evil.pkl')
    assert not marker.exists()
