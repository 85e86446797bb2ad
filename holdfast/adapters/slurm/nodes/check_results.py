"""Verdicts of node checks, in files next to the agents' reports, for the controller.

A verdict has the format of a report. It is valid for the same machine in the same boot.
"""

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from holdfast.adapters.slurm.nodes.report import machine_id
from holdfast.adapters.slurm.nodes.reports import ReceivedReport, verdict_name
from holdfast.adapters.slurm.nodes.signatures import (
    CredentialsUnavailable,
    Trust,
    signed,
    signed_at,
    split,
)
from holdfast.kit.bounded_files import parse_json, read_bounded
from holdfast.kit.files import write_atomically
from holdfast.kit.serial import checked_value, to_plain
from holdfast.model.errors import BackendError
from holdfast.model.health import Fault
from holdfast.model.report import REPORT_LIMIT, NodeReport

Faults = tuple[Fault, ...]
"""Faults of a verdict, oldest first."""


def update_verdict(
    folder: Path,
    node: str,
    faults: Callable[[Faults], Faults],
    *,
    root: Path,
    now: datetime,
    trust: Trust,
) -> None:
    """Replace the verdict on a node for the controller; not written if nothing changes.

    The caller excludes concurrent calls for the node.

    Args:
        folder: directory of the agents' reports.
        node: name of the node in Slurm.
        faults: returns the new faults, by those of earlier checks of this machine in this boot.
        root: directory above the machine's ``/proc`` and ``/sys``.
        now: the present time.
        trust: signs the file, and has the users whose earlier verdict counts.

    Raises:
        BackendError: the file cannot be signed or written.

    """
    name = verdict_name(node)
    path = folder / f"{name}.json"
    try:
        boot_id = (root / "proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        machine = machine_id(root)
        before = _faults_in(path, name, machine, boot_id, trust)
        after = faults(before)
        if after == before:
            return
        report = NodeReport(node=name, boot_id=boot_id, sequence=0, reported_at=now, faults=after)
        content = {"machine": machine, "report": to_plain(report)}
        write_atomically(path, signed(json.dumps(content), trust.credentials))
    except (OSError, CredentialsUnavailable) as error:
        raise BackendError(f"cannot report to the controller: {error}") from error


def _faults_in(path: Path, name: str, machine: str, boot_id: str, trust: Trust) -> Faults:
    """Return the faults in a verdict on this machine in this boot; none if it is not valid.

    Raises:
        OSError: it cannot be read.
        CredentialsUnavailable: its signature cannot be verified now.

    """
    try:
        content, credential = split(read_bounded(path, REPORT_LIMIT))
        signed_at(content, credential, trust)
        plain = parse_json(content)
        report = checked_value(NodeReport, plain.get("report") if isinstance(plain, dict) else None)
    except (FileNotFoundError, ValueError):
        return ()
    is_same = report.node == name and report.boot_id == boot_id and plain["machine"] == machine
    return report.faults if is_same else ()


def faults_of(verdict: ReceivedReport | None, received: ReceivedReport | None) -> tuple[Fault, ...]:
    """Return the faults of a verdict on the reporting machine in this boot; else none."""
    if verdict is None or received is None:
        return ()
    is_same = verdict.machine == received.machine
    is_now = verdict.report.boot_id == received.report.boot_id
    return verdict.report.faults if is_same and is_now else ()
