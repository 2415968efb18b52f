"""What tools/dev/generate_configs.py writes is current, and says what the configs say."""
import math
import re
import shutil
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / 'tools' / 'dev'))
import config_facts  # noqa: E402
import generate_configs as generator  # noqa: E402


@pytest.fixture(scope='module')
def models():
    """Entries of all metafiles, by name."""
    index = yaml.safe_load((ROOT / 'model-index.yml').read_text())['Import']
    named = [model for meta in index for model in yaml.safe_load((ROOT / meta).read_text())['Models']]
    assert len({model['Name'] for model in named}) == len(named)
    return {model['Name']: model for model in named}


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """A checkout with two folders, the only collections."""
    for folder in ('_base_', 'cifar', 'cifar_ablations'):
        shutil.copytree(ROOT / 'configs' / folder, tmp_path / 'configs' / folder)
    (tmp_path / 'tools' / 'dev').mkdir(parents=True)
    shutil.copy(ROOT / generator.COSTS, tmp_path / generator.COSTS)
    kept = {folder: generator.COLLECTIONS[folder] for folder in ('cifar_ablations', )}
    monkeypatch.setattr(generator, 'COLLECTIONS', kept)
    families = {path: text for path, text in generator.family_files().items()
                if path.parent.name in ('cifar', 'cifar_ablations')}
    monkeypatch.setattr(generator, 'family_files', lambda: families)
    assert generator.main([], tmp_path) == 0
    assert generator.main(['--check'], tmp_path) == 0
    return tmp_path


def test_everything_is_current(capsys):
    assert generator.main(['--check']) == 0, capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_cost_is_current(capsys):
    assert generator.main(['--check', '--recompute']) == 0, capsys.readouterr().out


@pytest.mark.parametrize('path', [
    'cifar/dla-light-resnet20_1xb128-180e_cifar100', 'imagenet/se-resnet50_8xb32_in1k',
    'unet/unet-kcla-small_1xb8-300e_kvasir-seg-256x256'])
def test_costs_of_a_sample(path):
    facts = config_facts.facts_of(ROOT, Path('configs', f'{path}.py'))
    known = config_facts.read_costs(ROOT / generator.COSTS)
    assert config_facts.measure(ROOT, facts) == known[facts.fingerprint]


def test_stale_files_are_named_and_rewritten(copy, capsys):
    folder = Path('configs', 'cifar_ablations')
    readme, metafile = folder / 'README.md', folder / 'metafile.yml'
    before = (copy / readme).read_text()
    capsys.readouterr()
    (copy / readme).write_text(before.replace('650,042', '650,043').replace('Ablations', 'Some ablations'))
    (copy / metafile).unlink()
    assert generator.main(['--check'], copy) == 1
    assert set(capsys.readouterr().out.splitlines()) == {f'{path.as_posix()} is stale' for path in (readme, metafile)}
    assert generator.main([], copy) == 0
    assert (copy / readme).read_text() == before.replace('Ablations', 'Some ablations')  # prose is left alone
    config = copy / folder / 'kcla-d4-resnet56_1xb128-180e_cifar100.py'
    text = config.read_text()
    config.write_text(text.replace('head_channels=4', 'head_channels=2'))
    capsys.readouterr()
    assert generator.main(['--check'], copy) == 1
    assert capsys.readouterr().out == f'{config.relative_to(copy).as_posix()} is stale\n'
    assert generator.main([], copy) == 0 and config.read_text() == text


def test_a_changed_model_makes_its_cost_stale(copy, capsys):
    base = copy / 'configs' / '_base_' / 'models' / 'cifar_resnet.py'
    base.write_text(base.read_text().replace('num_classes=10', 'num_classes=7'))  # the 100-class configs override it
    assert generator.main(['--check'], copy) == 0
    base.write_text(base.read_text() + "\nmodel['backbone']['frozen_stages'] = 1\n")
    capsys.readouterr()
    assert generator.main(['--check'], copy) == 1
    assert f'{generator.COSTS.as_posix()} is stale' in capsys.readouterr().out


def test_a_readme_without_markers_is_named(copy):
    readme = copy / 'configs' / 'cifar_ablations' / 'README.md'
    readme.write_text(readme.read_text().replace(generator.END, ''))
    with pytest.raises(SystemExit, match='configs/cifar_ablations/README.md lacks the lines'):
        generator.main(['--check'], copy)


def test_metafiles_agree_with_names(models):
    for name, model in models.items():
        known = model['Metadata']
        assert model['Config'].endswith(f'/{name}.py') and 'Results' not in model
        batch = re.search(r'_(\d+)xb(\d+)', name)
        assert known['Batch Size'] == (math.prod(map(int, batch.groups())) if batch else 16)
        epochs = re.search(r'-(\d+)e_', name)
        assert known['Epochs'] == (int(epochs[1]) if epochs else 12 if '_1x_' in name else 100)
        two_stage = 'rcnn' in name
        assert ('Proposals' in known) is two_stage and known.get('Proposals', 1000) == 1000


def test_metafiles_hold_counts_known_from_elsewhere(models):
    """Parameters and MACs that tests/analysis/test_flops.py and the papers' code have; shapes by the pipelines."""
    def known(name):
        data = models[name]['Metadata']
        return data['Input Shape'], data['Parameters'], data['Training Data']

    assert known('resnet50_8xb32_in1k') == ('3x224x224', 25_557_032, 'ImageNet-1k')
    assert known('resnet20_1xb128-180e_cifar100') == ('3x32x32', 243_508, 'CIFAR-100')
    assert known('faster-rcnn_r50_fpn_1x_coco') == ('3x800x1344', 41_753_056, 'COCO')
    assert known('unet-s5-d16_1xb8-300e_kvasir-seg-256x256')[::2] == ('3x256x256', 'Kvasir-SEG')
    assert known('psmnet_4xb3-10e_sceneflow') == ('2x3x256x512', 5_224_768, 'Scene Flow')
    assert f"{models['kcla-resnet50_8xb32_in1k']['Metadata']['FLOPs'] / 1e9:.4f}" == '4.1615'


def test_model_index_loads_as_mim_loads_it(models):
    """mim reads it with this package, which mmpretrain brings along."""
    modelindex = pytest.importorskip('modelindex')
    index = modelindex.load(str(ROOT / 'model-index.yml'))
    index.build_models_with_collections()
    # READMEs are given from the root, as OpenMMLab's own metafiles give them; the package looks beside the metafile
    assert not [error for error in index.check(silent=True) if 'Path to README file' not in error]
    assert all((ROOT / collection.readme).is_file() for collection in index.collections)
    loaded = {model.name: model for model in index.models}
    assert loaded.keys() == models.keys()
    full = loaded['kcla-resnet50_8xb32_in1k'].full_model
    assert full.metadata.architecture == ['Layer attention', 'ResNet'] and full.metadata.parameters == 25_850_133
    assert full.metadata.training_techniques == ['SGD with Momentum', 'Weight Decay'] and full.results is None
    assert (ROOT / full.config).is_file() and full.readme == 'configs/imagenet/README.md'


def test_every_config_is_listed_once(models):
    configs = [path for path in (ROOT / 'configs').rglob('*.py') if not {'_base_', 'demo'} & set(path.parts)]
    assert sorted(ROOT / model['Config'] for model in models.values()) == sorted(configs)
    for path in configs:
        assert path.with_name('README.md').read_text().count(f'[{path.stem}]({path.name})') == 1
