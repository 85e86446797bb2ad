"""All checkpoint formats, in the order in which they are recognised."""

from typing import Final

from holdfast.adapters.checkpoints import (
    accelerate,
    dcp,
    deepspeed,
    hf_trainer,
    lightning,
    megatron,
    torch_save,
    torchtitan,
)
from holdfast.adapters.checkpoints.contract import Format

ROWS: Final[tuple[Format, ...]] = (
    megatron.FORMAT,
    deepspeed.FORMAT,
    hf_trainer.FORMAT,
    accelerate.FORMAT,
    lightning.FORMAT,
    torchtitan.FORMAT,
    dcp.FORMAT,
    torch_save.FORMAT,
)
"""The particular before the general: a step of torchtitan is a DCP checkpoint as well."""

FORMATS: Final = {row.name: row for row in ROWS}
