"""What exit codes of ranks mean for a restart: pure."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class ExitMeaning(StrEnum):
    """What to do after a rank exited with a code other than 0."""

    CRASH = "crash"
    """Restart the ranks. Every code without an entry in the table."""

    RESUME = "resume"
    """Restart the ranks: they saved a checkpoint before they exited."""

    ANOTHER_DEVICE = "another-device"
    """Restart the ranks, the failed one on another accelerator: it saved a checkpoint."""

    STOP = "stop"
    """Do not restart: the job found that a restart does not help."""


EXIT_MEANINGS: Final[Mapping[int, ExitMeaning]] = MappingProxyType(
    {
        16: ExitMeaning.ANOTHER_DEVICE,
        17: ExitMeaning.RESUME,
        93: ExitMeaning.STOP,
    }
)
"""16 and 17: Megatron-LM's rerun state machine (``core/rerun_state_machine.py``); 93: "do not
restart" of NVIDIA's resiliency extension."""


def parse_exit_meanings(text: str) -> dict[int, ExitMeaning]:
    """Parse entries such as ``16=another-device,42=stop``.

    Raises:
        ValueError: the message names the entry and what was expected.

    """
    found: dict[int, ExitMeaning] = {}
    for entry in filter(None, text.split(",")):
        code, _, meaning = entry.partition("=")
        if not (code.isascii() and code.isdecimal() and 1 <= int(code[:4]) <= 255):
            raise ValueError(f"{entry[:60]!r}: expected CODE=MEANING with a code from 1 to 255")
        if meaning not in list(ExitMeaning):
            known = ", ".join(ExitMeaning)
            raise ValueError(f"{entry[:60]!r}: expected one of {known} after the code")
        found[int(code)] = ExitMeaning(meaning)
    return found
