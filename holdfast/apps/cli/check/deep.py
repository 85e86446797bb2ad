"""``holdfast check deep``: an alias of ``holdfast nodes check``."""

from copy import copy

from holdfast.apps.cli.help import examples
from holdfast.apps.cli.nodes.requests import check

deep = examples(
    "holdfast check deep 0 --wait",
    "holdfast check deep gpu-17 gpu-18 --platform slurm --dry-run",
)(copy(check))
