"""The devices of a node, from recorded output and from what sources read."""

import json
from datetime import UTC, datetime
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.host.network import Ports
from holdfast.detectors.contract import Sample
from holdfast.detectors.device_inventory import GPUS, MEMORY, NETWORK, NEURON, NVLINK, inventory
from holdfast.kit.serial import parse_value, to_plain
from holdfast.model.hardware import (
    DEVICES_LIMIT,
    VALUE_CHARS,
    VALUES_LIMIT,
    DeviceGroup,
    DeviceKind,
)

RECORDINGS = Path(__file__).parents[1] / "recordings"
NOW = datetime(2025, 11, 20, 12, 0, tzinfo=UTC)


def sample(name: str, text: str = "", error: str = "", **values: str) -> Sample:
    read = {key.replace("__", "/"): value for key, value in values.items()}
    return Sample(name=name, taken_at=NOW, text=text, values=read, error=error)


def smi(recording: str) -> Sample:
    text = (RECORDINGS / "nvidia-smi" / recording).read_text(encoding="utf-8")
    return sample(GPUS, text)


def only(*samples: Sample) -> DeviceGroup:
    [group] = inventory((), {one.name: one for one in samples})
    return group


def test_gpus_have_a_driver_a_model_temperatures_and_ecc_counts() -> None:
    group = only(smi("healthy.xml"))

    assert (group.kind, group.read_at) == (DeviceKind.GPU, NOW)
    assert group.versions == {"driver": "595.45.04", "cuda": "13.2"}
    assert len(group.devices) == 8
    first = group.devices[0]
    assert (first.name, first.model) == ("PCI:0000:53:00", "NVIDIA H200")
    assert first.values == {
        "temperature": "34 C",
        "fabric": "Completed",
        "recovery_action": "None",
        "serial": "1650000000000",
        "ecc_corrected": "3",
        "ecc_uncorrected": "0",
        "ecc_uncorrected_lifetime": "0",
        "remapped_rows": "0",
    }


def test_uncorrected_errors_are_of_the_gpu_that_has_them() -> None:
    counts = [
        one.values["ecc_uncorrected"] for one in only(smi("volatile-uncorrectable.xml")).devices
    ]

    assert sorted(map(int, counts))[:-1] == [0] * 7
    assert max(map(int, counts)) > 0


def test_a_fabric_that_failed_shows_its_status() -> None:
    statuses = {one.values.get("fabric_status") for one in only(smi("fabric-failed.xml")).devices}

    assert len(statuses - {None}) == 1


def test_what_is_not_available_is_left_out() -> None:
    [gpu] = only(smi("not-available.xml")).devices

    assert gpu.values == {"temperature": "34 C", "serial": "1650000000000"}


def test_nvlink_errors_are_summed_over_the_links_of_each_gpu() -> None:
    text = (RECORDINGS / "nvidia-smi" / "nvlink-errors.txt").read_text(encoding="utf-8")
    group = only(sample(NVLINK, text))

    assert group.kind is DeviceKind.NVLINK
    assert [one.name for one in group.devices] == ["GPU 0", "GPU 1"]
    assert group.devices[0].model == "NVIDIA H100 80GB HBM3"
    good, bad = (one.values for one in group.devices)
    assert good == {"links": "3", "replay_errors": "0", "recovery_errors": "0", "crc_errors": "0"}
    assert bad == {"links": "3", "replay_errors": "142", "recovery_errors": "3", "crc_errors": "14"}


def test_network_ports_of_a_real_tree_have_a_rate_and_only_the_errors(tmp_path: Path) -> None:
    device = tmp_path / "sys/class/infiniband/mlx5_0"
    for name, text in {
        "device/vendor": "0x15b3",
        "fw_ver": "28.39.1002",
        "ports/1/state": "4: ACTIVE",
        "ports/1/rate": "400 Gb/sec (4X NDR)",
        "ports/1/counters/symbol_error": "0",
        "ports/1/counters/link_downed": "2",
    }.items():
        path = device / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n", encoding="utf-8")
    read = Ports(tmp_path).read()
    group = only(Sample(name=NETWORK, taken_at=NOW, values=read.values))

    [port] = group.devices
    assert (port.name, port.model) == ("mlx5_0/1", "infiniband")
    assert port.values == {
        "state": "ACTIVE",
        "rate": "400 Gb/sec (4X NDR)",
        "firmware": "28.39.1002",
        "link_downed": "2",
    }


def test_neuron_devices_are_in_order_with_the_errors_of_all_their_cores() -> None:
    files = {"/read": "", "/driver": "2.24.7.0"}
    for number in (0, 2, 10):
        files |= {
            f"neuron{number}": "",
            f"neuron{number}/neuron_core0": "",
            f"neuron{number}/neuron_core1": "",
            f"neuron{number}/info/serial_number": f"serial{number}",
            f"neuron{number}/stats/hardware/mem_ecc_uncorrected": "0",
        }
    files |= {f"neuron2/neuron_core{core}/stats/status/hw_error/total": "2" for core in (0, 1)}
    group = only(Sample(name=NEURON, taken_at=NOW, values=files))

    assert group.versions == {"driver": "2.24.7.0"}
    assert [one.name for one in group.devices] == ["neuron0", "neuron2", "neuron10"]
    assert group.devices[0].values == {"cores": "2", "serial": "serial0"}
    assert group.devices[1].values == {"cores": "2", "serial": "serial2", "hw_error": "4"}


def test_memory_controllers_have_their_counts() -> None:
    group = only(sample(MEMORY, mc0__ce_count="3", mc0__ue_count="0", mc1__ce_count="0"))

    assert [(one.name, dict(one.values)) for one in group.devices] == [
        ("MC0", {"ecc_corrected": "3", "ecc_uncorrected": "0"}),
        ("MC1", {"ecc_corrected": "0"}),
    ]


def test_a_reading_that_fails_keeps_the_last_one_and_says_why() -> None:
    known = inventory((), {GPUS: smi("healthy.xml")})
    later = sample(GPUS, error="no result after 45 s; still waiting")

    [group] = inventory(known, {GPUS: later})
    assert (group.devices, group.read_at) == (known[0].devices, NOW)
    assert group.error == "no result after 45 s; still waiting"
    assert inventory((group,), {GPUS: smi("healthy.xml")}) == known
    assert inventory((), {GPUS: later}) == ()


def test_devices_and_texts_are_bounded() -> None:
    files = {f"mlx5_{number}": "x" * 500 for number in range(200)}
    files |= {"mlx5_0/1/state": "4: ACTIVE"} | {f"mlx5_0/1/c{one}": "1" for one in range(100)}
    group = only(Sample(name=NETWORK, taken_at=NOW, values=files))

    assert (len(group.devices), group.left_out) == (DEVICES_LIMIT, 200 - DEVICES_LIMIT)
    assert len(group.devices[0].model) == VALUE_CHARS
    assert len(group.devices[0].values) == VALUES_LIMIT


OUTPUTS = sorted((RECORDINGS / "nvidia-smi").iterdir())


@given(
    st.sampled_from([GPUS, NVLINK, NEURON, NETWORK, MEMORY]),
    st.text(max_size=200) | st.sampled_from(OUTPUTS),
    st.dictionaries(st.text("mc01/neuroslate_", max_size=20), st.text(max_size=30), max_size=8),
)
def test_no_reading_makes_it_fail_and_all_can_be_stored(
    name: str, output: str | Path, values: dict[str, str]
) -> None:
    text = output if isinstance(output, str) else output.read_text(encoding="utf-8")
    groups = inventory((), {name: Sample(name=name, taken_at=NOW, text=text, values=values)})

    stored = json.dumps(to_plain(groups))
    assert parse_value(tuple[DeviceGroup, ...], stored) == groups
