"""Node checks before and after a job: tests of its GPUs, and counts of all devices."""

import fcntl
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from holdfast.adapters.host.deep_checks.contract import CheckCommand, Skip, Target, Work
from holdfast.adapters.host.network import efa_devices
from holdfast.adapters.host.small_files import names_in
from holdfast.apps.checks.config import CheckConfig
from holdfast.apps.checks.node import Watcher, check_node, lay_out
from holdfast.detectors.folding import Health, fold
from holdfast.kit.files import open_lock
from holdfast.model.deep_checks import Outcome
from holdfast.model.errors import BackendError
from holdfast.model.health import Fault, Finding, Remedy, Severity
from holdfast.model.names import Condition, Reason
from holdfast.model.node_checks import Level, PartResult
from holdfast.ports.clock import Clock

BEFORE: Final = ("gpu", "nvlink", "neuron", "efa", "dcgm")
AFTER: Final = ("gpu", "nvlink", "neuron", "efa")

COUNTED: Final = "check"
"""Family of the findings of ``missing_devices``."""

_PART_OF: Final = {
    Reason.GPU_COUNT: "gpu",
    Reason.EFA_COUNT: "efa",
    Reason.NEURON_COUNT: "neuron",
}
_POLL_S: Final = 0.1


def check_for_job(
    config: CheckConfig,
    names: Iterable[str],
    *,
    gpus: str | None,
    limit: timedelta,
    watcher: Watcher,
    clock: Clock,
) -> tuple[PartResult, ...]:
    """Run some parts of the node's check; a part that times out has no result.

    Args:
        config: what the node should have.
        names: names of the parts.
        gpus: numbers of the job's GPUs, separated by commas; empty if it has none, None for all.
        limit: time limit for all parts together.
        watcher: gets the progress.
        clock: clock.

    """
    deadline = time.monotonic() + limit.total_seconds()
    remediation = lay_out(config, Level.QUICK, names=tuple(names))
    results: list[PartResult] = []
    for name, plan in remediation.steps:
        left = timedelta(seconds=deadline - time.monotonic())
        step = (name, _within(name, plan, left, gpus))
        results += check_node(replace(remediation, steps=(step,)), watcher, clock).parts
    return tuple(results)


def _within(name: str, plan: Work | Skip, left: timedelta, gpus: str | None) -> Work | Skip:
    if not isinstance(plan, CheckCommand):
        return plan
    if left <= timedelta(0):
        return Skip(why="the time limit of all checks was reached")
    if name == "dcgm" and gpus is not None:
        if not gpus:
            return Skip(why="the job has no GPU of this node")
        plan = replace(plan, argv=(*plan.argv, "-i", gpus))
    return replace(plan, timeout=min(plan.timeout, left))


def missing_devices(target: Target, now: datetime) -> tuple[Finding, ...]:
    """Return expected devices that the drivers do not show; takes milliseconds."""
    return tuple(
        _finding(reason, Remedy.REBOOT, f"{count} of {expected} {what} are present", now)
        for reason, what, expected, count in _counts(target)
        if count < expected
    )


def present_devices(target: Target) -> frozenset[Reason]:
    """Return the reasons for kinds of devices of which the drivers show all that are expected."""
    return frozenset(reason for reason, _, expected, count in _counts(target) if count >= expected)


def counted_devices(target: Target, parts: Iterable[PartResult]) -> frozenset[Reason]:
    """Return those of ``present_devices`` whose part of the check has passed, too."""
    passed = {part.name for part in parts if part.outcome is Outcome.PASSED}
    return frozenset(one for one in present_devices(target) if _PART_OF[one] in passed)


def _counts(target: Target) -> Iterator[tuple[Reason, str, int, int]]:
    """Yield reason, name, expected and present number of each kind of expected devices."""
    root, equipment = target.machine.root, target.equipment
    rows = (
        (Reason.GPU_COUNT, "GPUs", equipment.gpus, names_in(root / "proc/driver/nvidia/gpus")),
        (Reason.EFA_COUNT, "EFA devices", equipment.efa, efa_devices(root)),
        (
            Reason.NEURON_COUNT,
            "Neuron devices",
            equipment.neuron_devices,
            names_in(root / "sys/devices/virtual/neuron_device"),
        ),
    )
    for reason, what, expected, there in rows:
        if expected is not None:
            yield reason, what, expected, len(there)


def faults_found(parts: Iterable[PartResult], now: datetime) -> tuple[Fault, ...]:
    """Return the faults of the node, from the parts that failed, with their reasons."""
    faults: list[Fault] = []
    for part in parts:
        if part.outcome is Outcome.FAILED:
            found = [finding for finding in part.findings if finding.remedy.touches_node]
            plain = _finding(
                Reason.CHECK_FAILED, Remedy.REPLACE, f"{part.name}: {part.detail}", now
            )
            faults += fold(Health(), found).faults or fold(Health(), [plain]).faults
    return tuple(faults)


@contextmanager
def one_at_a_time(lock: Path, limit: timedelta) -> Iterator[timedelta]:
    """Wait until no other check runs on the node; yields the rest of ``limit``.

    Raises:
        BackendError: another check did not end in time, or the file cannot be locked.

    """
    deadline = time.monotonic() + limit.total_seconds()
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = open(open_lock(lock), "rb")  # noqa: SIM115 - until the end of the block
    except OSError as error:
        raise BackendError(f"cannot open {lock}: {error.strerror}") from error
    with file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise BackendError("another check is still running on the node") from error
                time.sleep(_POLL_S)
            else:
                break
        yield timedelta(seconds=deadline - time.monotonic())


def _finding(reason: Reason, remedy: Remedy, message: str, now: datetime) -> Finding:
    return Finding(
        family=COUNTED,
        condition=Condition.DEEP_CHECK,
        reason=reason,
        severity=Severity.FATAL,
        remedy=remedy,
        message=message,
        observed_at=now,
    )
