"""Which log lines count as the kernel's."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.detectors.contract import Detector, LogLine, Origin, Profile, Readings, Sample
from holdfast.detectors.folding import Health, fold
from holdfast.detectors.kernel_log import KernelLog
from holdfast.detectors.line_trust import LONGEST_DRILL, LineTrust, record_origin, trusted_since
from holdfast.detectors.table import detectors
from holdfast.model.health import Finding, Remedy, Severity
from holdfast.model.names import Condition, Reason

NOW = datetime(2025, 11, 20, 12, 0, tzinfo=UTC)
WINDOW = timedelta(minutes=5)
TRUST = LineTrust(corroboration_window=WINDOW)
ND = frozenset({"nd3"})
DRILL = replace(TRUST, drill_until=NOW + LONGEST_DRILL / 2)
WATCHERS = [one for one in detectors(Profile.HYPERPOD) if "kernel_log" in one.reads]

ACTION = "NVRM: Xid (PCI:0000:b9:00): 154, GPU recovery action changed"
MESSAGES = [
    "NVRM: Xid (PCI:0000:b9:00): 74, pid=1, name=a, NVLink: fatal error",
    "NVRM: Xid (PCI:0000:b9:00): 94, pid=1, Contained",
    "NVRM: Xid (PCI:0000:b9:00): 13, pid=1, Graphics Exception",
    f"{ACTION} from 0x0 (None) to 0x2 (Node Reboot Required)",
    f"{ACTION} from 0x2 (Node Reboot Required) to 0x0 (None)",
    "NEURON_HW_ERR=DMA_ERROR instance-id=i-1 hostname=h nd-id=3 nc-id=0",
    "NEURON_HW_ERR=DMA_ERROR instance-id=i-1 hostname=h nd-id=3 nc-id=0 action=NONE",
    "NEURON_HW_ERR=DMA_ERROR instance-id=i-1 hostname=h nd-id=3 nc-id=0 action=REBOOT_INSTANCE",
    "neuron:ndma_memcpy_wait_for_completion: DMA completion timeout on nd00",
    "efa 0000:a0:19.0: EFA device init failed",
    "EXT4-fs (nvme0n1): Remounting filesystem read-only",
    "EDAC MC0: 1 UE memory read error on CPU_SrcID#0 (channel:1 slot:0)",
]  # fmt: skip

lines = st.builds(
    LogLine,
    message=st.sampled_from(MESSAGES),
    observed_at=st.integers(-600, 0).map(lambda s: NOW + timedelta(seconds=s)),
    origin=st.sampled_from(Origin),
)
logs = st.lists(st.lists(lines, max_size=5).map(tuple), max_size=4)


def folded(log: list[tuple[LogLine, ...]], trust: LineTrust = TRUST) -> Health:
    watchers = [trust.applied(one) for one in WATCHERS]
    health = Health()
    for part in log:
        found = [f for one in watchers for f in one.detect(Readings(kernel_log=part))]
        health = fold(health, found)
    return health


def of_kernel(log: list[tuple[LogLine, ...]]) -> list[tuple[LogLine, ...]]:
    return [tuple(one for one in part if one.origin is Origin.KERNEL) for part in log]


def repairs(health: Health) -> list[object]:
    return sorted((str(one.key), one.remedy, one.urgency) for one in health.faults)


@given(logs)
def test_lines_that_can_be_forged_neither_cause_nor_end_nor_change_a_fault(
    log: list[tuple[LogLine, ...]],
) -> None:
    assert repairs(folded(log)) == repairs(folded(of_kernel(log)))


FORGED_BESIDE_RECOVERY_ACTION = (
    LogLine(message=MESSAGES[0], observed_at=NOW, origin=Origin.USER),
    LogLine(message=MESSAGES[3], observed_at=NOW, origin=Origin.KERNEL),
)


@given(logs, st.sampled_from([Origin.USER, Origin.FILE]))
@example([FORGED_BESIDE_RECOVERY_ACTION], Origin.FILE)
def test_a_fault_differs_only_by_its_count_after_lines_that_can_be_forged(
    log: list[tuple[LogLine, ...]], origin: Origin
) -> None:
    forged = [tuple(replace(one, origin=origin) for one in part) for part in log]
    before = folded(of_kernel(log))

    after = folded([*of_kernel(log), *forged])

    assert [replace(one, count=1, followers=0) for one in after.faults] == [
        replace(one, count=1, followers=0) for one in before.faults
    ]


@given(logs)
def test_in_a_drill_all_lines_count_as_the_kernels(log: list[tuple[LogLine, ...]]) -> None:
    as_kernel = [tuple(replace(one, origin=Origin.KERNEL) for one in part) for part in log]

    assert folded(log, DRILL) == folded(as_kernel)


@pytest.mark.parametrize(
    ("after_start", "counts"),
    [(-LONGEST_DRILL, False), (timedelta(0), True), (LONGEST_DRILL, True),
     (LONGEST_DRILL + timedelta(microseconds=1), False)],
)  # fmt: skip
def test_a_line_before_or_after_the_drill_does_not_count(
    after_start: timedelta, counts: bool
) -> None:
    line = LogLine(message=MESSAGES[0], observed_at=NOW + after_start, origin=Origin.USER)
    drill = replace(TRUST, drill_until=NOW + LONGEST_DRILL)

    assert bool(folded([(line,)], drill).faults) is counts


@given(st.sampled_from(MESSAGES))
def test_a_line_of_a_file_is_a_warning_that_names_what_it_would_lead_to(message: str) -> None:
    line = LogLine(message=message, observed_at=NOW, origin=Origin.FILE)
    certain = folded([(replace(line, origin=Origin.KERNEL),)])

    health = folded([(line,)])

    assert health.faults == ()
    assert [one.key for one in health.suspects] == [one.key for one in certain.faults]
    assert all(one.remedy is Remedy.NONE for one in health.reported)
    assert {one.key for one in health.reported} == {
        one.key for one in (*certain.faults, *certain.notices)
    }


def test_the_kernel_bears_out_a_line_of_a_file() -> None:
    line = LogLine(message=MESSAGES[0], observed_at=NOW, origin=Origin.FILE)

    health = folded([(line,), (replace(line, origin=Origin.KERNEL),)])

    assert [one.code for one in health.faults] == [74]
    assert health.suspects == ()


def test_a_line_that_a_user_wrote_is_reported_with_the_reason_why_it_is_ignored() -> None:
    [notice] = folded(
        [(LogLine(message=MESSAGES[5], observed_at=NOW, origin=Origin.USER),)]
    ).notices

    assert notice.message == (f"ignored without a drill, not written by the kernel: {MESSAGES[5]}")


def counter(device: str, at: datetime = NOW) -> Finding:
    return Finding(
        family="neuron-event", condition=Condition.NEURON, reason=Reason.NEURON_HARDWARE,
        severity=Severity.WARNING, remedy=Remedy.NONE, message="hw_error rose by 1",
        observed_at=at, device=device,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("has_counters", "risen", "is_fault"),
    [(False, "", True), (True, "", False), (True, "neuron3", True), (True, "neuron4", False)],
)
def test_an_error_of_the_neuron_runtime_needs_the_drivers_counter_where_there_is_one(
    has_counters: bool, risen: str, is_fault: bool
) -> None:
    trust = replace(TRUST, neuron_counters=ND if has_counters else frozenset())
    health = folded([(LogLine(message=MESSAGES[5], observed_at=NOW),)], trust)

    health = fold(health, [counter(risen)] if risen else [])

    assert bool(health.faults) is is_fault


@given(st.lists(lines, max_size=8).map(tuple), st.booleans())
def test_every_line_and_each_sample_is_detected_once(
    log: tuple[LogLine, ...], has_sample: bool
) -> None:
    seen: list[object] = []

    def detect(readings: Readings) -> list[Finding]:
        seen.extend([*readings.kernel_log, *readings.samples])
        return []

    both = Detector(name="both", reads=frozenset({"kernel_log", "s"}), detect=detect)
    samples = {"s": Sample(name="s", taken_at=NOW)} if has_sample else {}

    TRUST.applied(both).detect(Readings(kernel_log=log, samples=samples))

    assert [one for one in seen if one != "s"] == list(log)
    assert seen.count("s") == has_sample


@pytest.mark.parametrize(
    ("record", "origin"),
    [
        ("4,1,2,-;NVRM: a", Origin.KERNEL),
        ("6,1,2,-,caller=T1;NVRM: a", Origin.KERNEL),
        ("12,1,2,-;NVRM: a", Origin.USER),
        ("12,1,2,-;<4>NVRM: a", Origin.USER),
        ("12,1,2,-;4,1,2,-;NVRM: a", Origin.USER),
        ("12,1,2,-;kern  :err   : NVRM: a", Origin.USER),
        ("NVRM: a", Origin.FILE),
        ("Nov 20 10:00:00 host kernel: NVRM: a", Origin.FILE),
        ("Nov 20 10:00:00 host kernel: 12,1,2,-;NVRM: a", Origin.USER),
    ],
)
def test_the_outermost_facility_of_a_record_decides(record: str, origin: Origin) -> None:
    [line] = KernelLog(["NVRM"]).feed(f"{record}\n".encode(), NOW)

    assert (line.message, record_origin(line.facility)) == ("NVRM: a", origin)


def test_a_record_of_a_user_never_becomes_part_of_one_of_the_kernel() -> None:
    log = KernelLog(["NVRM"])
    text = b"12,1,2,-;NVRM: The NVIDIA GPU 0000:b9:00.0\n4,2,3,-;NVRM: installed in this system\n"

    first, second = log.feed(text, NOW)

    assert [record_origin(one.facility) for one in (first, second)] == [Origin.USER, Origin.KERNEL]
    assert second.message == "NVRM: installed in this system"


TIMEOUT = "neuron:ndma_memcpy_wait_for_completion: DMA completion timeout on nd00 for eng q0"


def timeouts(*origins: Origin) -> list[tuple[LogLine, ...]]:
    """Messages of which three within ten minutes are a fault."""
    return [
        (LogLine(message=TIMEOUT, observed_at=NOW + number * timedelta(minutes=1), origin=origin),)
        for number, origin in enumerate(origins)
    ]


@given(st.lists(st.sampled_from(Origin), max_size=8))
def test_forged_messages_neither_add_to_those_of_the_kernel_nor_reset_them(
    origins: list[Origin],
) -> None:
    assert bool(folded(timeouts(*origins)).faults) is (origins.count(Origin.KERNEL) >= 3)


FLOODS = [
    "neuron:ndma_memcpy_wait_for_completion: DMA completion timeout on nd{0} for eng q0",
    "nvme nvme{0}: I/O tag 1 (1000) opcode 0x2 (I/O Cmd) QID 3 timeout, aborting",
    "EDAC MC{0}: 1 CE memory read error on CPU_SrcID#0 (channel:1 slot:0)",
]


def flood(text: str, origin: Origin) -> tuple[LogLine, ...]:
    """Lines that each name another device, more than are remembered."""
    return tuple(
        LogLine(message=text.format(number), observed_at=NOW, origin=origin)
        for number in range(100, 400)
    )


@pytest.mark.parametrize("origin", [Origin.USER, Origin.FILE])
@pytest.mark.parametrize("text", FLOODS)
def test_a_flood_of_forged_lines_does_not_hide_a_fault_that_must_repeat(
    text: str, origin: Origin
) -> None:
    forged = flood(text, origin)
    log = [part for one in timeouts(*[Origin.KERNEL] * 3) for part in (forged, one, forged)]

    assert repairs(folded(log)) == repairs(folded(of_kernel(log))) != []


@pytest.mark.parametrize("text", FLOODS)
def test_a_flood_of_forged_lines_leaves_a_reading_that_corroborates(text: str) -> None:
    trust = replace(TRUST, neuron_counters=ND)
    health = fold(Health(), [counter("neuron3")])
    for part in (flood(text, Origin.FILE), (LogLine(message=MESSAGES[5], observed_at=NOW),)):
        watchers = [trust.applied(one) for one in WATCHERS]
        found = [f for one in watchers for f in one.detect(Readings(kernel_log=part))]
        health = fold(health, found)

    assert "nd3" in [fault.device for fault in health.faults]


@pytest.mark.parametrize("origin", Origin)
def test_lines_that_name_devices_which_do_not_exist_leave_a_place_for_one_that_does(
    origin: Origin,
) -> None:
    trust = replace(TRUST, neuron_counters=ND)
    forged = flood("NEURON_HW_ERR=DMA_ERROR instance-id=i-1 nd-id={0} nc-id=0", origin)
    health = folded([forged, (LogLine(message=MESSAGES[5], observed_at=NOW),), forged], trust)

    health = fold(health, [counter("neuron3")])

    assert "nd3" in [fault.device for fault in health.faults]


@pytest.mark.parametrize("origin", [Origin.USER, Origin.FILE, Origin.KERNEL])
def test_a_line_that_can_be_forged_ends_no_suspect(origin: Origin) -> None:
    trust = replace(TRUST, neuron_counters=ND)
    error, none = MESSAGES[5], MESSAGES[6]
    log = [(LogLine(message=error, observed_at=NOW),)]
    [suspect] = folded(log, trust).suspects

    [left] = folded(
        [*log, (LogLine(message=none, observed_at=NOW, origin=origin),)], trust
    ).suspects

    assert replace(left, count=1) == suspect


MINUTE = timedelta(minutes=1)
TICK = timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("booted_at", "since"),
    [
        (None, None),
        (NOW, None),
        (NOW + MINUTE, None),
        (NOW - 20 * MINUTE, None),
        (NOW - 20 * MINUTE - TICK, NOW - 5 * MINUTE),
        (NOW - timedelta(days=90), NOW - 5 * MINUTE),
    ],
)
def test_lines_of_a_boot_with_the_agent_count_alone(
    booted_at: datetime | None, since: datetime | None
) -> None:
    assert trusted_since(booted_at, NOW) == since


def lost_gpu(at: datetime) -> Finding:
    return Finding(
        family="gpu-state", condition=Condition.NVIDIA_TERMINATE, reason=Reason.GPU_LOST,
        severity=Severity.FATAL, remedy=Remedy.REPLACE, message="lost", observed_at=at,
        device="PCI:0000:b9:00",
    )  # fmt: skip


@pytest.mark.parametrize("age", [33 * MINUTE, timedelta(days=9)])
@pytest.mark.parametrize(
    ("read_after", "is_fault"), [(timedelta(0), True), (WINDOW, True), (WINDOW + TICK, False)]
)
def test_a_line_from_before_the_installation_needs_what_the_agent_reads_at_first(
    age: timedelta, read_after: timedelta, is_fault: bool
) -> None:
    trust = replace(TRUST, trusted_since=trusted_since(NOW - 2 * age, NOW))
    line = LogLine(message=MESSAGES[0], observed_at=NOW - age)

    health = folded([(line,)], trust)
    assert [one.code for one in health.suspects] == [74]
    assert not health.faults

    health = fold(health, [lost_gpu(NOW + read_after)])
    assert (74 in [one.code for one in health.faults]) is is_fault


@given(logs)
def test_lines_since_the_installation_count_as_ever(log: list[tuple[LogLine, ...]]) -> None:
    since = replace(TRUST, trusted_since=NOW - timedelta(seconds=300))
    new = [
        tuple(one for one in part if one.observed_at >= NOW - timedelta(seconds=300))
        for part in log
    ]

    assert folded(new, since) == folded(new)
    assert repairs(folded(log, since)) == repairs(folded(of_kernel(new), since))


@pytest.mark.parametrize(("before", "counts"), [(timedelta(0), True), (TICK, False)])
def test_the_first_line_that_counts_alone(before: timedelta, *, counts: bool) -> None:
    line = LogLine(message=MESSAGES[0], observed_at=NOW - before)

    assert bool(folded([(line,)], replace(TRUST, trusted_since=NOW)).faults) is counts
