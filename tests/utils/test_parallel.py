"""The same work on many files, on several threads."""
import os
import threading
import time

import pytest

from mmkcla.utils.parallel import processors, run_parallel


def test_results_are_in_order() -> None:
    def work(number: int) -> int:
        time.sleep(0.002 * (5 - number % 5))
        return number * number

    assert run_parallel(work, range(20), workers=4) == [number * number for number in range(20)]
    assert run_parallel(work, [], workers=4) == []


def test_threads_run_at_once() -> None:
    barrier = threading.Barrier(3)
    assert sorted(run_parallel(lambda _: barrier.wait(20), range(3), workers=3)) == [0, 1, 2]


@pytest.mark.parametrize('workers', [1, 2])
def test_an_error_is_raised_and_the_rest_is_dropped(workers) -> None:
    begun = []

    def work(number: int) -> None:
        begun.append(number)
        if number == 1:
            raise ValueError('item 1')
        time.sleep(0.01)

    with pytest.raises(ValueError, match='item 1'):
        run_parallel(work, range(1000), workers)
    assert 1 in begun and len(begun) < 500


@pytest.mark.parametrize('progress', [False, None, True])
def test_the_bar_is_shown_where_asked(capsys, progress) -> None:
    run_parallel(str, range(3), 1, progress, 'reading')
    assert ('reading' in capsys.readouterr().err) is bool(progress)  # None: stderr is no terminal here


def test_processors() -> None:
    assert 1 <= processors() <= os.cpu_count()
