"""Builds the PyTorchJob of a job request; pure."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from holdfast.apps.hyperpod.job_request import JobRequest
from holdfast.detectors.instance_types import equipment_of
from holdfast.model.names import MANAGED_NAMESPACE, DeepCheckStatus, HealthStatus, Labels

Json = dict[str, Any]

CONTAINER: Final = "pytorch"
"""Container name that the training operator requires."""

_INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
_QUEUE: Final = "kueue.x-k8s.io/queue-name"
_PRIORITY: Final = "kueue.x-k8s.io/priority-class"
_DEVICES: Final = {
    "gpus": "nvidia.com/gpu",
    "efa": "vpc.amazonaws.com/efa",
    "neuron_devices": "aws.amazon.com/neurondevice",
}
_WEIGHT: Final = 100


def manifest_of(request: JobRequest, namespace: str) -> Json:
    """Return the PyTorchJob to create in a namespace."""
    names = Labels()
    annotations = {}
    if request.auto_resume:
        retries = 1 if request.max_retry is None else request.max_retry
        annotations = {
            names.enable_job_auto_resume: "true",
            names.job_max_retry_count: str(retries),
        }
    labels = {**request.labels, **_queue_labels(request, namespace)}
    worker = {
        "replicas": request.nodes,
        "restartPolicy": request.restart_policy,
        "template": {"metadata": {"labels": labels}, "spec": _pod(request)},
    }
    spec: Json = {"pytorchReplicaSpecs": {"Worker": worker}}
    if request.tasks_per_node is not None:
        spec["nprocPerNode"] = str(request.tasks_per_node)
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {
            "name": request.name,
            "namespace": namespace,
            "labels": labels,
            "annotations": annotations,
        },
        "spec": spec,
    }


def _queue_labels(request: JobRequest, namespace: str) -> dict[str, str]:
    if request.scheduler == "None":
        return {}
    queue = request.queue
    if not queue and request.scheduler == "SageMaker" and namespace.startswith(MANAGED_NAMESPACE):
        queue = f"{namespace}-localqueue"
    given = {_QUEUE: queue, _PRIORITY: request.priority}
    return {key: value for key, value in given.items() if value}


def _pod(request: JobRequest) -> Json:
    container: Json = {
        "name": CONTAINER,
        "image": request.image,
        "imagePullPolicy": request.pull_policy,
        "command": [*request.command.split(), request.entry_script, *request.script_args],
        "env": [{"name": name, "value": value} for name, value in request.environment.items()],
        "resources": _resources(request.instance_type),
    }
    pod: Json = {"affinity": {"nodeAffinity": _affinity(request)}, "containers": [container]}
    if request.service_account:
        pod["serviceAccountName"] = request.service_account
    if request.priority_class:
        pod["priorityClassName"] = request.priority_class
    mounts = {one.name: one.mount_path for one in request.volumes}
    mounts |= {one.name: one.mount_path for one in request.claims}
    if mounts:
        pod["volumes"] = [
            *({"name": one.name, "hostPath": {"path": one.host_path}} for one in request.volumes),
            *(
                {"name": one.name, "persistentVolumeClaim": {"claimName": one.name}}
                for one in request.claims
            ),
        ]
        container["volumeMounts"] = [
            {"name": name, "mountPath": path} for name, path in mounts.items()
        ]
    return pod


def _resources(instance_type: str) -> Json:
    """Return all devices of a node of this type, as a rank uses its node exclusively."""
    equipment = equipment_of(instance_type)
    if equipment is None:
        return {}
    counts = {name: getattr(equipment, field) for field, name in _DEVICES.items()}
    devices = {name: str(count) for name, count in counts.items() if count}
    return {"limits": devices, "requests": devices}


def _affinity(request: JobRequest) -> Json:
    names = Labels()
    kind = request.instance_type.removeprefix("ml.")
    healthy: Mapping[str, Iterable[str]] = {names.node_health_status: (HealthStatus.SCHEDULABLE,)}
    passed: Mapping[str, Iterable[str]] = {
        names.deep_health_check_status: (DeepCheckStatus.PASSED,)
    }
    required = {
        **(request.required or healthy),
        _INSTANCE_TYPE: dict.fromkeys((request.instance_type, kind, f"ml.{kind}")),
    }
    preferred = request.preferred or ({} if request.required else passed)
    weights = request.weights or (_WEIGHT,) * len(preferred)
    affinity: Json = {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": _expressions(required)}]
        }
    }
    if preferred:
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": weight, "preference": {"matchExpressions": _expressions({key: values})}}
            for weight, (key, values) in zip(weights, preferred.items(), strict=True)
        ]
    return affinity


def _expressions(labels: Mapping[str, Iterable[str]]) -> list[Json]:
    return [
        {"key": key, "operator": "In", "values": list(map(str, values))}
        for key, values in labels.items()
    ]
