"""Kubeflow's trainer at work, on top of the JobSet controller, and jobs for it."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from gangs import Gang, pods
from real_cluster import until_defined

from holdfast.model.names import Labels
from tests.engines.control_plane import ControlPlane
from tools.control_plane import module_files

RUNTIME = "torch-distributed"
PREPARED = "torch-prepared"
"""A runtime whose training waits for another Job that prepares the data."""

_ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"


def run_trainer(plane: ControlPlane, controller: Path, binaries: Mapping[str, Path]) -> None:
    """With its own runtime for PyTorch, and one like it with an initializer."""
    files = module_files("trainer", "github.com/kubeflow/trainer/v2") / "manifests/base"
    kubectl = [binaries["kubectl"], "--kubeconfig", plane.kubeconfig()]
    subprocess.run([*kubectl, "create", "--kustomize", files / "crds"], check=True)
    crd = "crd/clustertrainingruntimes.trainer.kubeflow.org"
    until_defined(kubectl, crd)
    runtime = yaml.safe_load((files / "runtimes/torch_distributed.yaml").read_text("utf-8"))
    manifests = plane.folder / "runtimes.json"
    both = {"apiVersion": "v1", "kind": "List", "items": [runtime, _prepared(runtime)]}
    manifests.write_text(json.dumps(both), encoding="utf-8")
    subprocess.run([*kubectl, "create", "--filename", manifests], check=True)
    plane.run("trainer", controller)


def _prepared(runtime: dict[str, Any]) -> dict[str, Any]:
    (node,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    step = "dataset-initializer"
    first = {
        "name": step,
        "template": {
            "metadata": {"labels": {_ANCESTOR: step}},
            "spec": {"template": pods(step, containers=[{"name": step, "image": "none"}])},
        },
    }
    after = {**node, "dependsOn": [{"name": step, "status": "Complete"}]}
    spec = {**runtime["spec"], "template": {"spec": {"replicatedJobs": [first, after]}}}
    return {**runtime, "metadata": {"name": PREPARED}, "spec": spec}


class Train(Gang):
    """A TrainJob of two nodes."""

    collection = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs"
    api_version = "trainer.kubeflow.org/v1alpha1"
    kind = "TrainJob"
    pod_label = "jobset.sigs.k8s.io/jobset-name"
    restarts_in_place = True

    def body(self) -> dict[str, Any]:
        selector = {Labels().node_health_status: "Schedulable"}
        return {
            "runtimeRef": {"name": RUNTIME},
            "trainer": {
                "numNodes": 2,
                "resourcesPerNode": {"limits": {"nvidia.com/gpu": 8}},
            },
            "podSpecOverrides": [{"targetJobs": [{"name": "node"}], "nodeSelector": selector}],
        }
