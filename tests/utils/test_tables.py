"""Tables as CSV and Markdown."""
import csv
import os

import pytest

from mmkcla.utils.tables import markdown_table, write_csv

ROWS = [{'name': 'a, "b"', 'score': 1 / 3, 'count': 12345678, 'other': 1}, {'name': None, 'score': 2., 'flag': True}]


def test_write_csv(tmp_path) -> None:
    write_csv(tmp_path / 'deep' / 'a.csv', ROWS, ['name', 'score', 'count', 'flag'])
    assert (tmp_path / 'deep' / 'a.csv').read_bytes() == (
        b'name,score,count,flag\n"a, ""b""",0.333333,12345678,\n,2,,True\n')
    with open(tmp_path / 'deep' / 'a.csv', newline='', encoding='utf-8') as file:
        assert list(csv.DictReader(file))[0]['name'] == 'a, "b"'


@pytest.mark.parametrize(('digits', 'expected'), [
    (2, '0.33'), (None, '0.3333333333333333'), (1, '0.3')])
def test_digits_of_floats(tmp_path, digits, expected) -> None:
    write_csv(tmp_path / 'a.csv', ROWS[:1], ['score'], digits)
    assert (tmp_path / 'a.csv').read_text() == f'score\n{expected}\n'


def test_a_table_that_fails_leaves_the_old_one(tmp_path) -> None:
    def rows():
        yield ROWS[0]
        raise RuntimeError

    (tmp_path / 'a.csv').write_text('old')
    with pytest.raises(RuntimeError):
        write_csv(tmp_path / 'a.csv', rows(), ['name'])
    assert (tmp_path / 'a.csv').read_text() == 'old' and os.listdir(tmp_path) == ['a.csv']


def test_a_table_without_rows_has_its_header(tmp_path) -> None:
    write_csv(tmp_path / 'a.csv', [], ['a', 'b'])
    assert (tmp_path / 'a.csv').read_text() == 'a,b\n'


def test_markdown_table() -> None:
    assert markdown_table(['a', 'b'], [(1, 'x'), (2.5, None)]) == [
        '| a | b |', '| --- | --- |', '| 1 | x |', '| 2.5 | None |']
    assert markdown_table(['a'], []) == ['| a |', '| --- |']
