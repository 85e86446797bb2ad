"""Runtimes of Kubeflow's trainer, and jobs for it."""

from typing import Any

from gangs import Gang, pods

from holdfast.model.names import Labels
from tests.engines.trainer import torch_runtime

RUNTIME = "torch-distributed"
PREPARED = "torch-prepared"
"""A runtime whose training waits for another Job that prepares the data."""

_ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"


def runtimes() -> tuple[dict[str, Any], dict[str, Any]]:
    """The trainer's own runtime for PyTorch, and one like it with an initializer."""
    own = torch_runtime()
    return own, _prepared(own)


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
