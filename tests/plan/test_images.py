"""What image files are found to be."""
import numpy as np
import pytest
from PIL import Image

from mmkcla.datasets.image_files import copies_between, copies_within, read_images
from mmkcla.errors import UserError
from mmkcla.plan.images import file_problems, find_images, held_out, summarise
from mmkcla.plan.splits import shared_images
from mmkcla.utils.images import as_loaded


@pytest.fixture
def folder(tmp_path):
    grey = np.arange(48, dtype=np.uint8).reshape(6, 8)
    Image.fromarray(np.dstack([grey, grey + 50, grey + 100])).save(tmp_path / 'colour.png')
    Image.fromarray(grey).save(tmp_path / 'grey.png')
    Image.fromarray(grey.astype(np.uint16) * 1000).save(tmp_path / 'deep.png')
    Image.fromarray(np.dstack([grey] * 4)).save(tmp_path / 'alpha.png')
    turned = Image.fromarray(grey)
    exif = turned.getexif()
    exif[0x0112] = 6
    turned.save(tmp_path / 'turned.jpg', exif=exif)
    data = (tmp_path / 'colour.png').read_bytes()
    (tmp_path / 'cut.png').write_bytes(data[:-20])
    (tmp_path / 'again.png').write_bytes(data)
    (tmp_path / 'notes.txt').write_text('no image')
    (tmp_path / '.hidden.png').write_bytes(data)
    return tmp_path


def test_formats_sizes_and_damage(folder):
    files = {file.path.name: file for file in read_images(find_images(folder))}
    assert sorted(files) == ['again.png', 'alpha.png', 'colour.png', 'cut.png', 'deep.png', 'grey.png', 'turned.jpg']
    assert {name: (file.channels, file.bits) for name, file in files.items() if not file.problem} == {
        'again.png': (3, 8), 'alpha.png': (4, 8), 'colour.png': (3, 8), 'deep.png': (1, 16), 'grey.png': (1, 8),
        'turned.jpg': (1, 8)}
    assert (files['turned.jpg'].width, files['turned.jpg'].height) == (6, 8)  # upright
    assert (files['grey.png'].width, files['grey.png'].height) == (8, 6)
    assert 'truncated' in files['cut.png'].problem
    problems = {str(problem): problem.fatal for problem in file_problems(list(files.values()), folder)}
    assert [fatal for line, fatal in problems.items() if line.startswith('unreadable images: 1 (cut.png (')] == [True]
    assert [line for line, fatal in problems.items() if not fatal] == [
        'images with an alpha channel (it is left out) or in CMYK: 1 (alpha.png)',
        'images of more than 8 bits a channel (scaled to 8 bits: 65535 becomes 255): 1 (deep.png)']


def test_copies_by_content(folder):
    files = read_images(find_images(folder))
    assert [file.path.name for file in copies_within(files)] == ['colour.png']  # of again.png
    first = [file for file in files if file.path.name == 'again.png']
    assert [file.path.name for file in copies_between(first, files)] == ['again.png', 'colour.png']
    problem, = shared_images({'train': first, 'val': files})
    assert not problem.fatal and str(problem) == 'val: images that are in train, too: 2 (again.png, colour.png)'
    problem, = shared_images({'train': files, 'val': first})
    assert problem.fatal  # nothing in val that was not trained on


def test_statistics_are_of_what_a_network_gets(tmp_path):
    Image.new('RGB', (10, 10), (10, 20, 30)).save(tmp_path / 'a.png')
    Image.new('RGB', (10, 30), (30, 20, 10)).save(tmp_path / 'b.png')
    found = summarise(read_images(find_images(tmp_path)))
    assert found.mean == [25., 20., 15.]  # b has three times the pixels
    assert found.std == [8.7, 1., 8.7]  # not below 1
    assert (found.count, found.channels, found.longer['100'], found.shorter['50']) == (2, {'3': 2}, 30, 10)


def test_sixteen_bits_as_opencv_loads_them(tmp_path):
    cv2 = pytest.importorskip('cv2')
    values = np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)
    Image.fromarray(values).save(tmp_path / 'deep.png')
    loaded = cv2.imread(str(tmp_path / 'deep.png'), cv2.IMREAD_COLOR)
    assert np.abs(np.asarray(as_loaded(tmp_path / 'deep.png')).astype(int) - loaded).max() <= 1
    Image.fromarray(values // 64).save(tmp_path / 'dark.png')  # 10 bits of the 16
    assert np.asarray(as_loaded(tmp_path / 'dark.png')).max() <= 4
    assert np.asarray(as_loaded(tmp_path / 'dark.png', stretch=True)).max() == 255


def test_held_out_images_stay_when_others_come(tmp_path):
    for number in range(20):
        Image.new('L', (4, 4), number).save(tmp_path / f'{number}.png')
    files = read_images(find_images(tmp_path))
    held = held_out(files, 0.2)
    assert len(held) == 4 and held == held_out(files[::-1], 0.2)
    assert held_out(files + files[:5], 0.2) == held  # copies change nothing
    assert held_out(files[:1], 0.2) == set() == held_out(files[:1] * 3, 0.2)
    kept = held_out([file for file in files if file.sha256 in held] + files[:10], 0.5)
    assert held & kept


def test_undecodable_pixels_are_named(tmp_path):
    (tmp_path / 'a.png').write_bytes(b'\x89PNG\r\n\x1a\nnothing')
    with pytest.raises(UserError, match='cannot read the image .*a.png'):
        as_loaded(tmp_path / 'a.png')
