"""Sources on written trees of files, and the findings that follow."""

import os
import socket
import stat
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.adapters.host import accelerators, host_state, network
from holdfast.adapters.host.machine import Machine
from holdfast.adapters.host.sources import SOURCES, plans
from holdfast.detectors.contract import Profile
from holdfast.detectors.table import detectors, samples_wanted

WANTED = dict.fromkeys(SOURCES, timedelta(minutes=1))


def write(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def tool(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!{sys.executable}\n{script}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_every_source_is_wanted_by_a_detector_and_every_wish_has_a_source() -> None:
    assert set(samples_wanted(detectors(Profile.HYPERPOD))) == set(SOURCES)


def test_a_machine_without_devices_has_no_sources_for_them(tmp_path: Path) -> None:
    found = plans(WANTED, Machine(root=tmp_path, path=str(tmp_path)))

    assert set(found) == {"clock", "runtime"}


def test_a_machine_with_everything_has_all_sources(tmp_path: Path) -> None:
    for name in ("nvidia-smi", "dcgmi", "neuron-ls"):
        tool(tmp_path / "bin", name, "")
    for name in (
        "sys/devices/virtual/neuron_device", "sys/class/infiniband",
        "sys/devices/system/edac/mc",
    ):  # fmt: skip
        (tmp_path / name).mkdir(parents=True)
    write(tmp_path, {"proc/meminfo": "", "proc/self/mountinfo": "", "proc/loadavg": ""})

    found = plans(WANTED, Machine(root=tmp_path, path=str(tmp_path / "bin")))

    assert set(found) == set(SOURCES)


def test_a_command_is_read_with_its_status_and_its_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(tmp_path / "bin", "nvidia-smi", "import sys; sys.stderr.write('lost'); sys.exit(15)")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    write(tmp_path, {"proc/uptime": "812.55 1200.00\n"})

    reading = plans(WANTED, Machine(root=tmp_path))["nvidia-smi"].read()

    assert reading.text == "lost"
    assert reading.values == {"status": "15", "uptime_s": "812"}


def test_gpus_that_are_shown_are_named(tmp_path: Path) -> None:
    text = '<gpu id="00000000:B9:00.0"></gpu>\n<gpu id="00000000:CA:00.0">'

    values = accelerators.nvidia(tmp_path, text)

    assert set(values) == {"uptime_s", "gpu/00000000:B9:00.0", "gpu/00000000:CA:00.0"}


def test_neuron_devices_are_read_and_unknown_files_are_not(tmp_path: Path) -> None:
    device = "sys/devices/virtual/neuron_device/neuron0"
    write(
        tmp_path,
        {
            f"{device}/reset": "1",
            f"{device}/info/serial_number": "\n",
            f"{device}/stats/hardware/sram_ecc_uncorrected": "3\n",
            f"{device}/neuron_core0/stats/status/hw_nc_ue_error/total": "0\n",
            f"{device}/neuron_core0/stats/status/new_metric_77/total": "9\n",
        },
    )

    assert accelerators.neuron(tmp_path) == {
        "neuron0": "",
        "neuron0/reset": "1",
        "neuron0/info/serial_number": "",
        "neuron0/stats/hardware/sram_ecc_uncorrected": "3",
        "neuron0/neuron_core0": "",
        "neuron0/neuron_core0/stats/status/hw_nc_ue_error/total": "0",
    }


class Links:
    def __init__(self, root: Path) -> None:
        self.root = root / "sys/class/infiniband"
        self.ports = network.Ports(root)

    def set(self, state: str, device: str = "mlx5_0", vendor: str = "0x15b3") -> None:
        write(
            self.root,
            {
                f"{device}/device/vendor": f"{vendor}\n",
                f"{device}/ports/1/state": f"{state}\n",
                f"{device}/ports/1/counters/link_downed": "2\n",
            },
        )

    def values(self, at: float) -> dict[str, str]:
        return dict(self.ports._values(at))


@pytest.fixture
def links(tmp_path: Path) -> Links:
    return Links(tmp_path)


def test_ports_have_a_kind_a_state_and_counters(links: Links) -> None:
    links.set("4: ACTIVE")
    links.set("4: ACTIVE", "rdmap79s0", "0x1d0f")
    (links.root / "rxe0/ports/1").mkdir(parents=True)  # made by software

    values = links.values(0)

    assert values["mlx5_0"] == "infiniband"
    assert values["rdmap79s0"] == "efa"
    assert values["mlx5_0/1/link_downed"] == "2"
    assert "mlx5_0/1/active" in values
    assert "rxe0" not in values


def test_a_link_that_was_never_up_is_not_down(links: Links) -> None:
    links.set("1: DOWN")
    links.values(0)

    assert "mlx5_0/1/down_s" not in links.values(1000)


def test_a_link_that_was_up_is_down_from_the_first_time_it_is_seen_so(links: Links) -> None:
    links.set("4: ACTIVE")
    links.values(0)
    links.set("1: DOWN")

    assert [links.values(at).get("mlx5_0/1/down_s") for at in (30, 60, 300)] == ["0", "30", "270"]


@pytest.mark.parametrize(("down_for", "flaps"), [(25, "1"), (24, "0")])
def test_a_link_that_comes_back_has_flapped_if_it_was_down_for_long(
    links: Links, down_for: int, flaps: str
) -> None:
    links.set("4: ACTIVE")
    links.values(0)
    links.set("1: DOWN")
    links.values(10)
    links.set("4: ACTIVE")

    assert links.values(10 + down_for)["mlx5_0/1/flaps"] == flaps
    assert links.values(10 + down_for + network.FLAP_WINDOW_S + 1)["mlx5_0/1/flaps"] == "0"


def test_memory_and_its_pressure(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/meminfo": "MemTotal:  100 kB\nMemAvailable:  7 kB\nHardwareCorrupted: 4 kB\nX:\n",
            "proc/pressure/memory": "some avg10=0.00 avg60=1.00 avg300=0.00 total=1\n"
            "full avg10=0.18 avg60=0.34 avg300=0.10 total=159886802\n",
        },
    )

    assert host_state.memory(tmp_path) == {
        "MemTotal": "100",
        "MemAvailable": "7",
        "HardwareCorrupted": "4",
        "some/avg60": "1.00",
        "full/avg60": "0.34",
    }


def test_options_of_a_file_system_are_not_those_of_its_mount(tmp_path: Path) -> None:
    lines = (
        "25 1 259:1 / / rw,relatime shared:1 - ext4 /dev/root rw,discard\n"
        "30 25 259:2 / /my\\040data rw,relatime - xfs /dev/nvme1n1 ro,noquota\n"
        "31 25 259:1 / /bound ro,relatime - ext4 /dev/root rw\n"
        "32 25 0:20 / /proc rw - proc proc rw\n"
        "33 25 0:21 / /nfs rw - nfs4 server:/x rw\n"
        "damaged - line\n"
    )
    write(tmp_path, {"proc/self/mountinfo": lines})

    values = host_state.disks(tmp_path)

    assert {name: text for name, text in values.items() if name.endswith("options")} == {
        "//options": "rw,discard",
        "/my data/options": "ro,noquota",
        "/bound/options": "rw",
    }
    assert "//writable" in values
    assert "/my data/writable" not in values
    assert 0 < float(values["//free"]) <= 100


def test_the_controllers_of_memory_are_read(tmp_path: Path) -> None:
    write(
        tmp_path / "sys/devices/system/edac/mc",
        {"mc0/ue_count": "1\n", "mc0/ce_count": "20\n", "power/ue_count": "9\n"},
    )

    assert host_state.edac(tmp_path) == {"mc0/ue_count": "1", "mc0/ce_count": "20"}


def test_threads_and_zombies_are_counted(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/loadavg": "0.1 0.2 0.3 2/523 4242\n",
            "proc/sys/kernel/pid_max": "4194304\n",
            "proc/sys/kernel/threads-max": "1000\n",
            "proc/10/stat": "10 (a) Z) Z 1 1\n",
            "proc/11/stat": "11 (b) Z) S 1 1\n",
        },
    )

    assert host_state.processes(tmp_path) == {"threads": "523", "limit": "1000", "zombies": "1"}


def test_a_runtime_that_listens_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("run/docker.sock")
        assert "docker" not in host_state.runtime(Path())
        server.listen()
        assert "docker" in host_state.runtime(Path())


def test_the_clock_of_this_machine_can_be_asked() -> None:
    assert host_state.clock(Path("/"))["synchronized"] in ("yes", "no")


def test_a_source_leaves_no_descriptor(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))

    for plan in plans(WANTED, Machine(path=str(tmp_path))).values():
        plan.read()

    assert len(os.listdir("/proc/self/fd")) == before
