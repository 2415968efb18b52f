"""The exceptions for errors that the user can fix."""


class UserError(ValueError):
    """An error that the user can fix: invalid data, an invalid config value, a checkpoint that does not fit.

    The message is one line: what is wrong, with the value, and what to do. The command line prints only the message,
    without a traceback, and exits with ``exit_code``. The only argument is a string, so that the exception can be
    passed back from a data-loader worker.
    """

    exit_code = 2


class NonFiniteError(UserError):
    """A training has diverged: its loss, gradients or weights are NaN or infinite."""

    exit_code = 3


class UnusableCheckpoint(UserError):
    """A checkpoint that no config could resume from: it is damaged, or its training state is not a valid one."""
