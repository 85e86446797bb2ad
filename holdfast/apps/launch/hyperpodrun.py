"""``hyperpodrun``: ``holdfast launch`` by the name of HyperPod's launcher, with its options."""

import argparse
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from holdfast.apps.launch import main as launcher
from holdfast.apps.launch.option_rows import OptionRow, Options

_PROGRAM: Final = "hyperpodrun"
_IGNORED: Final = "ignored; Holdfast's launchers need no HTTP server"
_IN_PROCESS: Final = "use --warm, which keeps imported modules across restarts"
_BEFORE: Final = "run it in the command of the container, before hyperpodrun"
_AFTER: Final = "run it in the command of the container, after hyperpodrun"


class _Refused(argparse.Action):
    """Option that ends the program with its help text."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,  # noqa: ARG002 - as argparse calls it
        values: object,  # noqa: ARG002
        option_string: str | None = None,
    ) -> NoReturn:
        parser.error(f"{option_string}: not supported; {self.help}")


def _refused(name: str, remedy: str, arguments: int | str = 1) -> OptionRow:
    settings: dict[str, Any] = {"action": _Refused, "nargs": arguments, "help": remedy}
    return (name,), settings


_OPTIONS: Final[Options] = (
    *(
        ((name,), {"default": "", "help": _IGNORED})
        for name in (
            "--server-host",
            "--server-port",
            "--server-log-level",
            "--server-shutdown-timeout",
        )
    ),
    _refused("--inprocess-restart", _IN_PROCESS, 0),
    _refused("--inprocess-timeout", _IN_PROCESS),
    _refused("--pre-train-script", _BEFORE),
    _refused("--pre-train-args", _BEFORE),
    _refused("--post-train-script", _AFTER),
    _refused("--post-train-args", _AFTER),
)
"""Options that ``hyperpodrun`` has beside torchrun's."""


def main(argv: Sequence[str]) -> int:
    """Run the ranks until they end. Returns the exit code.

    Raises:
        ConfigError: an option is invalid, or the script does not exist.

    """
    return launcher.main(argv, _PROGRAM, _OPTIONS)
