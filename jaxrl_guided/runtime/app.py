"""Entry point of every script: parse flags, run, and show a user's mistake as one line."""

import os
import re
import sys
import traceback
import types
from collections.abc import Callable, Mapping

from absl import app, flags, logging

from jaxrl_guided.runtime.errors import ForeignError, StorageError, UserError
from jaxrl_guided.runtime.signals import Stopped

USAGE_EXIT_CODE = 2
DIVERGED_EXIT_CODE = 3
INTERRUPT_EXIT_CODE = 130

_REQUIRED = re.compile(r"flag --(\w+)=None: Flag --\w+ must have a value other than None\.?")
_REPEATED = re.compile(r"flag (--[\w.]+)=.*: already defined as ", re.DOTALL)

RUN_DIR = flags.DEFINE_string(
    "run_dir", None, "Directory of this run; an existing one of the same configuration is resumed."
)
_DEBUG_TRACE = flags.DEFINE_bool("debug_trace", False, "Show the traceback of a bad input, too.")


def _fail(message: str, code: int = USAGE_EXIT_CODE) -> None:
    print("error: " + " ".join(message.split()), file=sys.stderr)
    _leave(code)


def _leave(code: int) -> None:
    """Ends this process, at once where others may wait for it in a common step: they fail then.

    A normal end would wait for them in turn.
    """
    if not _has_peers():
        sys.exit(code)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _has_peers() -> bool:
    """Whether this process has joined others (`runtime.devices`)."""
    jax = sys.modules.get("jax")
    return jax is not None and jax.distributed.is_initialized()


def _parse_flags(argv: list[str]) -> list[str]:
    try:
        return flags.FLAGS(argv)
    except SystemExit:  # --help, which absl counts as a failure
        sys.exit(0)
    except flags.UnrecognizedFlagError as error:
        longer = [name for name in flags.FLAGS if name.split(".")[-1] == error.flagname]
        hint = f"; there is --{' and --'.join(longer)}" if longer else ""
        _fail(f"{error}{hint}")
        raise
    except flags.Error as error:
        if missing := _REQUIRED.findall(str(error)):
            _fail(f"--{' and --'.join(missing)} must be given")
        if repeated := _REPEATED.match(str(error)):
            _fail(f"{repeated[1]} is given twice; give it once, its values separated by commas")
        _fail(str(error))
        raise


def _expand_home() -> None:
    for flag in flags.FLAGS.get_key_flags_for_module(sys.argv[0]):
        if flag.present and isinstance(flag.value, str):
            flag.value = os.path.expanduser(flag.value)


def main(
    run: Callable[..., None],
    positional: Mapping[str, str] = types.MappingProxyType({}),
    uses_run_dir: bool = False,
) -> None:
    """Parses the command line, calls `run` with its positional arguments and ends the process.

    `positional` names the arguments that must stand beside the flags, all of them required, and
    says what they are; `--run_dir` is refused unless the script uses it.

    A `UserError` or a flag that cannot be parsed prints one line `error: …` and exits with 2;
    work that was stopped exits with 130, so that nobody takes it for finished; a run that has
    diverged exits with 3; an error of the system (a full disk) or of what is not ours (a user's
    environment) prints its message and exits with 1; anything else that `run` raises is a bug and
    keeps its traceback. A `~` at the start of a text flag stands for the home directory, which
    shells leave alone behind `--name=`.
    """

    def run_guarded(argv: list[str]) -> None:
        given = argv[1:]
        if len(given) > len(positional):
            extra = given[len(positional)]
            _fail(f"unexpected argument {extra!r}; options are given as --name=value")
        if len(given) < len(positional):
            name, meaning = list(positional.items())[len(given)]
            _fail(f"missing argument {name}: {meaning}")
        if RUN_DIR.present and not uses_run_dir:
            _fail(f"--run_dir={RUN_DIR.value} is not used by this script; leave it out")
        if not flags.FLAGS["verbosity"].present:
            logging.set_verbosity(logging.WARNING)
        _expand_home()
        try:
            run(*given)
        except UserError as error:
            if _DEBUG_TRACE.value:
                traceback.print_exc()
            _fail(str(error), 1 if isinstance(error, StorageError) else USAGE_EXIT_CODE)
        except Stopped as stopped:
            print(f"stopped; {stopped}", file=sys.stderr)
            sys.exit(INTERRUPT_EXIT_CODE)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            _leave(INTERRUPT_EXIT_CODE)
        except BrokenPipeError:
            # The reader of our output went away (`… | head`): not worth a traceback.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        except FloatingPointError as error:
            if _DEBUG_TRACE.value:
                traceback.print_exc()
            print(f"error: the run has diverged: {error}", file=sys.stderr)
            _leave(DIVERGED_EXIT_CODE)
        except (OSError, ForeignError) as error:  # a full disk, a directory taken away
            if _DEBUG_TRACE.value:
                traceback.print_exc()
            print(f"error: {error}", file=sys.stderr)
            _leave(1)
        except Exception:
            if not _has_peers():
                raise
            traceback.print_exc()
            _leave(1)

    listed = (RUN_DIR, _DEBUG_TRACE) if uses_run_dir else (_DEBUG_TRACE,)
    for flag in listed:  # by --help of the script
        flags.FLAGS.register_key_flag_for_module(sys.argv[0], flags.FLAGS[flag.name])
    app.run(run_guarded, flags_parser=_parse_flags)
