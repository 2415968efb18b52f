"""Commands in subprocesses: they do not outlive the command that started them."""
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mmkcla.runtime.processes import run_process

ROOT = Path(__file__).parents[2]
CHILD = 'import os, time; print(os.getpid(), flush=True); time.sleep(60)'
PARENT = f'import sys; from mmkcla.runtime.processes import run_process; run_process([sys.executable, "-c", {CHILD!r}])'


def alive(process):
    try:
        return Path(f'/proc/{process}/stat').read_text().rpartition(')')[2].split()[0] != 'Z'
    except OSError:
        return False


@pytest.mark.skipif(not sys.platform.startswith('linux'), reason='the kernel of Linux ends the child')
def test_a_child_ends_with_a_killed_parent():
    """As `seeds` and `sweep` start their trainings: any program, in a session of its own."""
    parent = subprocess.Popen([sys.executable, '-c', PARENT], stdout=subprocess.PIPE, text=True,
                              env=os.environ | {'PYTHONPATH': str(ROOT)})
    child = int(parent.stdout.readline())
    try:
        assert alive(child) and os.getsid(child) == child
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        end = time.monotonic() + 5
        while alive(child) and time.monotonic() < end:
            time.sleep(0.02)
        assert not alive(child)
    finally:
        if alive(child):
            os.kill(child, signal.SIGKILL)
        parent.stdout.close()


def test_code_and_last_line():
    program = 'import sys; print("error: first", file=sys.stderr); print("later", file=sys.stderr); sys.exit(3)'
    assert run_process([sys.executable, '-c', program]) == (3, 'error: first')
    assert run_process(['/no/such/program']) == (127, 'cannot start /no/such/program: No such file or directory')
