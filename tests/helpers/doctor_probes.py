"""Checks for the tests of the worker: one passes, others raise, crash, hang or print."""
import os
import signal
import time

from mmkcla.doctor.finding import ok


def passes():
    print('noise')
    yield ok('first', str(os.getpid()))
    yield ok('second', 'b')


def raises():
    yield ok('before', 'a')
    raise RuntimeError('two\nlines')


def crashes():
    yield ok('before', 'a')
    os.kill(os.getpid(), signal.SIGSEGV)


def exits():
    os._exit(3)
    yield


def hangs():
    time.sleep(1000)
    yield


def echoes(text):
    yield ok('echo', text)
