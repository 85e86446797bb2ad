"""A control plane with the operators of all kinds of jobs, and a controller in front of it."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from chronicle import Chronicle, a_chronicle
from controlled import install, is_served
from gangs import Mpi
from job_cells import EVENTS, KINDS, Cell
from job_sets import run_jobset, start_jobset
from light_fleet import LightFleet
from machines import Controller
from rays import run_ray
from real_cluster import Cluster, connect, until
from trainers import run_trainer
from training import PODS

from tests.engines.control_plane import CONTROLLERS, ControlPlane
from tests.engines.fake_nodes import FakeKubelets
from tests.engines.kubelet import PodServer
from tools.control_plane import module_files

SETTINGS = """
[nodes]
drain_timeout = "5s"
max_unavailable = "60%"
replacements_per_hour = 1000
replacements_per_day = 1000
"""
"""Without limits: most of a hundred nodes fail within minutes."""

OPERATORS = ("training-operator", "jobset", "mpi-operator")
UPPER = ("trainer", "ray-operator")
"""Operators of kinds of several layers."""

_HEARTBEAT = timedelta(seconds=30)
_TICK = timedelta(milliseconds=200)
_MPI = ("--lock-namespace=default", "--kube-api-qps=500", "--kube-api-burst=1000")


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
        files = module_files("mpi-operator", "github.com/kubeflow/mpi-operator")
        crd = str(files / "manifests/base/kubeflow.org_mpijobs.yaml")
        self.cluster.kubectl("create", "--filename", crd)
        until(lambda: is_served(self.fleet.api, Mpi.collection))
        self.chronicle.follow(Mpi.collection)
        self._run_mpi()

    def stop_operators(self) -> None:
        self.cluster.plane.stop(*OPERATORS, CONTROLLERS)

    def start_operators(self) -> None:
        self.cluster.plane.start(CONTROLLERS)
        self.run_training()
        start_jobset(self.cluster.plane, self.binaries["jobset"])
        self._run_mpi()

    def run_training(self) -> None:
        binary = self.binaries["training-operator"]
        self.cluster.plane.run("training-operator", binary, "PyTorchJob")

    def _run_mpi(self) -> None:
        self.cluster.plane.run("mpi-operator", self.binaries["mpi-operator"], *_MPI)


@contextmanager
def a_hall(binaries: Mapping[str, Path], folder: Path) -> Iterator[Hall]:
    """Without MPIJobs at first."""
    with (
        ControlPlane(binaries) as plane,
        closing(connect(plane.kubeconfig())) as client,
        FakeKubelets(plane.kubeconfig(), heartbeat=_HEARTBEAT, tick=_TICK) as nodes,
    ):
        cluster = Cluster(plane, client, nodes, binaries)
        files = module_files("training-operator", "github.com/kubeflow/training-operator")
        crd = files / "manifests/base/crds/kubeflow.org_pytorchjobs.yaml"
        cluster.kubectl("create", "--filename", str(crd))
        run_jobset(plane, binaries["jobset"], binaries)
        run_trainer(plane, binaries["trainer"], binaries)
        install(cluster)
        fleet = LightFleet(cluster, folder)
        fleet.owner.start()
        with (
            run_ray(plane, binaries["ray-operator"], binaries),
            a_chronicle(cluster) as chronicle,
            PodServer(plane) as fleet.logs,
            closing(fleet),
        ):
            hall = Hall(cluster, binaries, fleet, chronicle)
            hall.run_training()
            kinds = (kind.collection for kind in KINDS.values() if kind is not Mpi)
            chronicle.follow(PODS, EVENTS, *kinds)
            yield hall
            fleet.tell()
