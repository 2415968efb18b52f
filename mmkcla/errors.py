"""The error for people: one line that says what is wrong, with the value, and what to do."""


class UserError(ValueError):
    """Something the user can mend: bad data, a bad config value, a checkpoint that does not fit.

    The command line prints its message alone, without a stack of library frames, and exits with code 2. The message
    is one line. It takes a single string, so that it survives the way back from a data-loader worker.
    """
