"""What samples mean, and that no input breaks a parser."""

import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from listed_findings import detected

from holdfast.adapters.host.accelerators import nvidia
from holdfast.detectors.contract import KERNEL_LOG, Detector, Profile, Readings, Sample
from holdfast.detectors.folding import Health, fold
from holdfast.detectors.gpu_dcgm import judge_diag, judge_health
from holdfast.detectors.gpu_state import FRESH_BOOT_S, judge_text, judge_xml
from holdfast.detectors.judgement import HealthState, Judgement
from holdfast.detectors.load_tests import judge_nccl, judge_stress
from holdfast.detectors.network_tools import judge_fi_info, judge_ibstat
from holdfast.detectors.neuron_state import judge_ls, judge_monitor
from holdfast.detectors.table import detectors
from holdfast.model.health import Finding, Remedy
from holdfast.model.names import Reason

NOW = datetime(2025, 11, 20, 12, 0, tzinfo=UTC)
RECORDINGS = Path(__file__).parents[1] / "recordings"
STATE = {one.name: one for one in detectors(Profile.HYPERPOD) if KERNEL_LOG not in one.reads}
PARSERS: tuple[Callable[[str, datetime], Judgement], ...] = (
    judge_xml, judge_text, judge_health, judge_diag, judge_ls, judge_monitor, judge_fi_info,
    judge_ibstat, judge_nccl, judge_stress,
)  # fmt: skip


def readings(detector: Detector, **fields: object) -> Readings:
    [name] = detector.reads
    return Readings(samples={name: Sample(name=name, taken_at=NOW, **fields)})


def found(
    name: str,
    values: Mapping[str, str] | None = None,
    *,
    before: Mapping[str, str] | None = None,
    seen: frozenset[str] = frozenset(),
    text: str = "",
) -> list[tuple[str, Remedy, str]]:
    now, then = values or {}, before or {}
    detector = STATE[name]
    sample = readings(
        detector, values=now, before=then, seen=seen | set(now) | set(then), text=text
    )
    return [(one.reason, one.remedy, one.device) for one in detected(detector, sample)]


def recording(name: str) -> str:
    return (RECORDINGS / name).read_text(encoding="utf-8")


RECORDED = {
    "gpu-state": "nvidia-smi/*.*",
    "gpu-dcgm": "dcgm/health*",
    "gpu-dcgm-diag": "dcgm/diag*",
    "neuron-ls": "neuron/ls*",
    "neuron-monitor": "neuron/monitor*",
    "efa-devices": "efa/*",
    "infiniband-ports": "infiniband/*",
}


@pytest.mark.parametrize("name", RECORDED)
def test_what_a_recording_comes_to_is_in_the_reference(name: str) -> None:
    paths = sorted(RECORDINGS.glob(RECORDED[name]))

    for text in (path.read_text(encoding="utf-8") for path in paths):
        detected(STATE[name], readings(STATE[name], text=text))
    assert paths


@pytest.mark.parametrize("name", STATE)
def test_a_source_that_cannot_be_read_is_reported_and_calls_for_nothing(name: str) -> None:
    [finding] = STATE[name].detect(readings(STATE[name], error="it hangs"))

    assert (finding.reason, finding.remedy) == (Reason.SOURCE_FAILED, Remedy.NONE)
    assert "it hangs" in finding.message
    assert finding.family in STATE[name].settles


def test_a_family_is_settled_by_one_detector_and_events_are_not() -> None:
    families = Counter(family for one in STATE.values() for family in one.settles)

    assert [family for family, count in families.items() if count > 1] == []
    assert [family for family in families if family.endswith("-event")] == []


GPUS = {f"gpu/00000000:{bus}:00.0": "" for bus in ("53", "64", "75", "86", "97", "A8", "B9", "CA")}


def test_a_healthy_gpu_gives_no_finding() -> None:
    text = recording("nvidia-smi/healthy.xml")

    assert found("gpu-state", {**GPUS, "uptime_s": "9999"}, text=text) == []


def test_a_gpu_that_is_missing_twice_in_a_row_is_lost_and_the_first_time_it_is_not() -> None:
    text = recording("nvidia-smi/healthy.xml").replace('id="00000000:B9', 'id="00000000:BA')
    left = {name: "" for name in GPUS if "B9" not in name}

    assert found("gpu-state", left, before=GPUS, text=text) == []
    assert found("gpu-state", left, before=left, seen=frozenset(GPUS), text=text) == [
        (Reason.GPU_COUNT, Remedy.REBOOT, "PCI:0000:b9:00")
    ]


def test_where_no_gpu_is_left_all_are_lost_and_the_source_is_blind() -> None:
    hits = found("gpu-state", seen=frozenset(GPUS), text="No devices were found\n")

    assert [reason for reason, _, _ in hits] == [Reason.GPU_COUNT] * 8 + [Reason.SOURCE_FAILED]


def test_a_driver_that_does_not_answer_loses_no_gpu() -> None:
    text = recording("nvidia-smi/version-mismatch.txt")

    [(reason, remedy, _)] = found("gpu-state", seen=frozenset(GPUS), text=text)

    assert (reason, remedy) == (Reason.SOURCE_FAILED, Remedy.NONE)


@pytest.mark.parametrize(
    ("uptime_s", "remedy"),
    [(0, Remedy.REPLACE), (FRESH_BOOT_S - 1, Remedy.REPLACE), (FRESH_BOOT_S, Remedy.REBOOT)],
)
def test_a_remapping_that_outlives_a_reboot_calls_for_another_machine(
    uptime_s: int, remedy: Remedy
) -> None:
    text = recording("nvidia-smi/remap-pending.xml")

    hits = found("gpu-state", {**GPUS, "uptime_s": str(uptime_s)}, text=text)

    assert hits == [(Reason.GPU_ROW_REMAP_PENDING, remedy, "PCI:0000:b9:00")]


def test_a_remapping_that_a_job_causes_soon_after_a_boot_calls_for_a_reboot() -> None:
    clean, pending = (recording(f"nvidia-smi/{name}.xml") for name in ("healthy", "remap-pending"))
    after_boot = nvidia(Path(), clean)
    now = {**nvidia(Path(), pending), "uptime_s": "360"}

    hits = found("gpu-state", now, seen=frozenset(after_boot), text=pending)
    others = frozenset(name for name in after_boot if "B9" not in name)
    lasting = found("gpu-state", now, seen=others, text=pending)

    assert hits == [(Reason.GPU_ROW_REMAP_PENDING, Remedy.REBOOT, "PCI:0000:b9:00")]
    assert lasting == [(Reason.GPU_ROW_REMAP_PENDING, Remedy.REPLACE, "PCI:0000:b9:00")]


CORE = "neuron0/neuron_core0/stats/status/{}/total"
HARDWARE = "neuron0/stats/hardware/{}"
READABLE = {"neuron0/info/serial_number": "19fcda00f5ff6eb9"}


@pytest.mark.parametrize(
    ("file", "reason", "remedy"),
    [
        (HARDWARE.format("sram_ecc_uncorrected"), Reason.NEURON_SRAM, Remedy.REPLACE),
        (HARDWARE.format("mem_ecc_uncorrected"), Reason.NEURON_HBM, Remedy.REPLACE),
        (HARDWARE.format("mem_ecc_repairable_uncorrected"), Reason.NEURON_HBM_REPAIRABLE,
            Remedy.REBOOT),
        (CORE.format("hw_nc_ue_error"), Reason.NEURON_NC, Remedy.REPLACE),
        (CORE.format("hw_dma_abort_error"), Reason.NEURON_DMA, Remedy.REPLACE),
        (CORE.format("hw_collectives_error"), Reason.NEURON_COLLECTIVES, Remedy.NONE),
    ],
)  # fmt: skip
def test_a_neuron_counter_that_rises_is_an_error_and_one_that_stands_is_not(
    file: str, reason: Reason, remedy: Remedy
) -> None:
    old = {**READABLE, file: "7"}

    assert found("neuron-state", {**READABLE, file: "8"}, before=old) == [
        (reason, remedy, "neuron0")
    ]
    assert found("neuron-state", old, before=old) == []
    assert found("neuron-state", old) == []
    assert found("neuron-state", {**READABLE, file: "0"}, before=old) == []
    assert found("neuron-state", {**READABLE, file: "garbage"}, before=old) == []


def test_a_count_that_comes_back_after_the_firmware_was_unreadable_is_no_rise() -> None:
    file = HARDWARE.format("sram_ecc_uncorrected")
    blind = {"neuron0/info/serial_number": "", file: "0"}

    assert found("neuron-state", {**READABLE, file: "7"}, before=blind) == []
    [(reason, _, _)] = found("neuron-state", blind, before={**READABLE, file: "7"})
    assert reason == Reason.SOURCE_FAILED


def test_a_neuron_device_and_a_core_that_vanish_are_missed() -> None:
    all_seen = frozenset({"neuron0", "neuron0/neuron_core0", "neuron0/neuron_core1", "neuron1"})
    left = {"neuron0": "", "neuron0/neuron_core0": ""}

    assert found("neuron-state", left, before=left, seen=all_seen) == [
        (Reason.NEURON_COUNT, Remedy.REBOOT, "neuron1"),
        (Reason.NEURON_COUNT, Remedy.REBOOT, "neuron0/neuron_core1"),
    ]


AT = {f"mlx5_{n}/pci/0000:a{n}:00.0": "" for n in range(4)}
BOUND = {f"bound/0000:a{n}:00.0": "mlx5_core" for n in range(4)}
CARDS = {f"mlx5_{n}": "infiniband" for n in range(4)} | AT | BOUND


def without(values: Mapping[str, str], *words: str) -> dict[str, str]:
    return {name: text for name, text in values.items() if not any(word in name for word in words)}


def test_a_network_device_that_is_hidden_or_renamed_is_not_lost() -> None:
    hidden = without(CARDS, "mlx5_3")
    renamed = hidden | {"rocep163s0": "infiniband", "rocep163s0/pci/0000:a3:00.0": ""}

    for left in (hidden, renamed):
        assert found("network-state", left, before=left, seen=frozenset(CARDS)) == []


@pytest.mark.parametrize("gone", [("mlx5_3", "bound/0000:a3"), ("bound/0000:a3",)])
def test_a_network_device_whose_pci_function_is_gone_or_unbound_is_lost(
    gone: tuple[str, ...],
) -> None:
    left = without(CARDS, *gone)

    assert found("network-state", left, before=CARDS, seen=frozenset(CARDS)) == []
    assert found("network-state", left, before=left, seen=frozenset(CARDS)) == [
        (Reason.EFA_COUNT, Remedy.REBOOT, "mlx5_3")
    ]


def test_a_renamed_device_that_is_lost_is_so_once() -> None:
    left = without(CARDS, "mlx5_3", "bound/0000:a3")
    seen = frozenset(CARDS | {"rocep163s0": "infiniband", "rocep163s0/pci/0000:a3:00.0": ""})

    assert found("network-state", left, before=left, seen=seen) == [
        (Reason.EFA_COUNT, Remedy.REBOOT, "rocep163s0")
    ]


def test_a_network_device_whose_function_is_unknown_is_known_by_its_name() -> None:
    left = without(CARDS, "mlx5_3", "bound/")

    hits = found("network-state", left, before=left, seen=frozenset(without(CARDS, "bound/")))

    assert hits == [(Reason.EFA_COUNT, Remedy.REBOOT, "mlx5_3")]


@pytest.mark.parametrize(("down_s", "is_fault"), [("239", False), ("240", True)])
def test_a_link_that_stays_down_is_a_fault(down_s: str, is_fault: bool) -> None:
    values = {"m": "infiniband", "m/1/state": "1: DOWN", "m/1/down_s": down_s}

    assert found("network-state", values) == (
        [(Reason.LINK_DOWN, Remedy.REBOOT, "m/1")] if is_fault else []
    )


@pytest.mark.parametrize(("flaps", "is_reported"), [("2", False), ("3", True)])
def test_a_link_that_flaps_is_reported(flaps: str, is_reported: bool) -> None:
    hits = found("network-state", {"m": "infiniband", "m/1/flaps": flaps})

    assert hits == ([(Reason.LINK_FLAPS, Remedy.NONE, "m/1")] if is_reported else [])


@pytest.mark.parametrize(
    ("kind", "file", "by", "is_reported"),
    [
        ("efa", "rx_drops", 100, False),
        ("efa", "rx_drops", 101, True),
        ("efa", "retrans_bytes", 1_000_001, True),
        ("efa", "link_downed", 5, False),
        ("infiniband", "link_downed", 1, True),
        ("infiniband", "symbol_error", 1, False),
        ("infiniband", "tx_bytes", 10**9, False),
    ],
)
def test_counters_of_a_port_warn_when_they_rise_by_too_much(
    kind: str, file: str, by: int, is_reported: bool
) -> None:
    before = {"d": kind, f"d/1/{file}": "5000000"}

    hits = found("network-state", {**before, f"d/1/{file}": str(5_000_000 + by)}, before=before)

    assert [(remedy, device) for _, remedy, device in hits] == [(Remedy.NONE, "d/1")] * is_reported


def test_a_network_device_that_vanishes_is_missed() -> None:
    assert found("network-state", seen=frozenset({"rdmap79s0", "rdmap79s0/1/state"})) == [
        (Reason.EFA_COUNT, Remedy.REBOOT, "rdmap79s0")
    ]


@pytest.mark.parametrize(
    ("detector", "values", "reasons"),
    [
        ("memory-state", {"MemAvailable": "102400", "full/avg60": "19.9"}, []),
        ("memory-state", {"MemAvailable": "102399"}, [Reason.MEMORY_EXHAUSTED]),
        ("memory-state", {"MemAvailable": "9999999", "full/avg60": "20"}, [Reason.MEMORY_PRESSURE]),
        ("memory-state", {"full/avg60": "20"}, [Reason.SOURCE_FAILED]),
        ("disk-state", {"/data/free": "4.99", "/data/inodes": "5.00"}, [Reason.DISK_FULL]),
        ("disk-state", {"/data/free": "5.00", "/data/inodes": "4.99"}, [Reason.INODES_EXHAUSTED]),
        ("disk-state", {"/iso/options": "ro"}, []),
        ("process-state", {"threads": "70", "limit": "100", "zombies": "20"}, []),
        ("process-state", {"threads": "71", "limit": "100", "zombies": "21"},
            [Reason.PIDS_EXHAUSTED, Reason.ZOMBIES]),
        ("process-state", {"threads": "x"}, [Reason.SOURCE_FAILED]),
    ],
)  # fmt: skip
def test_the_host_is_judged_at_its_limits(
    detector: str, values: dict[str, str], reasons: list[Reason]
) -> None:
    assert [reason for reason, _, _ in found(detector, values)] == reasons


def test_a_file_system_that_turns_read_only_is_a_fault() -> None:
    seen = frozenset({"//writable", "/iso/options"})

    assert found("disk-state", {"//options": "ro,discard", "/iso/options": "ro"}, seen=seen) == [
        (Reason.READONLY_FILESYSTEM, Remedy.REBOOT, "/")
    ]


def test_a_file_system_that_can_be_written_is_no_fault() -> None:
    assert found("disk-state", {"//options": "rw,discard", "//writable": ""}) == []


def test_a_document_that_declares_entities_is_not_read() -> None:
    text = recording("nvidia-smi/healthy.xml")
    kind = 'nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd"'
    declaring = text.replace(kind, 'nvidia_smi_log [<!ENTITY a "b">]')

    assert declaring != text
    assert judge_xml(text, NOW).verdict is HealthState.HEALTHY
    assert judge_xml(declaring, NOW).verdict is HealthState.UNKNOWN


@pytest.mark.gpu
@pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no nvidia-smi")
@pytest.mark.parametrize(("options", "judge"), [(["-q", "-x"], judge_xml), (["-q"], judge_text)])
def test_a_real_healthy_gpu_gives_no_fault(
    options: list[str], judge: Callable[[str, datetime], Judgement]
) -> None:
    done = subprocess.run(
        ["nvidia-smi", *options], check=True, capture_output=True, encoding="utf-8"
    )

    judgement = judge(done.stdout, NOW)

    assert judgement.findings == ()
    assert judgement.verdict is HealthState.HEALTHY


def test_memory_errors_count_when_they_are_new() -> None:
    old = {"mc0/ue_count": "3", "mc0/ce_count": "9", "mc1/ue_count": "0"}

    assert found("edac-state", old, before=old) == []
    assert found("edac-state", {**old, "mc0/ue_count": "4", "mc0/ce_count": "10"}, before=old) == [
        (Reason.EDAC_UNCORRECTED, Remedy.REPLACE, "MC0"),
        (Reason.EDAC_CORRECTED, Remedy.NONE, "MC0"),
    ]


def test_a_clock_must_be_unsynchronized_twice() -> None:
    no, yes = {"synchronized": "no"}, {"synchronized": "yes"}

    assert found("clock-state", no, before=yes) == found("clock-state", no) == []
    assert found("clock-state", no, before=no) == [(Reason.CLOCK_UNSYNCHRONIZED, Remedy.NONE, "")]


def test_a_daemon_is_missed_only_if_it_answered_before() -> None:
    up, down = {"queried": "", "kubelet": ""}, {"queried": ""}

    assert found("runtime-state", down, before=down) == []
    assert found("runtime-state", down, before=up) == []
    assert found("runtime-state", down, before=down, seen=frozenset(up)) == [
        (Reason.KUBELET_DOWN, Remedy.NONE, "kubelet")
    ]


def test_a_fault_of_state_ends_when_its_evidence_is_gone() -> None:
    detector = STATE["gpu-state"]
    sick = detected(detector, readings(detector, text=recording("nvidia-smi/remap-pending.xml")))

    known = fold(Health(), sick, settled=detector.settles)

    assert [fault.reason for fault in known.faults] == [Reason.GPU_ROW_REMAP_PENDING]
    assert fold(known, [], settled=detector.settles) == Health()


SNIPPETS = [path.read_text(errors="replace") for path in RECORDINGS.glob("*/*")][:120]
TEXTS = st.one_of(
    st.text(),
    st.sampled_from(SNIPPETS).flatmap(
        lambda text: st.builds(
            lambda start, end, junk: text[: min(start, end)] + junk + text[max(start, end) :],
            st.integers(0, len(text)),
            st.integers(0, len(text)),
            st.text(max_size=20),
        )
    ),
)


@pytest.mark.parametrize("judge", PARSERS)
@given(text=TEXTS)
@settings(max_examples=examples(150), deadline=None)
def test_no_text_breaks_a_parser(judge: Callable[[str, datetime], Judgement], text: str) -> None:
    judgement = judge(text, NOW)

    assert all(isinstance(finding, Finding) for finding in judgement.findings)


@pytest.mark.parametrize("judge", PARSERS)
@given(text=st.text() | st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
).map(str))  # fmt: skip
@settings(max_examples=examples(100), deadline=None)
def test_garbage_is_never_healthy(judge: Callable[[str, datetime], Judgement], text: str) -> None:
    assert judge(text, NOW).verdict is HealthState.UNKNOWN


@pytest.mark.parametrize(
    ("judge", "name"),
    [
        (judge_xml, "nvidia-smi/healthy.xml"), (judge_text, "nvidia-smi/healthy.txt"),
        (judge_text, "nvidia-smi/table-healthy.txt"), (judge_health, "dcgm/health-ok.json"),
        (judge_diag, "dcgm/diag4-pass.json"), (judge_ls, "neuron/ls-16.json"),
        (judge_fi_info, "efa/fi-32.txt"), (judge_ibstat, "infiniband/ibstat-ok.txt"),
        (judge_nccl, "nccl/ok.txt"), (judge_stress, "stress/ok.txt"),
    ],
)  # fmt: skip
def test_a_healthy_file_that_is_cut_anywhere_is_never_a_fault(
    judge: Callable[[str, datetime], Judgement], name: str
) -> None:
    text = recording(name)

    for end in range(0, len(text), max(1, len(text) // 400)):
        assert judge(text[:end], NOW).verdict is not HealthState.UNHEALTHY


KEYS = st.sampled_from(
    ["neuron0", "neuron0/reset", "m", "m/1/flaps", "m/1/down_s", "MemAvailable", "status",
     "threads", "limit", "zombies", "mc0/ue_count", "//options", "/free", "uptime_s"],
) | st.text(max_size=8)  # fmt: skip
VALUES = st.dictionaries(KEYS, st.sampled_from(["", "0", "ro", "-1", "9" * 30, "²"]) | st.text())


@pytest.mark.parametrize("name", STATE)
@given(values=VALUES, before=VALUES, seen=st.frozensets(KEYS), text=TEXTS)
@settings(max_examples=examples(60), deadline=None)
def test_no_sample_breaks_a_detector(
    name: str, values: dict[str, str], before: dict[str, str], seen: frozenset[str], text: str
) -> None:
    found(name, values, before=before, seen=seen, text=text)
