"""The ``holdfast`` command, also as ``python -m holdfast``."""

import sys

from holdfast import __version__


def main() -> None:
    """Run the process that the command line asks for, and end with its exit code."""
    if sys.argv[1:] == ["--version"] and _prints_version():
        return
    from holdfast.apps import main as processes  # noqa: PLC0415 - twice the time of --version

    processes.main()


def _prints_version() -> bool:
    """Print it as click does. Returns whether it could be written; click's command reports why."""
    try:
        print(f"holdfast {__version__}", flush=True)  # noqa: T201 - click is not loaded here
    except (AttributeError, OSError):  # closed, full, or nobody reads it
        return False
    return sys.stdout is not None


if __name__ == "__main__":
    main()
