"""Files that a check writes beside what it prints: none of them decides what it found."""

from collections.abc import Callable
from pathlib import Path

import click

stream_option = click.option(
    "--stream",
    "stream_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Append one line per node, in the format of HyperPod's DeepHealthCheckResults stream.",
)


def refuse_unwritable(**files: Path | None) -> None:
    """Look whether each file can be written, by its option, before hours of work are lost on it.

    Raises:
        click.UsageError: one cannot; it says which.

    """
    for option, file in files.items():
        if file is None:
            continue
        try:
            file.open("a", encoding="utf-8").close()
        except OSError as error:
            raise click.UsageError(
                f"--{option} {file} cannot be written: {error.strerror}; nothing was run"
            ) from error


def keep(option: str, file: Path, write: Callable[[], object]) -> bool:
    """Write a file; that it cannot be is told, and makes no difference to the result.

    Returns:
        Whether it was written.

    """
    try:
        write()
    except OSError as error:
        click.echo(
            f"holdfast: --{option} {file} cannot be written: {error.strerror}; the result of the "
            "check is unaffected",
            err=True,
        )
        return False
    return True
