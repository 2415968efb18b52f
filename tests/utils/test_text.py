"""Short texts for messages."""
import pytest

from mmkcla.utils.text import did_you_mean, listed, note, one_line, plural, unknown_keyword


@pytest.mark.parametrize(('text', 'most', 'expected'), [
    ('a\n  b\tc ', None, 'a b c'), ('a\nbcd', 3, 'a b'), ('', None, ''), (7, None, '7'),
    (ValueError('first\nsecond'), None, 'first second'), (KeyError('name'), None, "'name'"),
    (RuntimeError(), None, 'RuntimeError'), (RuntimeError(' \n'), 3, 'Run'),
])
def test_one_line(text, most, expected) -> None:
    assert one_line(text, most) == expected


@pytest.mark.parametrize(('names', 'most', 'expected'), [
    ([], 3, ''), (['a'], 3, 'a'), ('abc', 3, 'a, b, c'), ('abcd', 3, 'a, b, c and 1 more'),
    (range(7), 3, '0, 1, 2 and 4 more'), (iter('abc'), 1, 'a and 2 more'),
])
def test_listed(names, most, expected) -> None:
    assert listed(names, most) == expected


@pytest.mark.parametrize(('count', 'noun', 'expected'), [
    (1, 'image', '1 image'), (0, 'image', '0 images'), (2, 'image', '2 images'), (1, 'class', '1 class'),
    (3, 'class', '3 classes'), (2, 'box', '2 boxes'),
])
def test_plural(count, noun, expected) -> None:
    assert plural(count, noun) == expected


def test_did_you_mean() -> None:
    assert did_you_mean('KCAL', ['MRLA', 'KCLA']) == " (did you mean 'KCLA'?)"
    assert did_you_mean('xyz', ['MRLA', 'KCLA']) == '' == did_you_mean('KCLA', [])
    assert did_you_mean(12, iter(['128', '3'])) == " (did you mean '128'?)"


class Sized:
    def __init__(self, size: int, scale: float = 1.) -> None:
        raise TypeError('unsupported operand')


@pytest.mark.parametrize(('call', 'expected'), [
    (lambda: Sized(1, sise=2), "'sise'"),
    (lambda: Sized(1, size=2), "'size'"),
    (lambda: dict(1, a=2), None),
    (lambda: Sized(), None),
    (lambda: Sized(1), None),
])
def test_unknown_keyword_of_what_python_raises(call, expected) -> None:
    with pytest.raises(TypeError) as caught:
        call()
    assert unknown_keyword(caught.value) == expected


@pytest.mark.parametrize(('rank', 'expected'), [(None, 'note: read\n'), ('0', 'note: read\n'), ('1', '')])
def test_note_is_printed_in_the_first_process_only(monkeypatch, capsys, rank, expected) -> None:
    for variable in ('RANK', 'SLURM_PROCID', 'OMPI_COMM_WORLD_RANK'):
        monkeypatch.delenv(variable, raising=False)
    if rank is not None:
        monkeypatch.setenv('RANK', rank)
    note('read')
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ('', expected)
