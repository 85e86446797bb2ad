"""From a fault of a real Kubernetes node to running pods, and to a node in service; needs root.

Four kubelets with containerd run on this machine, with Holdfast from its chart and an indexed Job
of two real pods. All of them share its processors, so the goals hold for a machine that does
nothing else: on a busy one, nothing is measured. The longest of several samples counts.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench import needs
from bench.figure import Figure
from tests.engines.real_cluster import REAL_PROGRAMS, missing_for_nodes
from tests.engines.real_node import NODE_PROGRAMS, RealNode
from tools.control_plane import provide

sys.path.append(str(Path(__file__).parents[1] / "tests/realnodes"))  # as pytest does for its tests

from leaders import until_led
from site_of_nodes import REBOOT_XID, REPLACE_XID, Site, installed_site
from training_job import TrainingJob

BY_NAME_ONLY = "it takes minutes, and needs a machine that does nothing else"
SAMPLES: Final = 3
QUIET: Final = 0.5
"""Load of each core, on average of a minute, above which the machine is busy."""

CLIENTS: Final = ("kubectl", "helm")
NAMES: Final[Mapping[str, tuple[str, float | None]]] = {
    "running": ("XID 74 to all pods running again", 2.5),
    "replaced": ("XID 74 to another machine in service, without its boot", 15.0),
    "rebooted": ("XID 73 to the rebooted machine in service", 8.0),
    "detected": ("power loss to the order of another machine", 42.0),
    "powered": ("power loss to all pods running again", 45.0),
}
"""What is measured, in the order of the table, with its goal in seconds."""


def lacks() -> str:
    """What real nodes need that is missing here, and why a busy machine is not measured."""
    return missing_for_nodes() or needs.control_plane(*NODE_PROGRAMS, *CLIENTS) or _busy(_load())


def run(samples: int = 0) -> Iterator[Figure]:
    """Break nodes in turn: each sample has an XID of both kinds and a power loss."""
    found: dict[str, list[float]] = {key: [] for key in NAMES}
    times = samples or SAMPLES
    with (
        tempfile.TemporaryDirectory() as folder,
        installed_site(provide(*REAL_PROGRAMS, *CLIENTS), Path(folder)) as site,
    ):
        Path(folder).chmod(0o755)  # ranks are not root
        for number in range(times):
            for measure in (_replaced, _rebooted, _lost_power):
                name = f"{measure.__name__[1:].replace('_', '-')}-{number}"
                with _job(site, name, is_fresh=measure is _rebooted) as broken:
                    for key, seconds in measure(broken).items():
                        found[key].append(seconds)
    for key, (name, goal) in NAMES.items():
        yield Figure(name=f"{name}, worst of {times}", value=max(found[key]), unit="s", goal=goal)
    yield Figure(name="load of each core at the end", value=_load(), unit="", goal=None)


@dataclass
class _Job:
    """A job with a rank on a node that will break."""

    site: Site
    job: TrainingJob
    victim: str

    @property
    def machine(self) -> RealNode:
        return self.site.cluster.nodes[self.victim]

    def seconds(
        self, breaks: Callable[[], object], **phases: Callable[[], object]
    ) -> dict[str, float]:
        """Break the node; returns the seconds until its order and until each phase was reached."""
        orders, first, found = len(self.site.owner.orders), {*self.job.places}, {}
        phases["running"] = lambda: self._runs_anew(first)
        phases["ordered"] = lambda: len(self.site.owner.orders) > orders
        began = time.monotonic()

        def are_reached() -> bool:
            for name, is_reached in phases.items():
                if name not in found and is_reached():
                    found[name] = time.monotonic() - began
            return len(found) == len(phases)

        breaks()
        self.site.until(are_reached, f"{self.job.name}: {', '.join(phases)}")
        return {**found, "ordered": self.site.owner.orders[orders].at - began}

    def _runs_anew(self, first: set[str]) -> bool:
        places = self.job.places.keys()
        return len(places) == self.job.ranks and first.isdisjoint(places)


@contextmanager
def _job(site: Site, name: str, *, is_fresh: bool) -> Iterator[_Job]:
    """A job, of which a node breaks that does not lead.

    One that was rebooted before would be replaced: a fresh one has no incident, others are used up.
    """
    others = {*site.in_service()} - {until_led(site)["node"]}
    victim = min(others, key=lambda one: (bool(site.incidents(one)) is is_fresh, one))
    job = site.submit(name, near=victim)
    job.until_training(1)
    yield _Job(site, job, victim)
    job.finish()
    site.clear()


def _replaced(one: _Job) -> dict[str, float]:
    site, nodes = one.site, one.site.cluster.nodes
    count = len(nodes)

    def is_ready() -> bool:
        names = list(nodes)
        return (
            one.victim not in names
            and len(names) == count
            and all(map(site.cluster.is_ready, names))
        )

    machine = one.machine
    found = one.seconds(
        lambda: machine.log(REPLACE_XID),
        ready=is_ready,
        joined=lambda: one.victim not in nodes and len(site.in_service()) == count,
    )
    boot = found["ready"] - found["ordered"]
    return {"running": found["running"], "replaced": found["joined"] - boot}


def _rebooted(one: _Job) -> dict[str, float]:
    machine, boot_id = one.machine, one.machine.boot_id
    found = one.seconds(
        lambda: machine.log(REBOOT_XID),
        released=lambda: machine.boot_id != boot_id and one.victim in one.site.in_service(),
    )
    return {"rebooted": found["released"]}


def _lost_power(one: _Job) -> dict[str, float]:
    found = one.seconds(one.machine.power_off)
    return {"detected": found["ordered"], "powered": found["running"]}


def _load() -> float:
    return os.getloadavg()[0] / (os.cpu_count() or 1)


def _busy(load: float) -> str:
    """Why figures would be those of other programs; empty if they would not."""
    if load <= QUIET:
        return ""
    return (
        f"this machine is busy, with a load of {load:.1f} on each core: end other programs, and "
        f"wait until it is below {QUIET:g}"
    )
