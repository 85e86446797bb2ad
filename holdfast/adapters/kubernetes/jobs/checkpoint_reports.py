"""Reports of the init containers that verify the checkpoints of jobs."""

from typing import Final, NamedTuple

from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.kit.units import one_line
from holdfast.model.set_aside import SetAside

CHECKPOINT_GUARD: Final = "checkpoint-guard"
"""Name of the init container that verifies checkpoints; see ``holdfast checkpoint guard``."""


class CheckpointReport(NamedTuple):
    """Report of one pod."""

    lines: tuple[str, ...] = ()
    """Messages for people: what is broken, and which checkpoint is loaded."""

    moved: tuple[SetAside, ...] = ()
    """Checkpoints that it has moved."""


def checkpoint_report(status: Json) -> CheckpointReport:
    """Return the report in the status of a pod; an empty one if there is none."""
    for one in status.get("initContainerStatuses") or ():
        ended = (one.get("state") or {}).get("terminated")
        if one.get("name") == CHECKPOINT_GUARD and ended:
            from holdfast.decisions.crash_text import SHOWN_CHARS  # noqa: PLC0415 - few jobs have it
            from holdfast.decisions.termination_message import (  # noqa: PLC0415 - as above
                parse_termination_message,
            )

            lines, moved = parse_termination_message(ended.get("message") or "")
            return CheckpointReport(
                lines=tuple(one_line(line, SHOWN_CHARS) for line in lines), moved=moved
            )
    return CheckpointReport()
