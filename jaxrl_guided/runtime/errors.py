"""The error that stands for a mistake of the user, shown as one line and never as a traceback."""

import contextlib
from collections.abc import Iterator


class UserError(ValueError):
    """Bad input. The message names the argument, flag or file and says what would be right."""


class StorageError(UserError):
    """In the middle of the work a file cannot be written any more: it may be tried again."""


class ForeignError(RuntimeError):
    """What is not this library's has failed, as a user's environment: the message says it all."""


@contextlib.contextmanager
def validation() -> Iterator[None]:
    """Declares that a `ValueError` or `OSError` in this block comes from the user's input.

    For the part of a script before its work starts (building environments, opening files): the
    error leaves the block as `UserError`. Errors in the work itself keep their traceback.
    """
    try:
        yield
    except UserError:
        raise
    except (ValueError, OSError) as error:
        raise UserError(str(error)) from error
