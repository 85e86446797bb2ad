"""The agent's loop: read, detect, fold, report."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, TypeVar

from holdfast.detectors.contract import Detector, Readings
from holdfast.detectors.device_inventory import inventory
from holdfast.detectors.folding import Health, fold
from holdfast.detectors.line_trust import LONGEST_DRILL
from holdfast.model.errors import BackendError
from holdfast.model.health import Finding, Remedy, Severity
from holdfast.model.names import Condition, Reason
from holdfast.model.report import NodeReport
from holdfast.ports.clock import Clock
from holdfast.ports.host import Host
from holdfast.ports.report import ReportSink

T = TypeVar("T")

CATCH_UP_READS: Final = 1000
"""Number of reads after which the first report is published even if the log keeps growing."""

HARDWARE_EVERY: Final = timedelta(minutes=10)
"""Minimum interval of reports whose only changes are readings of devices: temperatures always
change, and on Kubernetes each report is a write to the Node object."""

LINES_AT_ONCE: Final = 200
"""Lines between two looks at the schedule of the heartbeat; they take some 10 ms to evaluate."""

_NOTHING: Final = Readings()


class AgentLoop:
    """Watches one node. Its state of this boot survives its process, in its last report."""

    def __init__(
        self,
        *,
        host: Host,
        sink: ReportSink,
        detectors: Sequence[Detector],
        node: str,
        clock: Clock,
        heartbeat: timedelta,
        drill_until: datetime | None = None,
    ) -> None:
        """Watch ``host`` as ``node`` and send a heartbeat every ``heartbeat``.

        ``drill_until`` is the end of a drill, which is reported while it is active.
        """
        self._host = host
        self._sink = sink
        self._detectors = detectors
        self._node = node
        self._clock = clock
        self._heartbeat = heartbeat
        self._boot_id = host.boot_id()
        self._drill_until = drill_until
        self._reported: Health | None = None
        self._reported_drill: datetime | None = None
        self._reports = 0
        self._heartbeats = 0
        self._next_heartbeat_at = clock.now()
        last = sink.last()
        is_same_boot = last is not None and last.boot_id == self._boot_id
        self._health = _known(last) if last is not None and is_same_boot else Health()
        self._hardware = last.hardware if last is not None and is_same_boot else ()
        self._shown_hardware = self._hardware
        self._hardware_at = clock.now()

    def step(self) -> datetime:
        """Run one round.

        The first report waits until the log is read up to now, and the first heartbeat waits for
        the first report: nothing must take a node for healthy while its agent is still reading.
        Later, new faults are reported at once, and repetitions of known ones with the next
        heartbeat.

        Returns:
            Time of the next round, unless something is logged before.

        Raises:
            BackendError: something could not be read or written. Nothing is lost: a later round
                reports what was not reported, and reads what was not read.

        """
        has_changes = self._take_in()
        now = self._clock.now()
        is_due = self._is_heartbeat_due(now)
        is_time = is_due or self._is_urgent()
        try:
            if is_time and self._has_changed(now):
                self._publish(now)
        finally:
            if is_due and self._reported is not None:
                self._send_heartbeat(now)
        if is_time:
            self._host.commit()
        return now if has_changes else self._next_heartbeat_at

    def _has_changed(self, now: datetime) -> bool:
        is_changed = self._health != self._reported or self._drill(now) != self._reported_drill
        return is_changed or self._is_hardware_due(now)

    def _is_hardware_due(self, now: datetime) -> bool:
        """Whether devices are to be reported: other kinds than before, or old readings."""
        if self._hardware == self._shown_hardware:
            return False
        kinds, shown = (
            {one.kind for one in groups} for groups in (self._hardware, self._shown_hardware)
        )
        # Also if the clock was set back.
        return kinds != shown or not (self._hardware_at <= now < self._hardware_at + HARDWARE_EVERY)

    def _take_in(self) -> bool:
        """Read and evaluate. Return whether there may be more to read."""
        rounds = 1 if self._reported is not None else CATCH_UP_READS
        for _ in range(rounds):
            readings = self._host.read()
            if readings == _NOTHING:
                return False
            self._read_devices(readings)
            self._judge(replace(readings, kernel_log=readings.kernel_log[:LINES_AT_ONCE]))
            for start in range(LINES_AT_ONCE, len(readings.kernel_log), LINES_AT_ONCE):
                self._send_heartbeat_within_round()
                lines = readings.kernel_log[start : start + LINES_AT_ONCE]
                self._judge(Readings(kernel_log=lines))
        return True

    def _read_devices(self, readings: Readings) -> None:
        found = self._attempt(
            "device inventory", lambda: inventory(self._hardware, readings.samples)
        )
        if isinstance(found, Finding):
            self._health = fold(self._health, [found])
        else:
            self._hardware = found

    def _attempt(self, name: str, evaluate: Callable[[], T]) -> T | Finding:
        """Return the result, or a finding that the evaluation of readings failed."""
        try:
            return evaluate()
        except Exception as error:  # noqa: BLE001 - the other detectors must run
            return _failure(name, error, self._clock.now())

    def _send_heartbeat_within_round(self) -> None:
        """Send the heartbeat that is due while lines are left: reading them must not delay it."""
        now = self._clock.now()
        if self._reported is None or not self._is_heartbeat_due(now):
            return
        try:
            self._send_heartbeat(now)
        except BackendError:
            # The end of the round repeats it; all lines are evaluated before.
            self._next_heartbeat_at = now

    def _is_heartbeat_due(self, now: datetime) -> bool:
        # Also if the clock was set back: the next heartbeat must not be an hour away.
        return not now < self._next_heartbeat_at <= now + self._heartbeat

    def _judge(self, readings: Readings) -> None:
        findings: list[Finding] = []
        settled: set[str] = set()
        for detector in self._detectors:
            if not readings.has_changes(detector.reads):
                continue
            found = self._attempt(detector.name, partial(detector.detect, readings))
            if isinstance(found, Finding):
                findings.append(found)
                continue
            findings += found
            if all(finding.reason != Reason.SOURCE_FAILED for finding in found):
                settled |= detector.settles
        self._health = fold(self._health, findings, settled=settled)

    def _is_urgent(self) -> bool:
        return self._reported is None or _fingerprint(self._reported) != _fingerprint(self._health)

    def _drill(self, now: datetime) -> datetime | None:
        """End of the drill that is active ``now``; None if there is none."""
        until = self._drill_until
        return until if until is not None and now < until else None

    def _publish(self, now: datetime) -> None:
        drill = self._drill(now)
        notices = (*(_drill_notices(drill)), *self._health.reported)
        is_new = self._is_urgent() or self._is_hardware_due(now)
        self._sink.publish(
            NodeReport(
                node=self._node,
                boot_id=self._boot_id,
                sequence=self._reports + 1,
                reported_at=now,
                faults=self._health.faults,
                notices=notices,
                suspects=self._health.suspects,
                drill_until=drill,
                hardware=self._hardware if is_new else self._shown_hardware,
            )
        )
        if is_new:
            self._shown_hardware, self._hardware_at = self._hardware, now
        self._reported_drill = drill
        self._reports += 1
        self._reported = self._health

    def _send_heartbeat(self, now: datetime) -> None:
        self._next_heartbeat_at = now + self._heartbeat
        self._heartbeats += 1
        self._sink.heartbeat(self._boot_id, self._heartbeats)


def _known(report: NodeReport) -> Health:
    reported = {suspect.key for suspect in report.suspects}
    return Health(
        faults=report.faults,
        notices=tuple(
            notice
            for notice in report.notices
            if notice.key not in reported and notice.reason != Reason.DRILL_ACTIVE
        ),
        suspects=report.suspects,
    )


def _fingerprint(health: Health) -> object:
    """Return what a reader acts on; the rest is counts and wording."""
    return (
        [(fault.key, fault.remedy, fault.urgency, fault.since) for fault in health.faults],
        {notice.key for notice in health.reported},
    )


def _drill_notices(until: datetime | None) -> tuple[Finding, ...]:
    if until is None:
        return ()
    notice = Finding(
        family="agent",
        condition=Condition.SOFTWARE,
        reason=Reason.DRILL_ACTIVE,
        severity=Severity.WARNING,
        remedy=Remedy.NONE,
        message=f"drill active until {until.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}: log lines that "
        "any user can write lead to repairs of this node",
        observed_at=until - LONGEST_DRILL,
        device=f"{until.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",  # each drill has its own Event
    )
    return (notice,)


def _failure(detector: str, error: Exception, now: datetime) -> Finding:
    return Finding(
        family="agent",
        condition=Condition.SOFTWARE,
        reason=Reason.DETECTOR_FAILED,
        severity=Severity.WARNING,
        remedy=Remedy.NONE,
        message=f"the detector {detector} failed: {type(error).__name__}: {error}",
        observed_at=now,
        device=detector,
    )
