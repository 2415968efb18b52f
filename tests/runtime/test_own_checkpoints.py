"""What a training leaves is read again by test and --resume, whatever its config holds."""
from pathlib import Path

from seed_machine import TINY, write_pairs

from mmkcla.checkpoint import read_checkpoint
from mmkcla.cli import main
from mmkcla.weights.plain_values import plain

NESTED = ("train_dataloader['dataset']['metainfo'] = dict(classes=('background', 'polyp'), site=dict(name='x', "
          "parts=[1, dict(y=2)]), palette=[[0, 0, 0], [9, 9, 9]])\n")
GROUPS = ['optim_wrapper.paramwise_cfg.custom_keys.decode_head.lr_mult=0.5',
          'optim_wrapper.paramwise_cfg.custom_keys.decode_head.extra=[1,2]']


def test_nested_metainfo_and_groups_by_option(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = TINY.replace('{root}', str(write_pairs(tmp_path / 'data')))
    Path('nested_meta.py').write_text(text + '\n' + NESTED)
    run = ['nested_meta.py', '--work-dir', 'w', '--cfg-options', *GROUPS]
    assert main(['train', *run, 'train_cfg.max_iters=1', 'train_cfg.val_interval=1']) == 0
    saved = read_checkpoint('w/iter_1.pth')
    assert saved['meta']['dataset_meta']['site'] == dict(name='x', parts=[1, dict(y=2)])
    for part in ('meta', 'optimizer'):
        assert repr(saved[part]) == repr(plain(saved[part])) and 'ConfigDict' not in str(_kinds(saved[part]))
    assert main(['test', 'nested_meta.py', 'w/iter_1.pth', '--work-dir', 't']) == 0
    assert main(['train', *run, 'train_cfg.max_iters=2', '--resume']) == 0
    assert Path('w/iter_2.pth').is_file()


def _kinds(value):
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return {type(value).__name__, *(kind for item in inner for kind in _kinds(item))}
