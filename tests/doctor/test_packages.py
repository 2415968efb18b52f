"""Distributions that overwrite each other, are shadowed, are installed twice, or miss what they need."""
import sys

import pytest
from doctor_sites import write_distribution

from mmkcla.doctor.openmmlab import line_of
from mmkcla.doctor.packages import installed, owners, repeated, requirements, shadows, unsatisfied

INIT = 'fake_host/__init__.py'


@pytest.fixture
def site(tmp_path, monkeypatch):
    folder = tmp_path / 'site'
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


def in_site(site):
    return installed([str(site)])


def test_two_owners(site):
    write_distribution(site, 'first', '1.0', {INIT: 'a', 'fake_host/b.py': 'b'})
    write_distribution(site, 'second', '2.0', {INIT: 'c'})
    found, = owners(in_site(site), ['fake_host'])
    assert found.level == 'problem' and found.value == 'first 1.0 and second 2.0 both own the folder fake_host'
    assert found.remedy == 'pip uninstall -y first second; pip install first==1.0'


def test_the_maintained_line_is_kept(site):
    write_distribution(site, 'mmcv-lite', '2.1.0', {'mmcv/__init__.py': 'a'})
    write_distribution(site, 'onedl-mmcv', '2.3.6', {'mmcv/__init__.py': 'b'})
    found, = owners(in_site(site))
    assert found.remedy == 'pip uninstall -y mmcv-lite onedl-mmcv; pip install onedl-mmcv==2.3.6'


def test_two_owners_in_one_version(site):
    """As opencv-python and opencv-python-headless, which both are requirements: one of them wrote all files."""
    files = {INIT: 'same', 'fake_host/a.so': 'first', 'fake_host/b.so': 'first'}
    write_distribution(site, 'first', '1.0', files)
    write_distribution(site, 'second', '1.0', dict.fromkeys(files, 'second') | {INIT: 'same'})
    found, = owners(in_site(site), ['fake_host'])
    assert found.level == 'note' and 'in the same version; do not uninstall only one of them' in found.value
    (site / 'fake_host' / 'a.so').write_text('first')  # a.so of one, b.so of the other
    found, = owners(in_site(site), ['fake_host'])
    assert found.level == 'problem' and found.value.endswith('; the files on disk are a mixture')


def test_shared_folders_without_shared_files(site):
    write_distribution(site, 'first', '1.0', {'fake_host/a.py': 'a'})
    write_distribution(site, 'second', '2.0', {'fake_host/b.py': 'b'})
    found, = owners(in_site(site), ['fake_host'])
    assert (found.level, found.value) == ('ok', 'no two distributions own the same package')


def test_editable_install_beside_another(site, tmp_path):
    write_distribution(site, 'fake', '1.0', {INIT: ''})
    write_distribution(site, 'fake-fork', '2.0', editable=tmp_path / 'sources', top_level='fake_host')
    found, = owners(in_site(site), ['fake_host'])
    assert found.level == 'problem' and 'both own the folder fake_host' in found.value


def test_shadow(site, tmp_path, monkeypatch):
    write_distribution(site, 'fake', '1.0', {INIT: "__version__ = '1.0'"})
    assert list(shadows(in_site(site), ['fake_host'])) == []
    sources = tmp_path / 'sources'
    (sources / 'fake_host').mkdir(parents=True)
    (sources / INIT).write_text("__version__ = '1.0'")
    monkeypatch.syspath_prepend(str(sources))
    found, = shadows(in_site(site), ['fake_host'])
    assert found.level == 'note'
    assert found.value == f'import fake_host loads {sources}/fake_host, not fake 1.0 in {site}'
    (sources / INIT).write_text("__version__ = '2.0'")
    found, = shadows(in_site(site), ['fake_host'])
    assert found.level == 'problem' and found.value.endswith('that is version 2.0')
    assert found.remedy.endswith(f'remove {sources} from PYTHONPATH, or pip uninstall fake')


def test_editable_install_is_no_shadow(site, tmp_path, monkeypatch):
    sources = tmp_path / 'with space'
    (sources / 'fake_host').mkdir(parents=True)
    (sources / INIT).write_text('')
    monkeypatch.syspath_prepend(str(sources))
    write_distribution(site, 'fake', '1.0', editable=sources, top_level='fake_host\n')
    assert list(shadows(in_site(site), ['fake_host'])) == []


def test_folder_that_was_left(site):
    (site / 'fake_host').mkdir()
    found, = shadows(in_site(site), ['fake_host'])
    assert found.level == 'problem' and found.value == f'fake_host is a folder without an __init__.py: {site}/fake_host'


def test_files_that_are_gone(site):
    write_distribution(site, 'fake', '1.0', {INIT: ''})
    (site / INIT).unlink()
    (site / 'fake_host').rmdir()
    found, = shadows(in_site(site), ['fake_host'])
    assert found.level == 'problem' and found.value == 'fake 1.0 is installed, but Python does not find fake_host'


def test_repeated(site, tmp_path):
    home = tmp_path / 'home'
    write_distribution(site, 'fake', '1.0', {INIT: ''})
    write_distribution(home, 'fake', '2.0', {INIT: ''})
    found, = repeated(installed([str(home), str(site)]), ['fake_host'])
    assert found.level == 'note' and found.value.startswith(f'fake is installed more than once: 2.0 in {home}, 1.0 in')
    write_distribution(site, 'fake', '1.1', {INIT: ''})
    found, = repeated(in_site(site), ['fake_host'])
    assert found.level == 'problem' and found.remedy == 'pip install --force-reinstall --no-deps fake'


def test_requirements_of_a_host(site):
    write_distribution(site, 'onedl-mmdetection', '3.5.1', {'mmdet/__init__.py': ''}, requires=(
        'absent>=1', 'old>2', 'elsewhere; python_version < "3"', 'more; extra == "optional"',
        'onedl-mmcv>=2; extra == "mminstall"'))
    write_distribution(site, 'old', '1.5')
    write_distribution(site, 'onedl-mmcv', '1.7')
    found = {one.value.split()[2]: one for one in requirements(in_site(site)) if one.level == 'problem'}
    host = found['onedl-mmdetection']
    assert host.value == ('requirements of onedl-mmdetection that are not met: absent>=1 (not installed), '
                          'old>2 (1.5 is installed), onedl-mmcv>=2 (1.7 is installed)')
    assert host.remedy == "pip install 'absent>=1' 'old>2' 'onedl-mmcv>=2'"
    assert 'torch>=2.1' in found['mmkcla'].value  # as in setup.cfg


@pytest.mark.parametrize(('requirement', 'expected'), [
    ('a', None), ('A.b>=1', ('A.b>=1', '0.9 is installed')), ('a (>=3)', ('a>=3', '2.0 is installed')),
    ('a[x]<3', None), ('opencv-python', None), ('gone', ('gone', 'not installed')), ('gone; extra == "x"', None),
    ('# comment', None),
])
def test_unsatisfied(requirement, expected):
    versions = {'a': '2.0', 'a-b': '0.9', 'opencv-python-headless': '4.12'}
    assert unsatisfied(requirement, versions) == expected


def test_nothing_is_wrong_here():
    """The environment of the tests is the tested one."""
    found = [*requirements(installed()), *owners(installed()), *repeated(installed()), *shadows(installed())]
    assert not [one for one in found if one.level == 'problem']


# -- the lines of OpenMMLab --------------------------------------------------------------------------------------------

def test_one_line(site):
    write_distribution(site, 'mmengine', '0.10.7', {'mmengine/__init__.py': ''})
    write_distribution(site, 'mmsegmentation', '1.2.2', {'mmseg/__init__.py': ''})
    found, = line_of(in_site(site))
    assert (found.level, found.value) == ('ok', 'original: mmengine 0.10.7, mmsegmentation 1.2.2')


def test_two_lines(site):
    write_distribution(site, 'onedl-mmengine', '0.10.12', {'mmengine/__init__.py': ''})
    write_distribution(site, 'mmdet', '3.3.0', {'mmdet/__init__.py': ''})
    found, = line_of(in_site(site))
    assert found.level == 'problem'
    assert found.value == 'packages of two lines (onedl: onedl-mmengine 0.10.12; original: mmdet 3.3.0)'
    assert found.remedy == "pip uninstall -y mmdet; pip install 'mmkcla[onedl]'"


def test_another_package_of_that_name(site):
    """PyPI has a package mmseg that is not MMSegmentation."""
    write_distribution(site, 'mmseg', '1.3.0', {'mmseg/__init__.py': ''})
    found = list(line_of(in_site(site)))
    assert found[0].value == 'the package mmseg is of mmseg 1.3.0, which is not MMSegmentation'
    assert found[0].remedy == 'pip uninstall -y mmseg; pip install onedl-mmsegmentation'


def test_no_line(site):
    found, = line_of(in_site(site))
    assert found.level == 'problem' and found.remedy == "pip install 'mmkcla[onedl]'"


def test_nothing_is_imported(site):
    before = set(sys.modules)
    write_distribution(site, 'fake', '1.0', {INIT: 'raise RuntimeError'})
    list(shadows(in_site(site), ['fake_host']))
    assert 'fake_host' not in set(sys.modules) - before
