"""Sources on written trees of files, and the findings that follow."""

import os
import socket
import stat
import sys
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.adapters.host import accelerators, host_state, network
from holdfast.adapters.host.machine import Machine
from holdfast.adapters.host.sources import SOURCES, efa_domains, journalctl, plans, unit_states
from holdfast.detectors.contract import Profile
from holdfast.detectors.table import detectors, displayed_samples, required_samples
from holdfast.model.errors import BackendError

RECORDINGS = Path(__file__).parents[2] / "recordings"
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


MADE = {
    "proc/meminfo": "MemAvailable: 7 kB\n",
    "proc/self/mountinfo": "25 1 259:1 / / rw - ext4 /dev/root rw\n",
    "proc/loadavg": "0.1 0.2 0.3 2/523 4242\n",
    "proc/sys/kernel/pid_max": "1000\n",
}
"""What every machine has."""


NUMBERS = " ".join(str(number) for number in range(4, 53))
"""The fields of proc(5) stat after the state, each the number that it has there."""


def test_every_source_is_wanted_by_a_detector_and_every_request_has_a_source() -> None:
    watchers = detectors(Profile.HYPERPOD)
    assert set(required_samples(watchers) | displayed_samples(watchers)) == set(SOURCES)
    assert displayed_samples(()) == {}  # of an agent that reads logs only


def test_a_machine_without_devices_has_no_sources_for_them(tmp_path: Path) -> None:
    found = plans(WANTED, Machine(root=tmp_path, path=str(tmp_path)))

    assert set(found) == {"clock", "runtime"}


def test_a_machine_with_everything_has_all_sources(tmp_path: Path) -> None:
    for name in (
        "nvidia-smi", "dcgmi", "neuron-ls", "neuron-monitor", "fi_info", "ibstat", "systemctl",
    ):  # fmt: skip
        tool(tmp_path / "bin", name, "")
    for name in (
        "sys/devices/virtual/neuron_device", "sys/class/infiniband",
        "sys/devices/system/edac/mc", "run/systemd/system",
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
    pending = "<remapped_row_pending>{}</remapped_row_pending>"
    text = "".join(
        f'<gpu id="00000000:{bus}:00.0">{pending.format(value)}</gpu>\n'
        for bus, value in (("A8", "Yes"), ("B9", "No"), ("CA", "N/A"))
    )

    values = accelerators.nvidia(tmp_path, text)

    assert set(values) == {
        "uptime_s", "gpu/00000000:A8:00.0", "gpu/00000000:B9:00.0", "gpu/00000000:CA:00.0",
        "applied/00000000:B9:00.0",
    }  # fmt: skip
    assert set(accelerators.nvidia(tmp_path, "")) == {"uptime_s"}


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
        "/read": "",
        "neuron0": "",
        "neuron0/reset": "1",
        "neuron0/info/serial_number": "",
        "neuron0/stats/hardware/sram_ecc_uncorrected": "3",
        "neuron0/neuron_core0": "",
        "neuron0/neuron_core0/stats/status/hw_nc_ue_error/total": "0",
    }


SHOWN = """Result=success
NRestarts=4
Id=kubelet.service
LoadState=loaded
ActiveState=active
SubState=running

NRestarts=0
Id=crio.service
LoadState=not-found
ActiveState=inactive
"""


def test_units_that_are_installed_are_read(tmp_path: Path) -> None:
    assert unit_states(tmp_path, SHOWN) == {
        "kubelet/ActiveState": "active",
        "kubelet/SubState": "running",
        "kubelet/Result": "success",
        "kubelet/NRestarts": "4",
    }


def test_each_efa_device_counts_once(tmp_path: Path) -> None:
    text = (RECORDINGS / "efa/fi-32.txt").read_text(encoding="utf-8")

    assert len(efa_domains(tmp_path, text)) == 32


def test_a_command_is_found_where_the_machine_has_its_commands(tmp_path: Path) -> None:
    tool(tmp_path / "bin", "neuron-ls", 'print(\'[{"neuron_device": 3, "nc_count": 2}]\')')

    reading = plans(WANTED, Machine(root=tmp_path, path=str(tmp_path / "bin")))["neuron-ls"].read()

    assert reading.text == '[{"neuron_device": 3, "nc_count": 2}]\n'
    assert reading.values == {"listed": "", "neuron3": "2", "status": "0"}


def test_a_stream_gives_what_came_since_the_last_look_and_ends_with_its_plan(
    tmp_path: Path,
) -> None:
    tool(tmp_path / "bin", "neuron-monitor", "import time; print('{}', flush=True); time.sleep(60)")
    plan = plans(WANTED, Machine(root=tmp_path, path=str(tmp_path / "bin")))["neuron-monitor"]

    texts = [plan.read().text]
    deadline = time.monotonic() + 20
    while "{}" not in texts:
        assert time.monotonic() < deadline
        time.sleep(0.01)
        texts.append(plan.read().text)

    assert plan.read().text == ""
    plan.close()


def test_a_stream_that_ends_is_an_error(tmp_path: Path) -> None:
    tool(tmp_path / "bin", "dcgmi", "import sys; sys.exit('no host engine')")
    plan = plans(WANTED, Machine(root=tmp_path, path=str(tmp_path / "bin")))["dcgm-policy"]

    def read_to_the_end() -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            plan.read()

    with pytest.raises(BackendError, match="dcgmi ended with 1: no host engine"):
        read_to_the_end()
    plan.close()


def test_the_journal_of_a_machine_is_below_its_root(tmp_path: Path) -> None:
    tool(tmp_path / "bin", "journalctl", "")
    command = str(tmp_path / "bin" / "journalctl")
    path = str(tmp_path / "bin")

    assert journalctl(Machine(path=path)) == (command,)
    assert journalctl(Machine(root=tmp_path, path=path)) == (command, f"--root={tmp_path}")


class Links:
    def __init__(self, root: Path) -> None:
        self.root = root / "sys/class/infiniband"
        self.ports = network.Ports(root)

    def set(self, state: str, device: str = "mlx5_0", vendor: str = "0x15b3") -> None:
        write(
            self.root,
            {
                f"{device}/device/vendor": f"{vendor}\n",
                f"{device}/fw_ver": "28.39.1002\n",
                f"{device}/ports/1/state": f"{state}\n",
                f"{device}/ports/1/rate": "400 Gb/sec (4X NDR)\n",
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
    assert values["mlx5_0/1/rate"] == "400 Gb/sec (4X NDR)"
    assert values["mlx5_0/firmware"] == "28.39.1002"
    assert "mlx5_0/1/active" in values
    assert "rxe0" not in values


def add_function(root: Path, address: str, driver: str, kind: str = "0x020000") -> Path:
    """A PCI function and its driver, as sysfs links them."""
    function = root / "sys/devices/pci0000:a0" / address
    write(function, {"class": f"{kind}\n", "vendor": "0x1d0f\n"})
    bus = root / "sys/bus/pci"
    for folder in (bus / "devices", bus / "drivers" / driver):
        folder.mkdir(parents=True, exist_ok=True)
    (function / "driver").symlink_to(bus / "drivers" / driver)
    (bus / "devices" / address).symlink_to(function)
    return function


def test_devices_are_read_with_their_pci_functions(tmp_path: Path) -> None:
    device = tmp_path / "sys/class/infiniband/rdmap160s25"
    device.mkdir(parents=True)
    (device / "device").symlink_to(add_function(tmp_path, "0000:a0:19.0", "efa"))
    add_function(tmp_path, "0000:a0:1a.0", "efa")  # in the network namespace of a pod
    add_function(tmp_path, "0000:a0:1b.0", "ena")
    add_function(tmp_path, "0000:a0:1c.0", "nvme", "0x010802")
    (add_function(tmp_path, "0000:a0:1d.0", "efa") / "driver").unlink()
    text = "provider: efa\n    domain: rdmap160s25-rdm\n"

    assert network.Ports(tmp_path).read().values == {
        "/read": "",
        "rdmap160s25": "efa",
        "rdmap160s25/pci/0000:a0:19.0": "",
        "bound/0000:a0:19.0": "efa",
        "bound/0000:a0:1a.0": "efa",
        "bound/0000:a0:1b.0": "ena",
        "hidden/0000:a0:1a.0": "efa",
    }
    assert efa_domains(tmp_path, text) == {
        "domain/rdmap160s25": "",
        "pci/rdmap160s25/0000:a0:19.0": "",
        "hidden/0000:a0:1a.0": "",
    }


def test_a_reading_without_any_port_is_one(tmp_path: Path) -> None:
    assert network.Ports(tmp_path).read().values == {"/read": ""}


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
            "proc/vmstat": "allocstall_normal 9\noom_kill 3\n",
        },
    )

    assert host_state.memory(tmp_path) == {
        "MemTotal": "100",
        "MemAvailable": "7",
        "HardwareCorrupted": "4",
        "some/avg60": "1.00",
        "full/avg60": "0.34",
        "oom_kill": "3",
    }


def test_uncorrected_errors_of_pages_are_counted_where_the_kernel_does(tmp_path: Path) -> None:
    nodes = "sys/devices/system/node"
    write(tmp_path, {"proc/meminfo": "MemAvailable: 7 kB\n", f"{nodes}/online": "0-1\n"})
    assert host_state.memory(tmp_path) == {"MemAvailable": "7"}

    write(tmp_path, {f"{nodes}/node{n}/memory_failure/total": f"{n + 1}\n" for n in range(2)})
    write(tmp_path, {"sys/devices/system/edac/mc/mc0/ue_count": "0\n"})

    assert host_state.memory(tmp_path) == {"MemAvailable": "7", "memory_failures": "3", "edac": ""}


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
            "proc/10/stat": f"10 (a) Z) Z {NUMBERS}\n",
            "proc/11/stat": f"11 (b) Z) S {NUMBERS}\n",
            "proc/12/stat": f"12 (c d:1) D {NUMBERS}\n",
            "proc/12/status": "Name:\tc\nvoluntary_ctxt_switches:\t7\n"
            "nonvoluntary_ctxt_switches:\t3\n",
            "proc/13/stat": f"13 (e) D {NUMBERS}\n",
            "proc/13/status": "SigPnd:\t0000000000004100\nShdPnd:\t0000000000000000\n",
        },
    )

    assert host_state.processes(tmp_path) == {
        "threads": "523",
        "limit": "1000",
        "zombies": "1",
        "blocked": "12:22:7+3:c_d_1 13:22::e",
        "killed": "13:22",
    }


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
    for name in ("dcgmi", "nvidia-smi", "neuron-monitor"):
        tool(tmp_path / "bin", name, "print('x')")
    write(tmp_path, MADE)
    before = len(os.listdir("/proc/self/fd"))

    for plan in plans(WANTED, Machine(root=tmp_path, path=str(tmp_path / "bin"))).values():
        plan.read()
        plan.close()

    assert len(os.listdir("/proc/self/fd")) == before
