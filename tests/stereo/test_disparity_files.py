"""Disparity files, byte by byte."""
import struct

import cv2
import numpy as np
import pytest
from PIL import Image

from mmkcla.errors import UserError
from mmkcla.stereo.disparity import parse_pfm, read_disparity, write_pfm

ROWS = [[1., 2., 3.], [4., 5., 6.]]  # top row first
BOTTOM_UP = (4., 5., 6., 1., 2., 3.)


@pytest.mark.parametrize('order, scale', [('<', '-1.0'), ('>', '1.0'), ('<', '-1'), ('<', '-0.003922'), ('>', '2e0')])
@pytest.mark.parametrize('header', ['Pf\n3 2\n{}\n', 'Pf 3 2 {}\n', 'Pf\r\n3 2\r\n{}\r\n', 'Pf\n3\n2\n{} ',
                                    'Pf\n# made by hand\n3 2\n{}\n'])
def test_pfm_bytes(order, scale, header):
    data = header.format(scale).encode() + struct.pack(f'{order}6f', *BOTTOM_UP)
    values = parse_pfm(data, 'x.pfm')
    assert values.tolist() == ROWS and values.dtype == np.float32


def test_data_that_begin_with_white_space_are_data():
    value = struct.unpack('<f', b'\n\r @')[0]
    assert parse_pfm(b'Pf\n1 1\n-1\n' + struct.pack('<f', value), 'x').item() == value


@pytest.mark.parametrize('data, message', [
    (b'Pf\n3 2\n-1\n' + bytes(23), r'x\.pfm has 23 bytes of data; 3×2 pixels need 24 \(is it truncated\?\)'),
    (b'PF\n3 2\n-1\n' + bytes(72), 'x.pfm is a PFM file with three channels; a disparity has one'),
    (b'Pf\n3 2\n0\n' + bytes(24), 'x.pfm: the PFM header has the invalid scale 0; its sign gives the byte order'),
    (b'P5\n3 2\n255\n' + bytes(6), r"x.pfm is not a PFM file: it starts with b'P5\\n3 2"),
    (b'', "x.pfm is not a PFM file: it starts with b''"),
])
def test_bad_pfm(data, message):
    with pytest.raises(UserError, match=message):
        parse_pfm(data, 'x.pfm')


def test_written_pfm_reads_the_same_here_and_in_opencv(tmp_path):
    values = np.random.default_rng(0).uniform(0.1, 99, (7, 5)).astype(np.float32)
    write_pfm(tmp_path / 'a.pfm', values)
    np.testing.assert_array_equal(read_disparity(tmp_path / 'a.pfm'), values)
    np.testing.assert_array_equal(cv2.imread(str(tmp_path / 'a.pfm'), cv2.IMREAD_UNCHANGED), values)


def test_unknown_is_zero(tmp_path):
    write_pfm(tmp_path / 'a.pfm', np.array([[np.inf, np.nan, 0., 2.5]]))
    assert read_disparity(tmp_path / 'a.pfm').tolist() == [[0, 0, 0, 2.5]]
    np.save(tmp_path / 'a.npy', np.array([[np.nan, 3]]))
    assert read_disparity(tmp_path / 'a.npy').tolist() == [[0, 3]]


def test_kitti_png(tmp_path):
    Image.fromarray(np.array([[0, 256, 384]], np.uint16)).save(tmp_path / 'a.png')
    assert read_disparity(tmp_path / 'a.png').tolist() == [[0, 1, 1.5]]


def test_bad_files(tmp_path):
    Image.fromarray(np.zeros((2, 2), np.uint8)).save(tmp_path / 'eight.png')
    (tmp_path / 'broken.png').write_bytes(b'\x89PNG')
    (tmp_path / 'empty.png').write_bytes(b'')
    np.save(tmp_path / 'three.npy', np.zeros((2, 2, 3)))
    np.save(tmp_path / 'pickled.npy', np.array([[object()]]), allow_pickle=True)
    write_pfm(tmp_path / 'negative.pfm', np.array([[-3., 1.]]))
    (tmp_path / 'a.txt').write_text('3')
    for name, message in {
            'eight.png': r'eight.png is uint8 with shape \(2, 2\); expected a 16-bit grey PNG',
            'broken.png': 'cannot read the disparity .*broken.png: it is damaged, or not a PNG',
            'empty.png': 'cannot read the disparity .*empty.png: it is damaged, or not a PNG',
            'three.npy': r'three.npy is float64 with shape \(2, 2, 3\); expected numbers with shape \(H, W\)',
            'pickled.npy': 'cannot read the disparity .*pickled.npy: .*pickle',
            'negative.pfm': r'negative.pfm has negative values \(minimum -3 pixels\); use the dispar',
            'a.txt': 'a.txt has an unknown format; use one of: .pfm .npy .png',
            'absent.pfm': 'cannot read the disparity .*absent.pfm: no such file',
    }.items():
        with pytest.raises(UserError, match=message):
            read_disparity(tmp_path / name)
