"""Kubeflow's operators and KubeRay's on a control plane."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.engines.control_plane import ControlPlane
from tests.engines.definitions import define
from tests.engines.ports import free_port
from tools.control_plane import module_files

TRAINING_OPERATOR: Final = "training-operator"
MPI_OPERATOR: Final = "mpi-operator"
RAY_OPERATOR: Final = "ray-operator"
"""Names of their programs."""

_RAY_FLAGS: Final = ("--metrics-addr=0", "--reconcile-concurrency=4",
                     "--enable-leader-election=false")  # fmt: skip
_MPI_FLAGS: Final = ("--lock-namespace=default", "--kube-api-qps=500", "--kube-api-burst=1000")


def run_training_operator(plane: ControlPlane, binaries: Mapping[str, Path], *kinds: str) -> None:
    """Start the training operator, with the CRDs of kinds of jobs: by default, of all."""
    crds = module_files(TRAINING_OPERATOR, "github.com/kubeflow/training-operator")
    crds /= "manifests/base/crds"
    names = [f"kubeflow.org_{kind.lower()}s.yaml" for kind in kinds] or ["kubeflow.org_*.yaml"]
    files = [path for name in names for path in crds.glob(name)]
    define(plane, *files)
    start_training_operator(plane, binaries, *kinds)


def start_training_operator(plane: ControlPlane, binaries: Mapping[str, Path], *kinds: str) -> None:
    """Once more, after ``run_training_operator``."""
    plane.run(TRAINING_OPERATOR, binaries[TRAINING_OPERATOR], *kinds, has_webhooks=False)


def run_mpi_operator(plane: ControlPlane, binaries: Mapping[str, Path]) -> None:
    """Start the MPI operator, with its CRD."""
    files = module_files(MPI_OPERATOR, "github.com/kubeflow/mpi-operator")
    define(plane, files / "manifests/base/kubeflow.org_mpijobs.yaml")
    start_mpi_operator(plane, binaries)


def start_mpi_operator(plane: ControlPlane, binaries: Mapping[str, Path]) -> None:
    """Once more, after ``run_mpi_operator``."""
    plane.run(MPI_OPERATOR, binaries[MPI_OPERATOR], *_MPI_FLAGS)


def run_ray_operator(
    plane: ControlPlane, binaries: Mapping[str, Path], environment: Mapping[str, str], *flags: str
) -> None:
    """Start the KubeRay operator with more variables and flags, with its CRDs."""
    module = module_files(RAY_OPERATOR, "github.com/ray-project/kuberay/ray-operator")
    define(plane, module / "config/crd/bases")
    variables = [f"{name}={value}" for name, value in environment.items()]
    plane.run(RAY_OPERATOR, "env", *variables, binaries[RAY_OPERATOR], *_RAY_FLAGS, *flags,
              f"--health-probe-bind-address=127.0.0.1:{free_port()}")  # fmt: skip
