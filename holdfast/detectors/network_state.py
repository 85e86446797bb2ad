"""EFA, InfiniBand and RoCE devices: those that vanish, links that go down, counters that rise."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from holdfast.detectors.contract import Detector, Profile, Sample
from holdfast.detectors.judgement import Judgement, counter, gone, rise, state_detector, whole
from holdfast.model.health import Finding, Remedy, Severity
from holdfast.model.names import Condition, Reason

STATE: Final = "network-state"
EVENTS: Final = "network-event"
SOURCE: Final = "infiniband"
EVERY: Final = timedelta(seconds=30)

DOWN_S: Final = 240
"""A link may be down so long before it is a fault: a switch that restarts. As gpud has it."""

FLAPS: Final = 3
"""So many flaps within an hour are too many. As gpud has it."""

_EFA_RISES: Final = {
    "impaired_remote_conn_events": 100,
    "rdma_read_wr_err": 100,
    "rdma_write_wr_err": 100,
    "retrans_bytes": 1_000_000,
    "retrans_pkts": 1000,
    "retrans_timeout_events": 100,
    "rx_drops": 100,
    "unresponsive_remote_events": 100,
}
"""What the EKS node monitoring agent lets pass at once. The other end may be the cause."""

_INFINIBAND_RISES: Final = {
    "excessive_buffer_overrun_errors": 0,
    "link_downed": 0,
    "local_link_integrity_errors": 0,
    "rnr_nak_retry_err": 0,
    "symbol_error": 1,
}
"""The fatal counters of NVSentinel; it lets 120 symbol errors pass in an hour."""


def build(_profile: Profile) -> Detector:
    """The detector; all profiles agree on it."""
    return state_detector("network-state", _judge, reads=SOURCE, settles={STATE}, every=EVERY)


def _judge(sample: Sample) -> Judgement:
    return whole((*_missing(sample), *_links(sample), *_risen(sample)))


def _missing(sample: Sample) -> Iterator[Finding]:
    for device in gone(sample, [name for name in sample.seen if "/" not in name]):
        yield _finding(
            sample, STATE, Reason.EFA_COUNT, f"{device} was there in this boot and is missing",
            device, Severity.FATAL, Remedy.REBOOT,
        )  # fmt: skip


def _links(sample: Sample) -> Iterator[Finding]:
    for name, text in sample.values.items():
        port, _, file = name.rpartition("/")
        number = counter(text) or 0
        if file == "down_s" and number >= DOWN_S:
            state = sample.values.get(f"{port}/state", "")
            why = f"{port} was up in this boot and is {state} for {number} s"
            yield _finding(
                sample, STATE, Reason.LINK_DOWN, why, port, Severity.FATAL, Remedy.REBOOT
            )
        if file == "flaps" and number >= FLAPS:
            why = f"{port} went down and came back {number} times within an hour"
            yield _finding(sample, STATE, Reason.LINK_FLAPS, why, port)


def _risen(sample: Sample) -> Iterator[Finding]:
    for name in sample.values:
        port, _, file = name.rpartition("/")
        is_efa = sample.values.get(port.partition("/")[0]) == "efa"
        allowed = (_EFA_RISES if is_efa else _INFINIBAND_RISES).get(file)
        if allowed is not None and (by := rise(sample, name)) > allowed:
            reason = Reason.EFA_COUNTER if is_efa else Reason.LINK_COUNTER
            yield _finding(sample, EVENTS, reason, f"{name} rose by {by}", port)


def _finding(
    sample: Sample,
    family: str,
    reason: Reason,
    message: str,
    device: str,
    severity: Severity = Severity.WARNING,
    remedy: Remedy = Remedy.NONE,
) -> Finding:
    return Finding(
        family=family,
        condition=Condition.NETWORK,
        reason=reason,
        severity=severity,
        remedy=remedy,
        message=message,
        observed_at=sample.taken_at,
        device=device,
    )
