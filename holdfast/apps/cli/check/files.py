"""Additional output files of a check; failures to write them do not affect its result."""

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
    """Check that each file, given by its option, can be written, before a check of hours starts.

    Raises:
        click.UsageError: a file cannot be written; the message names the option and the file.

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
    """Write a file; reports a failure on standard error without affecting the result.

    Returns:
        Whether the file was written.

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
