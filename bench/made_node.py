"""A machine that has everything: eight GPUs, sixteen Neuron devices and 32 EFA devices, all well.

Its files are made, its commands print recorded output, and its processes are those of this machine.
"""

from collections.abc import Mapping
from pathlib import Path

RECORDINGS = Path(__file__).parents[1] / "tests" / "recordings"

_SHOWN = """Result=success
NRestarts=0
Id=kubelet.service
LoadState=loaded
ActiveState=active
SubState=running
"""
_CORE_COUNTERS = (
    "hw_collectives_error", "hw_dma_abort_error", "hw_error", "hw_hbm_ue_error", "hw_nc_ue_error",
    "hw_repairable_hbm_ue_error",
)  # fmt: skip
_PORT_COUNTERS = (
    "retrans_bytes", "retrans_pkts", "retrans_timeout_events", "rx_drops", "rdma_read_wr_err",
    "rdma_write_wr_err", "impaired_remote_conn_events", "unresponsive_remote_events",
)  # fmt: skip


def make_node(folder: Path) -> tuple[Path, Path]:
    """Make the machine in ``folder``. Returns its root and the folder of its commands."""
    root, commands = folder / "root", folder / "commands"
    _write(root, _files())
    (root / "proc").symlink_to("/proc")
    (root / "run/systemd/system").mkdir(parents=True)
    _write(commands, {"shown": _SHOWN, **{name: _script(text) for name, text in _COMMANDS.items()}})
    for name in _COMMANDS:
        (commands / name).chmod(0o755)
    return root, commands


def _files() -> Mapping[str, str]:
    files: dict[str, str] = {}
    for number in range(16):
        device = f"sys/devices/virtual/neuron_device/neuron{number}"
        hardware = f"{device}/stats/hardware"
        files |= {
            f"{device}/reset": "1",
            f"{device}/info/serial_number": f"{number:016x}",
            f"{hardware}/sram_ecc_uncorrected": "0",
            f"{hardware}/mem_ecc_uncorrected": "0",
        }
        for core in range(2):
            status = f"{device}/neuron_core{core}/stats/status"
            files |= {f"{status}/{name}/total": "0" for name in _CORE_COUNTERS}
    for number in range(32):
        device = f"sys/class/infiniband/rdmap{number}s0"
        files |= {
            f"{device}/device/vendor": "0x1d0f",
            f"{device}/ports/1/state": "4: ACTIVE",
            **{f"{device}/ports/1/hw_counters/{name}": "7" for name in _PORT_COUNTERS},
        }
    return files | {f"sys/devices/system/edac/mc/mc{n}/ue_count": "0" for n in range(8)}


def _script(body: str) -> str:
    return f"#!/bin/sh\nrecordings={RECORDINGS}\n{body}\n"


_COMMANDS = {
    "nvidia-smi": 'exec cat "$recordings/nvidia-smi/healthy.xml"',
    "dcgmi": "case $1 in policy) exec sleep 86400 ;; esac\n"
    'exec cat "$recordings/dcgm/health-ok.json"',
    "neuron-ls": 'exec cat "$recordings/neuron/ls-16.json"',
    "neuron-monitor": 'while cat "$recordings/neuron/monitor-ok.jsonl"; do sleep 5; done',
    "fi_info": 'exec cat "$recordings/efa/fi-32.txt"',
    "ibstat": 'exec cat "$recordings/infiniband/ibstat-ok.txt"',
    "systemctl": 'exec cat "${0%/*}/shown"',
}


def _write(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n", encoding="utf-8")
