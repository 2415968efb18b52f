"""Run commands of this package in subprocesses."""
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import UserError
from ..utils.parent import ending_with_this
from ..utils.signals import Interrupted, stop_signals, with_advice

_TERMINATE_TIMEOUT = 120  # seconds until a process that was asked to stop is killed


# set for the commands of a series: their options are meant for the training and the test together
SHARED_OPTIONS = 'MMKCLA_SHARED_OPTIONS'


def run_checked(command: list[str], what: str) -> None:
    """Run a command.

    Raises:
        UserError: it failed; includes its error line.
    """
    print(f'$ {shlex.join(command)}', flush=True)
    code, last_line = run_process(command)
    if code:
        how = f'exit code {code}' if code > 0 else f'signal {signal.Signals(-code).name}'
        raise UserError(f'{what} failed ({how})' + (f': {last_line.removeprefix("error: ")}' if last_line else ''))


def run_process(command: list[str]) -> tuple[int, str]:
    """Run a command and wait for it, with this package on its Python path. Its stderr is passed through. It ends with
    this process, also after SIGKILL (on Linux).

    Returns:
        The exit code, and the last ``error:`` line of stderr, or else its last line.
    """
    here = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, [here, os.environ.get('PYTHONPATH')]))
    error_line = last_line = ''
    try:  # a session of its own: Ctrl-C reaches this process only, which passes it on, so it arrives once
        process = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True,
                                   preexec_fn=ending_with_this(),
                                   env=os.environ | {'PYTHONPATH': path, SHARED_OPTIONS: '1'})
    except OSError as error:
        return 127, f'cannot start {command[0]}: {error.strerror}'
    stop = signal.SIGTERM
    try:
        for raw in process.stderr:
            line = raw.decode('utf-8', 'replace')
            sys.stderr.write(line)
            sys.stderr.flush()
            last_line = line.strip() or last_line
            if line.startswith('error'):
                error_line = line.strip()
        return process.wait(), error_line or last_line
    except Interrupted as interrupted:
        stop = signal.Signals(interrupted.number)
        raise
    finally:
        if process.poll() is None:
            _end(process, stop)
        process.stderr.close()


def _end(process: subprocess.Popen, stop: signal.Signals) -> None:
    """Pass a signal on, and wait: a training finishes its step and writes a checkpoint."""
    process.send_signal(stop)
    try:
        _, rest = process.communicate(timeout=_TERMINATE_TIMEOUT)  # read, or the process blocks on a full pipe
        sys.stderr.write(rest.decode('utf-8', 'replace'))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def stoppable() -> Iterator[None]:
    """Within the block, a signal stops this process and its training process; the message says how to resume."""
    with stop_signals():
        try:
            yield
        except KeyboardInterrupt as stop:
            raise with_advice(stop, 'run the same command again to resume') from None
