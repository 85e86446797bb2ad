"""What the agent makes of the commands of vendors: as a scan does, and of their change."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from listed_findings import detected

from holdfast.adapters.host.sources import efa_domains
from holdfast.detectors.contract import KERNEL_LOG, LogLine, Profile, Readings, Sample
from holdfast.detectors.folding import Health, fold
from holdfast.detectors.gpu_dcgm import judge_diag
from holdfast.detectors.gpu_dcgm_policy import MOST_PAGES
from holdfast.detectors.infiniband_ports import EVERY, MIN_COUNT
from holdfast.detectors.judgement import HealthState
from holdfast.detectors.network_state import DOWN_S
from holdfast.detectors.neuron_state import judge_monitor
from holdfast.detectors.table import detectors
from holdfast.model.health import Finding, Remedy, Urgency
from holdfast.model.names import Reason

NOW = datetime(2025, 11, 20, 12, 0, tzinfo=UTC)
RECORDINGS = Path(__file__).parents[1] / "recordings"


def recording(name: str) -> str:
    return (RECORDINGS / name).read_text(encoding="utf-8")


def judged(
    name: str,
    text: str,
    *,
    at: datetime = NOW,
    values: dict[str, str] | None = None,
    before: dict[str, str] | None = None,
    seen: frozenset[str] = frozenset(),
    profile: Profile = Profile.HYPERPOD,
    xids: dict[int, Remedy] | None = None,
) -> list[Finding]:
    [detector] = [one for one in detectors(profile, xids or {}) if one.name == name]
    [source] = detector.reads
    now, then = values or {}, before or {}
    sample = Sample(
        name=source, taken_at=at, text=text, values=now, before=then,
        seen=seen | set(now) | set(then),
    )  # fmt: skip
    return detected(detector, Readings(samples={source: sample}))


@pytest.mark.parametrize("path", sorted((RECORDINGS / "dcgm").glob("diag*")), ids=lambda p: p.stem)
def test_a_diagnosis_means_to_the_agent_what_it_means_to_a_scan(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    judgement = judge_diag(text, NOW)

    found = judged("gpu-dcgm-diag", text)

    assert found[: len(judgement.findings)] == list(judgement.findings)
    assert len(found) == len(judgement.findings) + bool(judgement.undecided)


@pytest.mark.parametrize(("error", "is_fault"), [(73, False), (90, False), (91, False), (52, True)])
def test_a_diagnosis_that_the_host_does_not_let_run_is_undecided(
    error: int, is_fault: bool
) -> None:
    text = recording("dcgm/diag4-config.json").replace(
        '"error_id": 29, "error_severity": 5', f'"error_id": {error}, "error_severity": 4'
    )

    judgement = judge_diag(text, NOW)

    assert judgement.verdict is (HealthState.UNHEALTHY if is_fault else HealthState.UNKNOWN)


@pytest.mark.parametrize(
    "path", sorted((RECORDINGS / "neuron").glob("monitor*")), ids=lambda p: p.stem
)
def test_a_report_of_neuron_monitor_means_to_the_agent_what_it_means_to_a_scan(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    judgement = judge_monitor(text, NOW)

    found = judged("neuron-monitor", text)

    assert found[: len(judgement.findings)] == list(judgement.findings)
    assert len(found) == len(judgement.findings) + bool(judgement.undecided)


def test_a_monitor_that_had_nothing_to_say_since_the_last_look_is_well() -> None:
    assert judged("neuron-monitor", "") == []


EFA_32 = efa_domains(Path(), recording("efa/fi-32.txt"))
EFA_31 = efa_domains(Path(), recording("efa/fi-31.txt"))


def test_an_efa_device_that_libfabric_misses_twice_in_a_row_is_lost() -> None:
    text = recording("efa/fi-31.txt")
    [lost] = {name.removeprefix("domain/") for name in EFA_32.keys() - EFA_31.keys()}

    once = judged("efa-devices", text, values=EFA_31, before=EFA_32)
    twice = judged("efa-devices", text, values=EFA_31, before=EFA_31, seen=frozenset(EFA_32))

    assert once == []
    assert [(one.reason, one.remedy, one.device) for one in twice] == [
        (Reason.EFA_COUNT, Remedy.REBOOT, lost)
    ]


@pytest.mark.parametrize(
    ("now", "is_lost"),
    [
        ({"domain/rdmap160s25": "", "pci/rdmap160s25/0000:a0:19.0": ""}, False),
        ({"hidden/0000:a0:19.0": ""}, False),
        ({"domain/rdmap160s26": "", "pci/rdmap160s26/0000:a0:1a.0": ""}, True),
    ],
)
def test_an_efa_device_with_another_name_or_in_a_pod_is_not_lost(
    now: dict[str, str], is_lost: bool
) -> None:
    seen = frozenset({"domain/efa_0", "pci/efa_0/0000:a0:19.0"})
    text = recording("efa/fi-31.txt")

    hits = judged("efa-devices", text, values=now, before=now, seen=seen)

    assert [one.device for one in hits] == ["efa_0"] * is_lost


def test_a_machine_without_efa_has_none_to_lose_and_a_tool_that_fails_proves_nothing() -> None:
    none, cut = recording("efa/fi-none.txt"), recording("efa/fi-truncated.txt")

    assert judged("efa-devices", none) == []
    [blind] = judged("efa-devices", cut, values=EFA_32, before=EFA_32)
    assert blind.reason == Reason.SOURCE_FAILED


def test_a_port_must_be_down_for_as_long_as_a_switch_takes_to_restart() -> None:
    text = recording("infiniband/ibstat-recovery.txt")
    health = Health()
    count = 0
    while not health.faults:
        count += 1
        health = fold(health, judged("infiniband-ports", text, at=NOW + count * EVERY))

    assert count == MIN_COUNT
    assert (count - 1) * EVERY.total_seconds() >= DOWN_S
    assert {fault.reason for fault in health.faults} == {Reason.LINK_DOWN}


def test_a_port_without_a_cable_is_left_alone_and_a_cut_output_is_reported() -> None:
    assert judged("infiniband-ports", recording("infiniband/ibstat-ok.txt")) == []
    unplugged = recording("infiniband/ibstat-unplugged.txt")
    assert all("Polling" not in one.message for one in judged("infiniband-ports", unplugged))
    [blind] = judged("infiniband-ports", recording("infiniband/ibstat-truncated.txt"))
    assert blind.reason == Reason.SOURCE_FAILED


# Policies of DCGM

HEAD = "Listening for violations.\n"
STAMP = "Timestamp: Thu Nov 20 12:00:00 2025\n"
DBE = f"{STAMP}A double-bit ECC error has violated policy manager values.\nDBE error count: 1\n"
XID = f"{STAMP}XID error {{}} detected.\n"
PAGES = (
    f"{STAMP}The maximum number of retired pages has violated policy manager values.\n"
    "SBE page retirement count: {}\nDBE page retirement count: {}\n"
)


def policy(text: str, **options: object) -> list[tuple[str, Remedy, int | None]]:
    found = judged("gpu-dcgm-policy", HEAD + text, **options)
    return [(one.reason, one.remedy, one.code) for one in found]


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("", []),
        (DBE, [(Reason.GPU_ECC, Remedy.REBOOT, None)]),
        (PAGES.format(0, MOST_PAGES), [(Reason.GPU_PAGE_RETIREMENT, Remedy.NONE, None)]),
        (PAGES.format(1, MOST_PAGES), [(Reason.GPU_PAGE_RETIREMENT, Remedy.REPLACE, None)]),
        (
            f"{STAMP}The maximum thermal limit has violated policy manager values.\n"
            "Temperature: 101\n",
            [(Reason.GPU_THERMAL, Remedy.NONE, None)],
        ),
        (
            f"{STAMP}The maximum power limit has violated policy manager values.\nPower: 701\n",
            [(Reason.GPU_POWER, Remedy.NONE, None)],
        ),
        (
            f"{STAMP}A PCIe replay event has violated policy manager values.\n"
            "PCIe replay count: 3\n",
            [(Reason.DCGM_WARNING, Remedy.NONE, None)],
        ),
        (
            f"{STAMP}NVLink Counter 2 has violated policy manager values.\n"
            "NVLink Counter value: 9\n",
            [(Reason.DCGM_WARNING, Remedy.NONE, None)],
        ),
        (XID.format(74), [(Reason.XID_REPLACE, Remedy.REPLACE, 74)]),
        (XID.format(31), [(Reason.XID_USER_APP, Remedy.NONE, 31)]),
        (XID.format(9999), [(Reason.XID_UNKNOWN, Remedy.NONE, 9999)]),
        (
            DBE + XID.format(79),
            [(Reason.GPU_ECC, Remedy.REBOOT, None), (Reason.XID_REPLACE, Remedy.REPLACE, 79)],
        ),
    ],
)
def test_every_violation_is_judged(text: str, reported: list[object]) -> None:
    assert policy(text) == reported


def test_an_xid_that_dcgm_reports_is_judged_by_profile_and_configuration() -> None:
    assert policy(XID.format(79), profile=Profile.NVIDIA)[0][1] is Remedy.REBOOT
    assert policy(XID.format(74), xids={74: Remedy.NONE})[0][1] is Remedy.NONE


def logged(message: str, at: datetime = NOW) -> list[Finding]:
    readings = Readings(kernel_log=(LogLine(message=message, observed_at=at),))
    watchers = [one for one in detectors(Profile.HYPERPOD) if KERNEL_LOG in one.reads]
    return [finding for watcher in watchers for finding in watcher.detect(readings)]


@pytest.mark.parametrize("is_dcgm_first", [False, True])
@pytest.mark.parametrize(("apart_s", "count"), [(0, 1), (15, 1), (16, 2)])
def test_an_xid_that_the_kernel_and_dcgm_report_is_one_fault(
    is_dcgm_first: bool, apart_s: int, count: int
) -> None:
    kernel = logged("NVRM: Xid (PCI:0000:b9:00): 79, x")
    dcgm = judged("gpu-dcgm-policy", XID.format(79), at=NOW + timedelta(seconds=apart_s))

    both = [*dcgm, *kernel] if is_dcgm_first else [*kernel, *dcgm]
    health = fold(fold(Health(), both[:1]), both[1:])

    assert len(health.faults) == count
    assert sum(fault.count + fault.followers for fault in health.faults) == 2


@pytest.mark.parametrize("is_dcgm_first", [False, True])
@pytest.mark.parametrize("code", [63, 74, 79, 94, 95])
def test_an_xid_that_both_report_again_and_again_stays_one_fault(
    code: int, is_dcgm_first: bool
) -> None:
    health = Health()
    for hour in range(3):
        at = NOW + timedelta(hours=hour)
        kernel = logged(f"NVRM: Xid (PCI:0000:b9:00): {code}, x", at)
        dcgm = judged("gpu-dcgm-policy", XID.format(code), at=at + timedelta(seconds=5))
        for found in [dcgm, kernel] if is_dcgm_first else [kernel, dcgm]:
            health = fold(health, found)

    [fault] = health.faults
    assert (fault.family, fault.code, fault.count, fault.followers) == ("xid", code, 3, 3)


def test_dcgm_adds_nothing_to_an_xid_on_which_the_driver_has_decided() -> None:
    decided = "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset)"
    health = fold(Health(), logged("NVRM: Xid (PCI:0000:b9:00): 79, x"))
    health = fold(health, logged(f"NVRM: Xid (PCI:0000:b9:00): 154, {decided}"))
    dcgm = judged("gpu-dcgm-policy", XID.format(79) + XID.format(154))

    [fault] = fold(health, dcgm).faults

    assert (fault.code, fault.decides, fault.remedy) == (154, (79,), Remedy.RESET_GPU)


def test_a_lost_bit_waits_until_the_node_is_idle() -> None:
    [finding] = judged("gpu-dcgm-policy", DBE)

    assert finding.urgency is Urgency.DEFERRED
    assert "DBE error count: 1" in finding.message


@given(st.lists(st.sampled_from([*DBE, *XID, DBE, XID, PAGES, STAMP, "\0", "A", "9" * 30])))
def test_no_output_breaks_the_policies(parts: list[str]) -> None:
    for finding in judged("gpu-dcgm-policy", "".join(parts)):
        assert len(finding.message) < 20_000
