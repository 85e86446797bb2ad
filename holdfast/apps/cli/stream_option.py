"""The option of checks whose results are streamed."""

from pathlib import Path

import click

stream_option = click.option(
    "--stream",
    "stream_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Append a line for each node, as HyperPod's stream DeepHealthCheckResults has them.",
)
