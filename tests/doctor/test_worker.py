"""Checks run in a child process: exceptions, crashes and hangs become findings, and the other checks still run."""
import multiprocessing
import os

import pytest

from mmkcla.doctor.finding import ok, problem
from mmkcla.doctor.worker import Probe, run_here, run_isolated


def probe(name, **options):
    return Probe('section', name, f'doctor_probes:{name}', **options)


def run(*probes, timeout=100.):
    return [(one.name, found.check, found.level, found.value) for one, found in run_isolated(probes, timeout)]


def test_findings_come_in_order_from_one_child(capfd):
    found = run(probe('passes'), Probe('section', 'echo', 'doctor_probes:echoes', argument='text'), probe('passes'))
    assert [part[:2] for part in found] == [('passes', 'first'), ('passes', 'second'), ('echo', 'echo'),
                                            ('passes', 'first'), ('passes', 'second')]
    assert found[2][3] == 'text' and found[0][3] == found[3][3] != str(os.getpid())
    assert capfd.readouterr() == ('', '')


def test_exception():
    found = run(probe('raises'), probe('passes'))
    assert found[1] == ('raises', 'raises', 'problem', 'the check failed (RuntimeError: two lines)')
    assert [part[0] for part in found] == ['raises', 'raises', 'passes', 'passes']


@pytest.mark.parametrize(('name', 'reason', 'before'), [('crashes', 'SIGSEGV', 1), ('exits', 'exit code 3', 0)])
def test_end_of_the_process(name, reason, before):
    found = run(probe(name), probe('passes', after=(name,)), probe('passes', after=('other',)))
    assert found[before] == (name, name, 'problem', f'the check ended the process ({reason})')
    assert found[before + 1] == ('passes', 'passes', 'note', f"not checked: the check '{name}' ended its process")
    assert [part[1] for part in found[before + 2:]] == ['first', 'second']


def test_hang():
    found = run(probe('hangs'), probe('echoes', argument='on'), timeout=5.)
    assert found == [('hangs', 'hangs', 'problem', 'the check did not finish within 5 s'),
                     ('echoes', 'echo', 'ok', 'on')]
    assert not multiprocessing.active_children()


def test_package_that_is_missing():
    found, = run_here(probe('passes', needs=('os', 'no_such_package')))
    assert (found.level, found.value) == ('note', 'not checked: no_such_package cannot be imported')
    found, = run_here(probe('passes', needs=('os',)), failed=['os'])
    assert found.value == 'not checked: os cannot be imported'


def test_package_whose_import_crashed():
    found = [one for _, one in run_isolated([Probe('section', 'torch', 'doctor_probes:crashes', needs=('os',))])]
    assert found[-1].remedy == 'reinstall the package whose problem is listed above; if none is, report this as a bug'
    crash = Probe('section', 'doctor_probes', 'doctor_probes:crashes', needs=('doctor_probes',))
    assert [one for _, one in run_isolated([crash])][-1].remedy.startswith('reinstall doctor_probes; python -X faulth')


def test_a_problem_has_a_remedy():
    assert problem('a', 'b', 'c').remedy == 'c' and ok('a', 'b', names=['d']).details == {'names': ['d']}
    with pytest.raises(TypeError):
        problem('a', 'b')
