"""Devices of one node, from recorded output of its tools."""

from datetime import datetime
from pathlib import Path

from holdfast.detectors.contract import Sample
from holdfast.detectors.device_inventory import GPUS, MEMORY, NETWORK, NVLINK, inventory
from holdfast.model.hardware import DeviceGroup

RECORDINGS = Path(__file__).parents[1] / "recordings/nvidia-smi"


def devices(now: datetime) -> tuple[DeviceGroup, ...]:
    """Eight GPUs, of which one has ECC errors, NVLink, five EFA devices and memory."""
    ports = {f"rdmap{number}s0": "efa" for number in (79, 80, 81, 96)}
    values = dict(ports) | {"mlx5_0": "infiniband", "mlx5_0/firmware": "28.39.1002"}
    for name in (*ports, "mlx5_0"):
        values |= {f"{name}/1/state": "4: ACTIVE", f"{name}/1/rate": "100 Gb/sec (4X EDR)"}
    values |= {"rdmap80s0/1/rx_drops": "417", "mlx5_0/1/state": "1: DOWN"}
    samples = [
        Sample(name=GPUS, taken_at=now, text=recorded("volatile-uncorrectable.xml")),
        Sample(name=NVLINK, taken_at=now, text=recorded("nvlink-errors.txt")),
        Sample(name=NETWORK, taken_at=now, values=values),
        Sample(name=MEMORY, taken_at=now, values={"mc0/ce_count": "3", "mc0/ue_count": "0"}),
    ]
    return inventory((), {one.name: one for one in samples})


def recorded(name: str) -> str:
    return (RECORDINGS / name).read_text(encoding="utf-8")
