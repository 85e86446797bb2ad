"""Kubeflow's trainer at work, on top of the JobSet controller."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from tests.engines.control_plane import ControlPlane
from tests.engines.definitions import define
from tools.control_plane import module_files

TRAINER: Final = "trainer"
"""Name of its program."""


def run_trainer(
    plane: ControlPlane,
    binaries: Mapping[str, Path],
    *runtimes: Mapping[str, Any],
) -> None:
    """Start the trainer, with its CRDs and runtimes that jobs can refer to."""
    kubectl: list[str | Path] = [binaries["kubectl"], "--kubeconfig", plane.kubeconfig()]
    define(plane, *(_manifests() / "crds").glob("trainer.kubeflow.org_*.yaml"))
    if runtimes:
        manifests = plane.folder / "runtimes.json"
        all_of_them = {"apiVersion": "v1", "kind": "List", "items": runtimes}
        manifests.write_text(json.dumps(all_of_them), encoding="utf-8")
        subprocess.run([*kubectl, "create", "--filename", manifests], check=True)
    plane.run(TRAINER, binaries[TRAINER])


def torch_runtime() -> dict[str, Any]:
    """The trainer's own runtime for PyTorch."""
    text = (_manifests() / "runtimes/torch_distributed.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def _manifests() -> Path:
    return module_files(TRAINER, "github.com/kubeflow/trainer/v2") / "manifests/base"
