"""Run commands of this package in subprocesses."""
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import UserError

_TERMINATE_TIMEOUT = 30  # seconds between SIGTERM and SIGKILL


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
    """Run a command and wait for it, with this package on its Python path. Its stderr is passed through.

    Returns:
        The exit code, and the last ``error:`` line of stderr, or else its last line.
    """
    here = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, [here, os.environ.get('PYTHONPATH')]))
    error_line = last_line = ''
    try:
        process = subprocess.Popen(command, stderr=subprocess.PIPE, env=os.environ | {'PYTHONPATH': path})
    except OSError as error:
        return 127, f'cannot start {command[0]}: {error.strerror}'
    try:
        for raw in process.stderr:
            line = raw.decode('utf-8', 'replace')
            sys.stderr.write(line)
            sys.stderr.flush()
            last_line = line.strip() or last_line
            if line.startswith('error'):
                error_line = line.strip()
        return process.wait(), error_line or last_line
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(_TERMINATE_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        process.stderr.close()


@contextmanager
def stoppable() -> Iterator[None]:
    """Within the block, handle SIGTERM like Ctrl-C: stop it and its training process; the message says how to
    resume."""
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    alone = threading.current_thread() is not threading.main_thread()
    before = None if alone else signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt('run the same command again to resume') from None
    finally:
        if not alone:
            signal.signal(signal.SIGTERM, before)
