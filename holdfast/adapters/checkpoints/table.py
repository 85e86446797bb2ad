"""All checkpoint formats, in the order in which they are recognised."""

from typing import Final

from holdfast.adapters.checkpoints import (
    dcp,
    megatron,
)
from holdfast.adapters.checkpoints.contract import Format

ROWS: Final[tuple[Format, ...]] = (
    megatron.FORMAT,
    dcp.FORMAT,
)
"""The particular before the general: a step of torchtitan is a DCP checkpoint as well."""

FORMATS: Final = {row.name: row for row in ROWS}
