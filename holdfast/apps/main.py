"""The entry point of every ``holdfast`` process, and its outermost handler of errors."""

import errno
import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from typing import TYPE_CHECKING, Final

from holdfast.apps.exit_codes import ExitCode
from holdfast.model.errors import ConfigError, HoldfastError, StorageFull

if TYPE_CHECKING:  # only services set its hook
    import threading

LIGHT: Final = {
    "agent": "holdfast.apps.agent.main",
    "_node": "holdfast.adapters.local.node_process",
    "launch": "holdfast.apps.launch.main",
    "hyperpodrun": "holdfast.apps.launch.hyperpodrun",
    "slurm supervise": "holdfast.apps.slurm.supervisor",
}
"""Processes that run on every node: they start without click and rich."""

_SERVICES: Final = ("api", "controller")
"""Processes that somebody starts again when they end."""

_COMMANDS: Final = "holdfast.apps.cli.main"
_GC_THRESHOLD: Final = 100_000
"""Objects between two garbage collections of a command, instead of 700: imports create many and
leave no garbage, and collections took 7 % of the time of ``nodes list``."""

_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)
_EXTRAS: Final = {"yaml": "kubernetes"}
"""Packages that many modules import unconditionally, and the extra that installs each."""


def main() -> None:
    """Run the process that the command line asks for, and end with its exit code."""
    _open_closed()
    if isinstance(sys.stdout, TextIOWrapper):  # a terminal may not have every letter of a name
        sys.stdout.reconfigure(errors="backslashreplace")
    is_service = bool(sys.argv[1:2]) and sys.argv[1] in _SERVICES
    if is_service:
        import threading  # noqa: PLC0415 - see above

        threading.excepthook = _end
    code = run(sys.argv[1:])
    if is_service or _light(sys.argv[1:]):
        sys.exit(code)
    _flush_or_drop()  # of an interrupted command
    os._exit(code)  # the end of the interpreter took 16 % of the time of a list


def hyperpodrun() -> None:
    """Run the launcher by the name that commands of HyperPod's pods call."""
    sys.argv[1:1] = ["hyperpodrun"]
    main()


def run(argv: Sequence[str]) -> int:
    """Run the process that ``argv`` asks for. Returns its exit code, see ``ExitCode``.

    Every module named here has ``main(argv) -> int``. Its errors are printed to
    standard error; the traceback is shown with ``HOLDFAST_DEBUG=1`` only.
    """
    words = _light(argv)
    module, rest = LIGHT.get(" ".join(words), _COMMANDS), argv[len(words) :]
    try:
        if module == _COMMANDS:
            gc.set_threshold(_GC_THRESHOLD)
        code = import_module(module).main(rest)
        sys.stdout.flush()  # while a failure can still be reported
    except Exception as error:  # noqa: BLE001 - the outermost handler: nothing else would answer
        return _answer(error)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    return int(code)


def _end(failed: "threading.ExceptHookArgs") -> None:
    """Exit when a thread fails: its state would go stale."""
    if isinstance(failed.exc_value, Exception):
        os._exit(_answer(failed.exc_value))


def _light(argv: Sequence[str]) -> list[str]:
    """Return the words at the beginning that name a process of ``LIGHT``; empty if none does."""
    names = (name.split() for name in LIGHT)
    return next((words for words in names if list(argv[: len(words)]) == words), [])


def _answer(error: Exception) -> int:
    if os.environ.get("HOLDFAST_DEBUG"):
        sys.excepthook(type(error), error, error.__traceback__)
    _flush_or_drop()
    match error:
        case BrokenPipeError():  # the reader, such as ``head``, has seen enough
            return ExitCode.FAILED
        case ConfigError():
            return _print_problems(error.problems, ExitCode.BAD_INPUT)
        case HoldfastError():
            is_full = isinstance(error, StorageFull)
            return _print_problems([str(error)], ExitCode.BAD_INPUT if is_full else ExitCode.FAILED)
        case OSError():
            where = f": {error.filename}" if error.filename else ""
            is_full = error.errno in _NO_SPACE
            code = ExitCode.BAD_INPUT if is_full else ExitCode.FAILED
            return _print_problems([f"{error.strerror or error}{where}"], code)
        case UnicodeEncodeError():
            letter = ascii(error.object[error.start])
            problem = f"{letter} in a name or a value is not valid UTF-8; rename it"
            return _print_problems([problem], ExitCode.BAD_INPUT)
        case RecursionError():
            return _print_problems(
                ["the input is nested too deeply to be parsed"], ExitCode.BAD_INPUT
            )
        case ModuleNotFoundError(name=name) if name in _EXTRAS:
            problem = f"{name} is not installed: pip install 'holdfast[{_EXTRAS[name]}]'"
            return _print_problems([problem], ExitCode.BAD_INPUT)
    return _print_problems(
        [
            f"internal error: {type(error).__name__}: {error}",
            "This is a bug. Repeat the command with HOLDFAST_DEBUG=1 and report its output.",
        ],
        ExitCode.INTERNAL_ERROR,
    )


def _print_problems(lines: Sequence[str], code: ExitCode) -> int:
    for line in lines:  # what somebody has typed or written must not steer the terminal
        plain = "".join(char if char.isprintable() or char in "\n\t" else "�" for char in line)
        print(f"holdfast: {plain}", file=sys.stderr)  # noqa: T201 - click is not loaded here
    return code


def _open_closed() -> None:
    """Lead nowhere what the caller has closed, or the next file would get its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115 - until the end
            os.set_inheritable(nowhere.fileno(), True)  # noqa: FBT003 - it takes no names
            setattr(sys, name, nowhere)


def _flush_or_drop() -> None:
    """Lead nowhere what cannot be written, or Python would fail on it once more at its exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
