"""InfiniBand, RoCE and EFA devices in sysfs."""

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from holdfast.adapters.host.sampler import Reading
from holdfast.adapters.host.small_files import link_target, names_in, read_small

FLAP_DOWN_S: Final = 25
"""Minimum downtime in seconds of a link that counts as a flap on its return, as in gpud."""

FLAP_WINDOW_S: Final = 3600

_ACTIVE: Final = "4: ACTIVE"
_EFA_VENDOR: Final = "0x1d0f"
_EFA_DRIVER: Final = "efa"
_NETWORK_CLASS: Final = "0x02"
"""Beginning of the PCI classes of network controllers; those of InfiniBand are among them."""
_PCI_ADDRESS: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")

_COUNTERS: Final = (
    "counters/excessive_buffer_overrun_errors",
    "counters/link_downed",
    "counters/local_link_integrity_errors",
    "counters/symbol_error",
    "hw_counters/impaired_remote_conn_events",
    "hw_counters/rdma_read_wr_err",
    "hw_counters/rdma_write_wr_err",
    "hw_counters/retrans_bytes",
    "hw_counters/retrans_pkts",
    "hw_counters/retrans_timeout_events",
    "hw_counters/rnr_nak_retry_err",
    "hw_counters/rx_drops",
    "hw_counters/unresponsive_remote_events",
)


@dataclass(slots=True)
class _Link:
    down_since: float | None = None
    returns: list[float] = field(default_factory=list)
    """Times within the window at which the link came back."""


def is_efa(device: Path) -> bool:
    """Return whether a directory of ``sys/class/infiniband`` belongs to an EFA device."""
    return read_small(device / "device/vendor") == _EFA_VENDOR


def efa_devices(root: Path) -> list[str]:
    """Return the names of the EFA devices of a machine."""
    devices = root / "sys/class/infiniband"
    return [name for name in names_in(devices) if is_efa(devices / name)]


def pci_address(root: Path, device: str) -> str | None:
    """Return the address of the PCI function of a device; None if it has none."""
    target = link_target(root / "sys/class/infiniband" / device / "device")
    return target if target is not None and _PCI_ADDRESS.fullmatch(target) else None


def bound_functions(root: Path) -> dict[str, str]:
    """Return the driver of each PCI function of a network controller that has one, by address."""
    folder = root / "sys/bus/pci/devices"
    drivers = {
        address: link_target(folder / address / "driver")
        for address in names_in(folder)
        if (read_small(folder / address / "class") or "").startswith(_NETWORK_CLASS)
    }
    return {address: driver for address, driver in drivers.items() if driver is not None}


def hidden_efa(root: Path, bound: Mapping[str, str]) -> list[str]:
    """Return the addresses of EFA devices among ``bound_functions`` that are not visible.

    They are in other network namespaces, such as that of a pod (rdma-system(8), ``exclusive``).
    """
    visible = {pci_address(root, device) for device in names_in(root / "sys/class/infiniband")}
    efa = [address for address, driver in bound.items() if driver == _EFA_DRIVER]
    return [address for address in efa if address not in visible]


class Ports:
    """Reads the network ports of a machine and tracks when their links were down."""

    def __init__(self, root: Path) -> None:
        """Read ``sys/class/infiniband`` below ``root``."""
        self._root = root
        self._devices = root / "sys/class/infiniband"
        self._links: dict[str, _Link] = {}

    def read(self) -> Reading:
        """Return the state and counters of all ports.

        Names are ``DEVICE`` (``efa`` or ``infiniband``), ``DEVICE/pci/ADDRESS`` (its PCI function),
        ``DEVICE/firmware`` (its version), ``bound/ADDRESS`` (the driver of a PCI function),
        ``hidden/ADDRESS`` (``efa``; of a device in another network namespace), and
        ``DEVICE/PORT/`` followed by ``state`` and ``rate`` (as in sysfs), ``down_s`` (seconds; only
        while a link is down that was up before), ``flaps`` (number of flaps within
        ``FLAP_WINDOW_S``), ``active`` (only while the link is up), or the name of a counter.
        ``/read`` is always present, so that a reading without devices is not empty.
        """
        return Reading(values={"/read": ""} | dict(self._values(time.monotonic())))

    def _values(self, now: float) -> Iterator[tuple[str, str]]:
        bound = bound_functions(self._root)
        yield from ((f"bound/{address}", driver) for address, driver in bound.items())
        yield from ((f"hidden/{address}", "efa") for address in hidden_efa(self._root, bound))
        for device in names_in(self._devices):
            vendor = read_small(self._devices / device / "device/vendor")
            if vendor is None:
                continue  # software device without hardware below it
            yield device, "efa" if vendor == _EFA_VENDOR else "infiniband"
            if (address := pci_address(self._root, device)) is not None:
                yield f"{device}/pci/{address}", ""
            firmware = read_small(self._devices / device / "fw_ver")
            if firmware:
                yield f"{device}/firmware", firmware
            for port in names_in(self._devices / device / "ports"):
                yield from self._port(f"{device}/{port}", f"{device}/ports/{port}", now)

    def _port(self, name: str, path: str, now: float) -> Iterator[tuple[str, str]]:
        state = read_small(self._devices / path / "state")
        if state is None:
            return
        yield f"{name}/state", state
        rate = read_small(self._devices / path / "rate")
        if rate:
            yield f"{name}/rate", rate
        yield from self._remediation(name, now, is_up=state == _ACTIVE)
        for counter in _COUNTERS:
            count = read_small(f"{self._devices}/{path}/{counter}")
            if count is not None:
                yield f"{name}/{counter.rpartition('/')[2]}", count

    def _remediation(self, name: str, now: float, *, is_up: bool) -> Iterator[tuple[str, str]]:
        link = self._links.get(name)
        if is_up:
            yield f"{name}/active", ""
            if link is None:
                link = self._links[name] = _Link()
            if link.down_since is not None and now - link.down_since >= FLAP_DOWN_S:
                link.returns.append(now)
            link.down_since = None
        elif link is not None:  # it was up before; otherwise no cable may be connected
            if link.down_since is None:
                link.down_since = now
            yield f"{name}/down_s", str(int(now - link.down_since))
        if link is not None:
            link.returns = [at for at in link.returns if now - at <= FLAP_WINDOW_S]
            yield f"{name}/flaps", str(len(link.returns))
