"""What is found in the kernel's log alone, where a second witness is asked for."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.detectors.contract import LogLine, Profile, Readings
from holdfast.detectors.corroborations import CORROBORATED
from holdfast.detectors.folding import Health, fold
from holdfast.detectors.table import ROWS, detectors
from holdfast.kit.serial import from_plain, to_plain
from holdfast.model.health import Fault, Finding, Remedy, Severity
from holdfast.model.names import Condition, Reason
from holdfast.model.report import NodeReport

NOW = datetime(2025, 11, 20, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
WINDOW = timedelta(minutes=5)
WATCHERS = {one.name: one for one in detectors(Profile.HYPERPOD)}

LINES = {
    "xid": "NVRM: Xid (PCI:0000:b9:00): 74, pid=1, name=a, NVLink: fatal error",
    "xid-95": "NVRM: Xid (PCI:0000:b9:00): 95, pid=1, Uncontained: LTC TAG (0x2, 0x1)",
    "lost": "NVRM: fallen off the bus and is not responding to commands.",
    "driver": "NVRM: GPU 0000:b9:00.0: RmInitAdapter failed! (0x62:0x40:2477)",
    "probe": "NVRM: The NVIDIA probe routine failed for 1 device(s).",
    "sxid": "nvidia-nvswitch1: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
    "neuron": "NEURON_HW_ERR=DMA_ERROR instance-id=i-1 hostname=h nd-id=3 nc-id=0",
    "efa": "efa 0000:a0:19.0: EFA device init failed",
    "efa-name": "infiniband rdmap160s25: EFA device init failed",
    "edac": "EDAC MC0: 1 UE memory read error on CPU_SrcID#0 (channel:1 slot:0)",
    "mce": "mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 4: a600000000020408",
    "aer": "pcieport 0000:00:02.0: AER: Uncorrected (Fatal) error received: id=0010",
}


def suspect(line: str, at: datetime = NOW, *, within: timedelta = WINDOW) -> Finding:
    readings = Readings(kernel_log=(LogLine(message=LINES[line], observed_at=at),))
    [finding] = [one for name in CORROBORATED for one in WATCHERS[name].detect(readings)]
    return replace(finding, corroborated_within=within)


def reading(
    family: str,
    reason: Reason,
    device: str,
    at: datetime = NOW,
    remedy: Remedy = Remedy.REBOOT,
) -> Finding:
    return Finding(
        family=family,
        condition=Condition.SOFTWARE,
        reason=reason,
        severity=Severity.WARNING,
        remedy=remedy,
        message=f"{family} says so",
        observed_at=at,
        device=device,
    )


B9 = "PCI:0000:b9:00"
PAIRS = [
    ("xid", ("gpu-state", Reason.GPU_LOST, B9)),
    ("xid", ("gpu-state", Reason.GPU_ECC, B9)),
    ("xid", ("gpu-state", Reason.GPU_COUNT, "")),
    ("xid", ("dcgm", Reason.DCGM_HEALTH, "GPU 6 NVLINK system")),
    ("xid", ("dcgm-policy", Reason.XID_REPLACE, "")),
    ("lost", ("gpu-state", Reason.GPU_COUNT, B9)),
    ("driver", ("gpu-state", Reason.GPU_COUNT, B9)),
    ("probe", ("gpu-state", Reason.GPU_COUNT, "")),
    ("sxid", ("gpu-state", Reason.GPU_FABRIC, B9)),
    ("sxid", ("dcgm", Reason.DCGM_HEALTH, "Switch 0 NVLINK system")),
    ("neuron", ("neuron-event", Reason.NEURON_DMA, "neuron3")),
    ("neuron", ("neuron-event", Reason.NEURON_HARDWARE, "neuron3", Remedy.NONE)),
    ("neuron", ("neuron-state", Reason.NEURON_COUNT, "neuron3/neuron_core1")),
    ("neuron", ("neuron-ls", Reason.NEURON_COUNT, "")),
    ("efa", ("network-event", Reason.EFA_COUNTER, "rdmap160s25/1", Remedy.NONE)),
    ("efa", ("network-state", Reason.EFA_COUNT, "rdmap160s25")),
    ("efa-name", ("network-state", Reason.LINK_DOWN, "rdmap160s25/1")),
    ("edac", ("hardware", Reason.EDAC_UNCORRECTED, "MC0", Remedy.REPLACE)),
    ("edac", ("memory-event", Reason.MEMORY_CORRUPTED, "", Remedy.REPLACE)),
    ("mce", ("hardware", Reason.EDAC_UNCORRECTED, "MC1", Remedy.REPLACE)),
    ("aer", ("network-state", Reason.EFA_COUNT, "rdmap160s25")),
]


def corroboration(row: tuple, at: datetime = NOW) -> Finding:
    family, reason, device, *remedy = row
    return reading(family, reason, device, at, *remedy)


def settled(finding: Finding) -> set[str]:
    """What a detector of state settles when it finds this."""
    return {finding.family} & {"gpu-state", "dcgm", "neuron-state", "neuron-ls", "network-state"}


def took(health: Health, finding: Finding) -> Health:
    return fold(health, [finding], settled=settled(finding))


def calls(health: Health) -> set[tuple[object, ...]]:
    """What faults call for, but for their words and counts."""
    return {
        (fault.key, fault.remedy, fault.urgency, fault.severity, fault.condition, fault.since)
        for fault in health.faults
    }


@pytest.mark.parametrize("line", LINES)
def test_without_a_witness_there_is_only_a_warning(line: str) -> None:
    health = fold(Health(), [suspect(line), suspect(line, NOW + SECOND)])

    assert (health.faults, health.notices) == ((), ())
    [reported] = health.reported
    assert (reported.severity, reported.remedy) == (Severity.WARNING, Remedy.NONE)
    assert reported.key == suspect(line).key
    assert reported.observed_at == NOW + SECOND
    assert reported.message == (f"uncorroborated, would need {suspect(line).remedy}: {LINES[line]}")


@pytest.mark.parametrize(("line", "row"), PAIRS)
def test_with_a_witness_it_is_the_fault_that_it_would_have_been(line: str, row: tuple) -> None:
    is_same = suspect(line).key == corroboration(row).key  # a certain fault stays as it is
    for sign in (1,) if is_same else (1, -1):
        order = [suspect(line), corroboration(row, NOW + SECOND)][::sign]
        requested, plain = Health(), Health()
        for finding in order:
            requested = took(requested, finding)
            plain = took(plain, replace(finding, corroborated_within=timedelta(0)))

        assert calls(requested) == calls(plain)
        assert (requested.suspects, requested.reported) == ((), plain.reported)


@pytest.mark.parametrize(("line", "row"), PAIRS)
def test_a_fault_that_was_borne_out_reports_both(line: str, row: tuple) -> None:
    health = took(took(Health(), suspect(line)), corroboration(row))

    fault = next(fault for fault in health.faults if fault.key == suspect(line).key)
    assert fault.message == f"{LINES[line]} [corroborated by: {row[0]} says so]"


STRANGERS = [
    ("xid", ("gpu-state", Reason.GPU_LOST, "PCI:0000:c0:00")),
    ("xid", ("gpu-state", Reason.GPU_THERMAL, B9, Remedy.NONE)),
    ("xid", ("network-state", Reason.LINK_DOWN, "mlx5_0/1")),
    ("sxid", ("gpu-state", Reason.GPU_ECC, B9)),
    ("neuron", ("neuron-event", Reason.NEURON_DMA, "neuron4")),
    ("neuron", ("neuron-event", Reason.NEURON_DMA, "neuron31")),
    ("neuron", ("neuron-event", Reason.NEURON_COLLECTIVES, "neuron3", Remedy.NONE)),
    ("neuron", ("gpu-state", Reason.GPU_LOST, "")),
    ("efa", ("network-event", Reason.EFA_COUNTER, "rdmap160s26/1", Remedy.NONE)),
    ("efa-name", ("network-state", Reason.EFA_COUNT, "rdmap16s25")),
    ("edac", ("hardware", Reason.EDAC_UNCORRECTED, "MC1", Remedy.REPLACE)),
    ("mce", ("hardware", Reason.PCIE_FATAL, "x")),
    ("aer", ("gpu-state", Reason.GPU_ECC, B9)),
    ("aer", ("hardware", Reason.EDAC_UNCORRECTED, "MC0", Remedy.REPLACE)),
]


@pytest.mark.parametrize(("line", "row"), STRANGERS)
def test_what_speaks_of_something_else_is_no_witness(line: str, row: tuple) -> None:
    health = took(took(Health(), suspect(line)), corroboration(row))

    assert [one.key for one in health.suspects] == [suspect(line).key]


def test_a_line_of_the_log_is_no_witness_for_another() -> None:
    health = fold(Health(), [suspect(line) for line in LINES])

    assert health.faults == ()
    assert len(health.suspects) >= 8


EVENT = ("neuron-event", Reason.NEURON_DMA, "neuron3")


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("late", "heard"), [(timedelta(0), True), (timedelta(0, 0, 1), False)])
def test_an_event_is_a_witness_within_the_window(sign: int, late: timedelta, heard: bool) -> None:
    findings = [suspect("neuron"), corroboration(EVENT, NOW + sign * (WINDOW + late))]

    for order in (findings, findings[::-1]):
        assert (fold(Health(), order).suspects == ()) is heard


STATE = ("gpu-state", Reason.GPU_LOST, B9)


@pytest.mark.parametrize(("late", "heard"), [(timedelta(0), True), (timedelta(0, 0, 1), False)])
def test_a_state_is_a_witness_from_a_window_before_its_beginning(
    late: timedelta, heard: bool
) -> None:
    health = took(took(Health(), suspect("xid")), corroboration(STATE, NOW + WINDOW + late))

    assert (health.suspects == ()) is heard


def test_a_state_is_a_witness_as_long_as_it_holds_and_no_longer() -> None:
    sick = took(Health(), corroboration(STATE))
    late = suspect("xid", NOW + 100 * WINDOW)

    assert took(sick, late).suspects == ()
    assert took(fold(sick, [], settled={"gpu-state"}), late).faults == ()


def test_a_line_that_comes_again_is_borne_out_by_a_state_that_began_since() -> None:
    again = NOW + 10 * WINDOW
    health = fold(Health(), [suspect("xid"), suspect("xid", again)])

    assert took(health, corroboration(STATE, again)).suspects == ()


def test_a_line_that_comes_again_waits_for_a_witness_anew() -> None:
    again = NOW + 10 * WINDOW
    health = fold(Health(), [suspect("neuron"), suspect("neuron", again)])

    [fault, _] = fold(health, [corroboration(EVENT, again + WINDOW)]).faults

    assert (fault.count, fault.since, fault.seen_at) == (2, NOW, again)


def test_what_was_borne_out_stays_so() -> None:
    health = fold(Health(), [suspect("neuron"), corroboration(EVENT)])

    health = fold(health, [suspect("neuron", NOW + 10 * WINDOW)])

    assert (len(health.faults), health.suspects) == (2, ())


def test_a_suspect_takes_nothing_away_from_what_is_certain() -> None:
    certain = [suspect("driver", within=timedelta(0)), suspect("sxid", within=timedelta(0))]
    lost = replace(suspect("xid"), code=79)

    for order in ([lost, *certain], [*certain, lost]):
        health = fold(Health(), order)
        assert {fault.key for fault in health.faults} == {one.key for one in certain}

        [fault] = [one for one in took(health, corroboration(STATE)).faults if one.family == "xid"]
        assert (fault.code, fault.followers) == (79, 2)


def test_a_suspect_has_its_echoes() -> None:
    echo = "NVRM: Xid (PCI:0000:b9:00): 45, pid=1, name=a, Ch 00000001"
    readings = Readings(kernel_log=(LogLine(message=echo, observed_at=NOW),))
    [reported] = WATCHERS["gpu-xid"].detect(readings)

    for order in ([reported, suspect("xid")], [suspect("xid"), reported]):
        health = fold(Health(), order)
        assert ([one.followers for one in health.suspects], health.notices) == ([1], ())


def test_a_word_of_the_driver_that_waits_decides_nothing_that_is_certain() -> None:
    words = "NVRM: Xid (PCI:0000:b9:00): 154, GPU recovery action changed from 0x0 (a) to 0x1 (b)"
    readings = Readings(kernel_log=(LogLine(message=words, observed_at=NOW),))
    [action] = WATCHERS["gpu-xid"].detect(readings)
    certain = suspect("xid-95", within=timedelta(0))

    health = fold(Health(), [certain, replace(action, corroborated_within=WINDOW)])

    assert [fault.code for fault in health.faults] == [95]
    assert [one.code for one in health.suspects] == [154]
    [fault] = [one for one in took(health, corroboration(STATE)).faults if one.family == "xid"]
    assert (fault.code, fault.decides) == (154, (95,))


def test_a_suspect_that_its_detector_takes_back_is_over() -> None:
    taken_back = replace(suspect("neuron", within=timedelta(0)), remedy=Remedy.NONE)
    health = fold(Health(), [suspect("neuron")])

    health = fold(health, [taken_back])

    assert health.suspects == ()
    assert len(health.reported) == len(health.notices) == 1


def test_what_must_be_seen_often_waits_for_both() -> None:
    often = replace(suspect("efa"), min_count=3, window=WINDOW)
    moments = [NOW, NOW + 60 * SECOND, NOW + 120 * SECOND]
    few = fold(Health(), [replace(often, observed_at=at) for at in moments[:2]])
    many = fold(few, [replace(often, observed_at=moments[2])])

    assert (few.suspects, [len(one.seen_at) for one in few.notices]) == ((), [2])
    assert took(few, corroboration(("network-state", Reason.EFA_COUNT, ""))).suspects == ()
    assert [one.count for one in many.suspects] == [3]


def test_every_witnessed_detector_reads_the_log_and_exists() -> None:
    assert set(CORROBORATED) <= set(WATCHERS)
    assert all("kernel_log" in WATCHERS[name].reads for name in CORROBORATED)
    assert len(WATCHERS) == len(ROWS)


MOMENTS = st.integers(-900, 900).map(lambda seconds: NOW + seconds * SECOND)
SUSPECTS = st.builds(suspect, st.sampled_from(sorted(LINES)), MOMENTS)
WITNESSES = st.builds(
    corroboration, st.sampled_from([row for _, row in PAIRS + STRANGERS]), MOMENTS
)


@given(st.lists(SUSPECTS, max_size=20))
def test_the_log_alone_never_calls_for_anything(findings: list[Finding]) -> None:
    assert fold(Health(), findings).faults == ()


@given(st.lists(SUSPECTS | WITNESSES, max_size=12))
def test_a_witness_never_makes_more_of_a_finding_than_it_would_be_without_the_need(
    findings: list[Finding],
) -> None:
    requested, plain = Health(), Health()
    for finding in findings:
        requested = took(requested, finding)
        plain = took(plain, replace(finding, corroborated_within=timedelta(0)))

    def wanted(faults: tuple[Fault, ...]) -> set[tuple[object, ...]]:
        return {(fault.key, fault.remedy, fault.urgency) for fault in faults}

    both = wanted(requested.faults) | wanted(requested.suspects)
    assert wanted(plain.faults) <= both
    assert {remedy for _, remedy, _ in wanted(requested.faults)} <= {
        finding.remedy for finding in findings
    }


@given(st.lists(SUSPECTS | WITNESSES, max_size=12), st.integers(0, 12))
def test_a_new_agent_that_knows_the_last_report_waits_on(findings: list[Finding], cut: int) -> None:
    before = fold(Health(), findings[:cut])
    report = NodeReport(
        node="n",
        boot_id="b",
        sequence=1,
        reported_at=NOW,
        faults=before.faults,
        notices=before.notices,
        suspects=before.suspects,
    )

    read = from_plain(NodeReport, json.loads(json.dumps(to_plain(report))))

    known = Health(faults=read.faults, notices=read.notices, suspects=read.suspects)
    assert fold(known, findings[cut:]) == fold(Health(), findings)
