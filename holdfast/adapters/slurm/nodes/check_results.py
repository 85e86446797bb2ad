"""What a check on a node found, told to the controller by a file beside the report of the agent.

It has the form of a report. It counts as long as the machine is the same, in the same boot.
"""

import json
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from holdfast.adapters.slurm.nodes.report import machine_id
from holdfast.adapters.slurm.nodes.reports import ReceivedReport
from holdfast.kit.files import write_atomically
from holdfast.kit.serial import to_plain
from holdfast.model.errors import BackendError
from holdfast.model.health import Fault
from holdfast.model.report import NodeReport

_SUFFIX = ".check"


def verdict_name(node: str) -> str:
    """What a verdict on a node is called among the reports."""
    return f"{node}{_SUFFIX}"


def write_verdict(
    folder: Path, node: str, faults: Iterable[Fault], *, root: Path, now: datetime
) -> None:
    """Tell the controller what was found.

    Args:
        folder: the directory that the agents report to.
        node: what Slurm calls the node.
        faults: what was found.
        root: what the machine's ``/proc`` and ``/sys`` are below.
        now: the present time.

    Raises:
        BackendError: it cannot be written.

    """
    try:
        boot_id = (root / "proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        name = verdict_name(node)
        report = NodeReport(
            node=name, boot_id=boot_id, sequence=0, reported_at=now, faults=tuple(faults)
        )
        content = {"machine": machine_id(root), "report": to_plain(report)}
        write_atomically(folder / f"{name}.json", json.dumps(content) + "\n")
    except OSError as error:
        raise BackendError(f"cannot tell the controller: {error}") from error


def faults_of(verdict: ReceivedReport | None, heard: ReceivedReport | None) -> tuple[Fault, ...]:
    """What a verdict says of the machine that is heard now; none if it is of another, or boot."""
    if verdict is None or heard is None:
        return ()
    is_same = verdict.machine == heard.machine
    is_now = verdict.report.boot_id == heard.report.boot_id
    return verdict.report.faults if is_same and is_now else ()
