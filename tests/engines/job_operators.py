"""Kubeflow's operators on a control plane."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.engines.control_plane import ControlPlane
from tests.engines.waiting import until_defined
from tools.control_plane import module_files

TRAINING_OPERATOR: Final = "training-operator"
MPI_OPERATOR: Final = "mpi-operator"
"""Names of their programs."""

_MPI_FLAGS: Final = ("--lock-namespace=default", "--kube-api-qps=500", "--kube-api-burst=1000")


def run_training_operator(plane: ControlPlane, binaries: Mapping[str, Path], *kinds: str) -> None:
    """Start the training operator, with the CRDs of kinds of jobs: by default, of all."""
    crds = module_files(TRAINING_OPERATOR, "github.com/kubeflow/training-operator")
    crds /= "manifests/base/crds"
    names = [f"kubeflow.org_{kind.lower()}s.yaml" for kind in kinds] or ["kubeflow.org_*.yaml"]
    files = [path for name in names for path in crds.glob(name)]
    options = [part for path in files for part in ("--filename", path)]
    kubectl = _kubectl(plane, binaries)
    subprocess.run([*kubectl, "create", *options], check=True)
    until_defined(kubectl, *options)
    start_training_operator(plane, binaries, *kinds)


def start_training_operator(plane: ControlPlane, binaries: Mapping[str, Path], *kinds: str) -> None:
    """Once more, after ``run_training_operator``."""
    plane.run(TRAINING_OPERATOR, binaries[TRAINING_OPERATOR], *kinds, has_webhooks=False)


def run_mpi_operator(plane: ControlPlane, binaries: Mapping[str, Path]) -> None:
    """Start the MPI operator, with its CRD."""
    files = module_files(MPI_OPERATOR, "github.com/kubeflow/mpi-operator")
    crd = files / "manifests/base/kubeflow.org_mpijobs.yaml"
    kubectl = _kubectl(plane, binaries)
    subprocess.run([*kubectl, "create", "--filename", crd], check=True)
    until_defined(kubectl, "--filename", crd)
    start_mpi_operator(plane, binaries)


def start_mpi_operator(plane: ControlPlane, binaries: Mapping[str, Path]) -> None:
    """Once more, after ``run_mpi_operator``."""
    plane.run(MPI_OPERATOR, binaries[MPI_OPERATOR], *_MPI_FLAGS)


def _kubectl(plane: ControlPlane, binaries: Mapping[str, Path]) -> Sequence[str | Path]:
    return [binaries["kubectl"], "--kubeconfig", plane.kubeconfig()]
