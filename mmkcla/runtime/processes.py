"""Commands of this package as processes of their own."""
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

_PATIENCE = 30  # seconds for a process to end after SIGTERM


def run_checked(command: list[str], what: str) -> None:
    """Run a part of the work.

    Raises:
        UserError: it failed; with its own error line.
    """
    print(f'$ {shlex.join(command)}', flush=True)
    code, last_line = run_process(command)
    if code:
        how = f'exit code {code}' if code > 0 else f'signal {signal.Signals(-code).name}'
        raise UserError(f'{what} failed ({how})' + (f': {last_line.removeprefix("error: ")}' if last_line else ''))


def run_process(command: list[str]) -> tuple[int, str]:
    """Run a command to its end, this package importable in it.

    Returns:
        Its exit code, and of what it wrote on stderr (which is passed on) the last ``error:`` line, or else the last.
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
                process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        process.stderr.close()


@contextmanager
def stoppable() -> Iterator[None]:
    """While the block runs, SIGTERM stops it as Ctrl-C does, together with the process that trains; the message says
    how to resume."""
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    alone = threading.current_thread() is not threading.main_thread()
    before = None if alone else signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt('the same command resumes') from None
    finally:
        if not alone:
            signal.signal(signal.SIGTERM, before)
