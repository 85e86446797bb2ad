"""Kubeflow's training operator on a control plane."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.engines.control_plane import ControlPlane
from tools.control_plane import module_files

OPERATOR: Final = "training-operator"
"""Name of its program."""


def run_training_operator(
    plane: ControlPlane, operator: Path, binaries: Mapping[str, Path]
) -> None:
    """Start the operator, with its CRDs, on a control plane."""
    module = module_files(OPERATOR, "github.com/kubeflow/training-operator")
    kubectl = [binaries["kubectl"], "--kubeconfig", plane.kubeconfig()]
    subprocess.run([*kubectl, "create", "-k", module / "manifests/base/crds"], check=True)
    plane.run(OPERATOR, operator, has_webhooks=False)
