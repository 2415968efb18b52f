"""Modules beside a config: found from anywhere, and by the processes that come after."""
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest

import mmkcla
from mmkcla.errors import UserError
from mmkcla.paths import config_file, configs_root
from mmkcla.runtime.config import load_config

ROOT = Path(__file__).parents[2]
CONFIG = "custom_imports = dict(imports=['{}'], allow_failed_imports=False)\n"


@pytest.fixture(autouse=True)
def _restore(monkeypatch):
    monkeypatch.setattr(sys, 'path', list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith('beside_'):
            del sys.modules[name]


def write(folder, name, text, imports=None):
    folder.mkdir(exist_ok=True)
    (folder / f'{name}.py').write_text(text)
    (folder / 'config.py').write_text(CONFIG.format(imports or name))
    return str(folder / 'config.py')


def test_a_module_beside_the_config(tmp_path, monkeypatch) -> None:
    config = write(tmp_path / 'mine', 'beside_a', 'VALUE = 7\n\n\ndef double(x):\n    return 2 * x\n')
    (tmp_path / 'elsewhere').mkdir()
    monkeypatch.chdir(tmp_path / 'elsewhere')
    assert load_config('../mine/config.py', []).custom_imports.imports == ['beside_a']
    assert sys.modules['beside_a'].VALUE == 7
    assert sys.path[-1] == str(tmp_path / 'mine')  # not at the front, and it stays
    load_config(config, [])
    assert sys.path.count(str(tmp_path / 'mine')) == 1


def test_processes_that_are_spawned_find_it(tmp_path) -> None:
    config = write(tmp_path / 'mine', 'beside_b', 'def double(x):\n    return 2 * x\n')
    script = tmp_path / 'script.py'
    script.write_text(f'''
import multiprocessing, sys
from mmkcla.runtime.config import load_config
if __name__ == '__main__':
    load_config({config!r}, [])
    with multiprocessing.get_context('spawn').Pool(1) as pool:
        print(pool.apply(sys.modules['beside_b'].double, (21, )))
''')
    result = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=True,
                            env=os.environ | {'PYTHONPATH': str(ROOT)})
    assert result.stdout.strip() == '42' and multiprocessing.get_start_method(allow_none=True) in (None, 'fork')


def test_folders_of_shipped_configs_are_left_out() -> None:
    before = list(sys.path)
    load_config('resnet20_digits', [])
    assert sys.path == before


def test_imports_by_option(tmp_path) -> None:
    write(tmp_path, 'beside_c', 'VALUE = 3\n')
    (tmp_path / 'config.py').write_text('a = 1\n')
    load_config(str(tmp_path / 'config.py'), ['custom_imports=dict(imports=[beside_c])'])
    assert sys.modules['beside_c'].VALUE == 3


def test_a_package_beside_the_config(tmp_path) -> None:
    (tmp_path / 'beside_d').mkdir()
    (tmp_path / 'beside_d' / '__init__.py').write_text('')
    load_config(write(tmp_path, 'x', '', 'beside_d'), [])
    (tmp_path / 'beside_d' / 'part.py').write_text('VALUE = 5\n')
    load_config(write(tmp_path, 'x', '', 'beside_d.part'), [])
    assert sys.modules['beside_d.part'].VALUE == 5


@pytest.mark.parametrize(('text', 'imports', 'says'), [
    ('', 'beside_no', "no module 'beside_no'; put it next to the config, in {folder}, or add its folder to PYTHONPATH"),
    ('import beside_missing_library\n', None,
     "cannot import beside_e: ModuleNotFoundError: No module named 'beside_missing_library'"),
    ('1 / 0\n', None, 'cannot import beside_e: ZeroDivisionError: division by zero'),
])
def test_modules_that_cannot_be_imported(tmp_path, text, imports, says) -> None:
    config = write(tmp_path, 'beside_e', text, imports)
    with pytest.raises(UserError) as error:
        load_config(config, [])
    assert str(error.value) == f'config {config}: custom_imports: ' + says.format(folder=tmp_path)


def test_a_module_hidden_by_another(tmp_path) -> None:
    config = write(tmp_path, 'colorsys', 'VALUE = 1\n')  # a name of the standard library
    with pytest.raises(UserError, match="the module 'colorsys' next to the config is hidden by .*colorsys.py with "
                                        'the same name; rename it'):
        load_config(config, [])
    load_config(write(tmp_path / 'one', 'beside_f', 'VALUE = 1\n'), [])
    with pytest.raises(UserError, match=f"the module 'beside_f' next to the config is hidden by {tmp_path}/one/"):
        load_config(write(tmp_path / 'two', 'beside_f', 'VALUE = 2\n'), [])


def test_custom_imports_of_another_kind(tmp_path) -> None:
    (tmp_path / 'config.py').write_text("custom_imports = ['a']\n")
    with pytest.raises(UserError, match=r"custom_imports=\['a'\] must be dict\(imports=\[…\], allow_failed_imports="):
        load_config(str(tmp_path / 'config.py'), [])


def test_config_file(tmp_path, monkeypatch) -> None:
    expected = str(configs_root() / 'demo' / 'resnet20_digits.py')
    (tmp_path / 'resnet20_digits.py').write_text('a = 1\n')  # not taken for the shipped one
    monkeypatch.chdir(tmp_path)
    assert mmkcla.config_file('demo/resnet20_digits.py') == config_file('resnet20_digits.py') == expected
    assert config_file('_base_/cls_runtime.py') == str(configs_root() / '_base_' / 'cls_runtime.py')
    (tmp_path / 'config.py').write_text("_base_ = __import__('mmkcla').config_file('demo/resnet20_digits.py')\n")
    assert load_config(str(tmp_path / 'config.py'), []).model.backbone.depth == 20
    with pytest.raises(UserError, match=r"the package has no config 'demo/no.py' \(searched "):
        config_file('demo/no.py')
    with pytest.raises(UserError, match=r"config 'README.md' is ambiguous: .*demo/README.md"):
        config_file('README.md')
