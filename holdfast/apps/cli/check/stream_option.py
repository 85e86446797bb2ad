"""The option of checks whose results are streamed."""

from pathlib import Path

import click

stream_option = click.option(
    "--stream",
    "stream_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Append one line per node, in the format of HyperPod's DeepHealthCheckResults stream.",
)
