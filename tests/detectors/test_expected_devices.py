"""Devices that were lost before the agent saw them."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from listed_findings import detected

from holdfast.detectors.contract import LogLine, Profile, Readings, Sample
from holdfast.detectors.instance_types import INSTANCE_TYPES, Equipment, equipment_of
from holdfast.detectors.neuron_ls import listed
from holdfast.detectors.table import detectors
from holdfast.model.health import Finding, Remedy
from holdfast.model.names import Reason

NOW = datetime(2025, 11, 20, 12, 0, tzinfo=UTC)
SMI = Path(__file__).parents[1] / "recordings" / "nvidia-smi" / "healthy.xml"
BUSES = ("53", "64", "75", "86", "97", "A8", "B9", "CA")


def found(
    name: str,
    equipment: Equipment,
    values: Mapping[str, str],
    before: Mapping[str, str] | None = None,
    *,
    seen: Mapping[str, str] | None = None,
    text: str = "",
) -> list[Finding]:
    [detector] = [
        one for one in detectors(Profile.HYPERPOD, equipment=equipment) if one.name == name
    ]
    [source] = detector.reads
    then = values if before is None else before
    sample = Sample(
        name=source,
        taken_at=NOW,
        text=text,
        values=values,
        before=then,
        seen=frozenset({*values, *then, *(seen or {})}),
    )
    return detected(detector, Readings(samples={source: sample}))


def gpus(count: int) -> dict[str, str]:
    return {"status": "0", **{f"gpu/00000000:{bus}:00.0": "" for bus in BUSES[:count]}}


def smi(count: int) -> str:
    """What nvidia-smi writes where the driver found only so many GPUs of eight."""
    head, *parts = SMI.read_text(encoding="utf-8").split("<gpu id=")
    head = head.replace("<attached_gpus>8<", f"<attached_gpus>{count}<")
    tail = "" if count == len(parts) else "</nvidia_smi_log>\n"
    return "<gpu id=".join([head, *parts[:count]]) + tail


def efas(count: int) -> dict[str, str]:
    return {"/read": "", "mlx5_0": "infiniband", **{f"rdmap{n}s0": "efa" for n in range(count)}}


def neurons(count: int) -> dict[str, str]:
    return {"/read": "", **{f"neuron{n}/reset": "1" for n in range(count)}} | {
        f"neuron{n}": "" for n in range(count)
    }


KINDS = {
    "gpu-state": ("gpus", gpus, Reason.GPU_COUNT),
    "network-state": ("efa", efas, Reason.EFA_COUNT),
    "neuron-state": ("neuron_devices", neurons, Reason.NEURON_COUNT),
}


def counted(
    name: str, expected: int, now: int, before: int | None = None, *, at_once: bool = False
) -> list[tuple[str, Remedy, str]]:
    key, values, _ = KINDS[name]
    equipment = Equipment(**{key: expected}, at_once=at_once)
    then = {} if before is None else values(before)
    text = smi(now) if name == "gpu-state" else ""
    hits = found(name, equipment, values(now), then, text=text)
    return [(one.reason, one.remedy, one.device) for one in hits]


@pytest.mark.parametrize("name", KINDS)
def test_too_few_devices_twice_in_a_row_are_a_fault(name: str) -> None:
    reason = KINDS[name][2]

    assert counted(name, 8, 7, 7) == [(reason, Remedy.REBOOT, "")]
    assert counted(name, 8, 8, 8) == counted(name, 7, 8, 8) == []


@pytest.mark.parametrize("name", KINDS)
def test_a_device_may_be_late(name: str) -> None:
    assert counted(name, 8, 7, None) == []
    assert counted(name, 8, 7, 8) == counted(name, 8, 8, 7) == []


@pytest.mark.parametrize("name", KINDS)
def test_a_probe_believes_its_only_reading(name: str) -> None:
    reason = KINDS[name][2]

    assert counted(name, 8, 7, None, at_once=True) == [(reason, Remedy.REBOOT, "")]
    assert counted(name, 8, 8, None, at_once=True) == []


@pytest.mark.parametrize("name", ["network-state", "neuron-state"])
def test_where_there_are_none_at_all_all_are_missed(name: str) -> None:
    assert counted(name, 8, 0, 0) == [(KINDS[name][2], Remedy.REBOOT, "")]


def test_an_efa_device_in_the_network_namespace_of_a_pod_is_counted() -> None:
    values = efas(6) | {f"hidden/0000:a{n}:00.0": "efa" for n in range(2)}

    assert found("network-state", Equipment(efa=8), values) == []
    assert found("network-state", Equipment(efa=9), values) != []


def test_where_the_driver_shows_no_gpu_all_are_missed() -> None:
    hits = found("gpu-state", Equipment(gpus=8), gpus(0), text="No devices were found\n")

    assert (Reason.GPU_COUNT, Remedy.REBOOT) in {(one.reason, one.remedy) for one in hits}


def test_a_shortage_that_nvidia_smi_admits_is_reported_once() -> None:
    text = smi(7).replace("<attached_gpus>7<", "<attached_gpus>8<")

    hits = found("gpu-state", Equipment(gpus=8), gpus(7), text=text)

    assert [one.reason for one in hits] == [Reason.GPU_COUNT]


def test_a_driver_that_does_not_answer_misses_no_gpu() -> None:
    hits = found("gpu-state", Equipment(gpus=8), {"status": "9"}, text="NVIDIA-SMI has failed")

    assert [one.reason for one in hits] == [Reason.SOURCE_FAILED]


@pytest.mark.parametrize("name", KINDS)
def test_a_device_that_was_seen_is_missed_by_its_name_alone(name: str) -> None:
    key, values, reason = KINDS[name]
    text = smi(7) if name == "gpu-state" else ""

    hits = found(name, Equipment(**{key: 8}), values(7), seen=values(8), text=text)
    both = found(name, Equipment(**{key: 9}), values(7), seen=values(8), text=text)

    assert [one.reason for one in hits if one.device] == [reason] * len(hits) != []
    assert [one.reason for one in both if not one.device] == [reason]


def test_neuron_ls_is_held_to_the_count_from_its_second_reading_on() -> None:
    text = '[{"neuron_device": 0, "nc_count": 2}]'
    two, values = Equipment(neuron_devices=2), listed(text)

    assert found("neuron-ls", two, values, {}, text=text) == []
    assert [one.reason for one in found("neuron-ls", two, values, text=text)] == [
        Reason.NEURON_COUNT
    ]
    assert found("neuron-ls", replace(two, at_once=True), values, {}, text=text) != []


def shown(**cores: int) -> str:
    return json.dumps(
        [{"neuron_device": int(name[1:]), "nc_count": count} for name, count in cores.items()]
    )


@pytest.mark.parametrize(
    ("lacking", "other", "device"),
    [
        (shown(n0=2, n3=2), shown(n0=2, n1=2, n3=2), ""),
        (shown(n0=2, n1=1), shown(n0=1, n1=2), "neuron1"),
        (shown(n0=2), shown(n0=2, n1=2, n2=2), ""),
    ],
)
def test_what_neuron_ls_lacks_while_a_driver_loads_must_be_lacking_in_the_next_listing(
    lacking: str, other: str, device: str
) -> None:
    def hits(text: str, before: Mapping[str, str], *, at_once: bool = False) -> list[Finding]:
        equipment = Equipment(neuron_devices=2, at_once=at_once)
        return found("neuron-ls", equipment, listed(text), before, text=text)

    assert hits(lacking, {}) == hits(lacking, listed(shown(n0=2, n1=2))) == []
    [one] = hits(lacking, listed(lacking))
    assert (one.reason, one.remedy, one.device) == (Reason.NEURON_COUNT, Remedy.REBOOT, device)
    assert hits(lacking, {}, at_once=True) == [one]
    assert one not in hits(other, listed(lacking))
    # Of a sample that failed nothing is known, so that a fault before it has not ended.
    assert [one.reason for one in hits(lacking, {"status": "1"})] == [Reason.SOURCE_FAILED]


@pytest.mark.parametrize(("count", "reported"), [(32, 0), (31, 1), (0, 0)])
def test_fewer_efa_devices_than_a_type_can_have_are_worth_a_warning(
    count: int, reported: int
) -> None:
    hits = found("network-state", Equipment(possible_efa=32), efas(count))

    assert [(one.reason, one.remedy) for one in hits] == [
        (Reason.EFA_COUNT, Remedy.NONE)
    ] * reported


def test_a_count_that_is_configured_stands_before_what_is_possible() -> None:
    hits = found("network-state", Equipment(efa=4, possible_efa=32), efas(4))

    assert hits == []


@pytest.mark.parametrize(
    ("name", "gpus", "neuron_devices", "efa"),
    [
        ("p4d.24xlarge", 8, None, 4), ("p5.48xlarge", 8, None, 32), ("p5en.48xlarge", 8, None, 16),
        ("p6-b200.48xlarge", 8, None, 8), ("g5.xlarge", 1, None, None),
        ("g6.12xlarge", 4, None, None), ("trn1.2xlarge", None, 1, None),
        ("trn1.32xlarge", None, 16, 8), ("trn1n.32xlarge", None, 16, 16),
        ("trn2.48xlarge", None, 16, 16), ("inf2.24xlarge", None, 6, None),
        ("inf2.48xlarge", None, 12, None),
    ],
)  # fmt: skip
def test_what_an_instance_type_has(
    name: str, gpus: int | None, neuron_devices: int | None, efa: int | None
) -> None:
    wanted = Equipment(gpus=gpus, neuron_devices=neuron_devices, possible_efa=efa)
    equipment = equipment_of(name)

    assert equipment is not None
    assert equipment == equipment_of(f"ml.{name}")
    assert replace(equipment, nvlinks=None, neuron_cores=None) == wanted


@pytest.mark.parametrize(
    ("name", "nvlinks"),
    [("p3dn.24xlarge", 6), ("p4d.24xlarge", 12), ("p5.48xlarge", 18), ("p5.4xlarge", None),
     ("p6-b200.48xlarge", 18), ("g5.48xlarge", None), ("trn1.32xlarge", None)],
)  # fmt: skip
def test_how_many_links_each_gpu_of_an_instance_type_has(name: str, nvlinks: int | None) -> None:
    equipment = equipment_of(name)

    assert equipment is not None
    assert equipment.nvlinks == nvlinks


@pytest.mark.parametrize(
    ("name", "cores"),
    [("trn1.2xlarge", 2), ("trn1.32xlarge", 32), ("trn1n.32xlarge", 32), ("trn2.48xlarge", 64),
     ("inf2.48xlarge", 24), ("inf1.24xlarge", None), ("p5.48xlarge", None)],
)  # fmt: skip
def test_how_many_neuron_cores_programs_see(name: str, cores: int | None) -> None:
    equipment = equipment_of(name)

    assert equipment is not None
    assert equipment.neuron_cores == cores


def test_every_type_has_something_and_an_unknown_one_nothing() -> None:
    assert all(one.gpus or one.neuron_devices for one in INSTANCE_TYPES.values())
    assert equipment_of("m5.large") is None


def test_what_must_be_there_must_be_read() -> None:
    assert Equipment(gpus=8, efa=0).sources == {"nvidia-smi"}
    assert Equipment(efa=4, neuron_devices=1).sources == {"infiniband", "neuron"}


@pytest.mark.parametrize(
    ("driver", "info", "remedy"),
    [
        (570, 0x04000000 | 0b0111000110 | 0x26 << 20, Remedy.NONE),
        (570, 0b0111000110 | 0x21 << 20, Remedy.RESET_GPU),
        (580, 0b0010001 | 0x26 << 20, Remedy.NONE),
        (580, 0b0111000110 | 0x26 << 20, Remedy.RESET_GPU),  # as bad as the driver says
    ],
)
def test_an_nvlink_error_is_judged_by_the_sheet_for_the_driver(
    driver: int, info: int, remedy: Remedy
) -> None:
    line = (
        "NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 "
        f"(0x{info:08x} 0x00000000 0x00000000 0x00000000)"
    )
    watchers = detectors(Profile.HYPERPOD, equipment=Equipment(driver=driver))
    readings = Readings(kernel_log=(LogLine(message=line, observed_at=NOW),))

    [finding] = [one for watcher in watchers for one in watcher.detect(readings)]

    assert finding.remedy is remedy
    assert finding.message.startswith(f"{line} [NVLink 5: NETIR_LINK_EVT, fatal, link 1, ")


def test_memory_errors_of_the_log_and_of_the_counters_are_one_fault() -> None:
    """What follows from the same key is said in test_folding."""
    line = "EDAC MC3: 1 UE memory read error on CPU_SrcID#0 (channel:1 slot:0)"
    watchers = detectors(Profile.HYPERPOD)
    readings = Readings(kernel_log=(LogLine(message=line, observed_at=NOW),))
    [reported] = [one for watcher in watchers for one in watcher.detect(readings)]

    [counted, also] = found(
        "edac-state", Equipment(),
        {"mc3/ue_count": "2", "mc3/ue_noinfo_count": "2"},
        {"mc3/ue_count": "1", "mc3/ue_noinfo_count": "1"},
    )  # fmt: skip

    assert reported.key == counted.key == also.key
    assert reported.remedy == counted.remedy == Remedy.REPLACE
