"""Verdicts of node checks, in files next to the agents' reports, for the controller.

A verdict has the format of a report. It is valid for the same machine in the same boot.
"""

import json
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from holdfast.adapters.slurm.nodes.report import machine_id
from holdfast.adapters.slurm.nodes.reports import ReceivedReport, verdict_name
from holdfast.adapters.slurm.nodes.signatures import Credentials, CredentialsUnavailable, signed
from holdfast.kit.files import write_atomically
from holdfast.kit.serial import to_plain
from holdfast.model.errors import BackendError
from holdfast.model.health import Fault
from holdfast.model.report import NodeReport


def write_verdict(
    folder: Path,
    node: str,
    faults: Iterable[Fault],
    *,
    root: Path,
    now: datetime,
    credentials: Credentials,
) -> None:
    """Write a verdict on a node for the controller.

    Args:
        folder: directory of the agents' reports.
        node: name of the node in Slurm.
        faults: what was found.
        root: directory above the machine's ``/proc`` and ``/sys``.
        now: the present time.
        credentials: sign the file.

    Raises:
        BackendError: the file cannot be signed or written.

    """
    try:
        boot_id = (root / "proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        name = verdict_name(node)
        report = NodeReport(
            node=name, boot_id=boot_id, sequence=0, reported_at=now, faults=tuple(faults)
        )
        content = {"machine": machine_id(root), "report": to_plain(report)}
        write_atomically(folder / f"{name}.json", signed(json.dumps(content), credentials))
    except (OSError, CredentialsUnavailable) as error:
        raise BackendError(f"cannot report to the controller: {error}") from error


def faults_of(verdict: ReceivedReport | None, received: ReceivedReport | None) -> tuple[Fault, ...]:
    """Return the faults of a verdict on the reporting machine in this boot; else none."""
    if verdict is None or received is None:
        return ()
    is_same = verdict.machine == received.machine
    is_now = verdict.report.boot_id == received.report.boot_id
    return verdict.report.faults if is_same and is_now else ()
