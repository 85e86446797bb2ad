"""A control plane with the operators of all kinds of jobs, and a controller in front of it."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from chronicle import Chronicle, a_chronicle
from controlled import install
from gangs import Mpi
from job_cells import EVENTS, KINDS, Cell
from light_fleet import LightFleet
from machines import Controller
from rays import run_ray
from real_cluster import Cluster, connect
from trainers import runtimes
from training import PODS

from tests.engines.control_plane import CONTROLLERS, ControlPlane
from tests.engines.fake_nodes import FakeKubelets
from tests.engines.job_operators import (
    MPI_OPERATOR,
    TRAINING_OPERATOR,
    run_mpi_operator,
    run_training_operator,
    start_mpi_operator,
    start_training_operator,
)
from tests.engines.job_sets import run_jobset, start_jobset
from tests.engines.kubelet import PodServer
from tests.engines.trainer import run_trainer

SETTINGS = """
[nodes]
drain_timeout = "5s"
max_unavailable = "60%"
replacements_per_hour = 1000
replacements_per_day = 1000
"""
"""Without limits: most of a hundred nodes fail within minutes."""

OPERATORS = (TRAINING_OPERATOR, "jobset", MPI_OPERATOR)
UPPER = ("trainer", "ray-operator")
"""Operators of kinds of several layers."""

_HEARTBEAT = timedelta(seconds=30)
_TICK = timedelta(milliseconds=200)
_PYTORCH = "PyTorchJob"


@dataclass
class Hall:
    """Everything together."""

    cluster: Cluster
    binaries: Mapping[str, Path]
    fleet: LightFleet
    chronicle: Chronicle

    def control(self, kubeconfig: Path | None = None) -> Controller:
        return self.fleet.control(settings=SETTINGS, kubeconfig=kubeconfig)

    def submit(self, cells: list[Cell]) -> None:
        """Jobs on groups of nodes of their own, once those are in service."""
        self.fleet.start_groups({cell.group: cell.members for cell in cells})
        for cell in cells:
            self.fleet.until_schedulable(*cell.members)
        for cell in cells:
            cell.job.submit()

    def bring_mpi(self) -> None:
        """From now on there are MPIJobs."""
        run_mpi_operator(self.cluster.plane, self.binaries)
        self.chronicle.follow(Mpi.collection)

    def stop_operators(self) -> None:
        self.cluster.plane.stop(*OPERATORS, CONTROLLERS)

    def start_operators(self) -> None:
        self.cluster.plane.start(CONTROLLERS)
        start_training_operator(self.cluster.plane, self.binaries, _PYTORCH)
        start_jobset(self.cluster.plane, self.binaries["jobset"])
        start_mpi_operator(self.cluster.plane, self.binaries)


@contextmanager
def a_hall(binaries: Mapping[str, Path], folder: Path) -> Iterator[Hall]:
    """Without MPIJobs at first."""
    with (
        ControlPlane(binaries) as plane,
        closing(connect(plane.kubeconfig())) as client,
        FakeKubelets(plane.kubeconfig(), heartbeat=_HEARTBEAT, tick=_TICK) as nodes,
    ):
        cluster = Cluster(plane, client, nodes, binaries)
        run_training_operator(plane, binaries, _PYTORCH)
        run_jobset(plane, binaries["jobset"], binaries)
        run_trainer(plane, binaries, *runtimes())
        install(cluster)
        fleet = LightFleet(cluster, folder)
        fleet.owner.start()
        with (
            run_ray(plane, binaries),
            a_chronicle(cluster) as chronicle,
            PodServer(plane) as fleet.logs,
            closing(fleet),
        ):
            hall = Hall(cluster, binaries, fleet, chronicle)
            kinds = (kind.collection for kind in KINDS.values() if kind is not Mpi)
            chronicle.follow(PODS, EVENTS, *kinds)
            yield hall
            fleet.tell()
