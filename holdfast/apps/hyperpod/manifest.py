"""A job as the PyTorchJob that is submitted: pure."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from holdfast.apps.hyperpod.job_request import JobRequest
from holdfast.detectors.instance_types import equipment_of
from holdfast.model.names import MANAGED_NAMESPACE, DeepCheckStatus, HealthStatus, Labels

Json = dict[str, Any]

CONTAINER: Final = "pytorch"
"""The name that the training operator wants it to have."""

_INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
_QUEUE: Final = "kueue.x-k8s.io/queue-name"
_PRIORITY: Final = "kueue.x-k8s.io/priority-class"
_DEVICES: Final = {
    "gpus": "nvidia.com/gpu",
    "efa": "vpc.amazonaws.com/efa",
    "neuron_devices": "aws.amazon.com/neurondevice",
}
_WEIGHT: Final = 100


def manifest_of(wish: JobRequest, namespace: str) -> Json:
    """The object to create in a namespace."""
    names = Labels()
    annotations = {}
    if wish.auto_resume:
        retries = 1 if wish.max_retry is None else wish.max_retry
        annotations = {
            names.enable_job_auto_resume: "true",
            names.job_max_retry_count: str(retries),
        }
    labels = {**wish.labels, **_queue_labels(wish, namespace)}
    worker = {
        "replicas": wish.nodes,
        "restartPolicy": wish.restart_policy,
        "template": {"metadata": {"labels": labels}, "spec": _pod(wish)},
    }
    spec: Json = {"pytorchReplicaSpecs": {"Worker": worker}}
    if wish.tasks_per_node is not None:
        spec["nprocPerNode"] = str(wish.tasks_per_node)
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {
            "name": wish.name,
            "namespace": namespace,
            "labels": labels,
            "annotations": annotations,
        },
        "spec": spec,
    }


def _queue_labels(wish: JobRequest, namespace: str) -> dict[str, str]:
    if wish.scheduler == "None":
        return {}
    queue = wish.queue
    if not queue and wish.scheduler == "SageMaker" and namespace.startswith(MANAGED_NAMESPACE):
        queue = f"{namespace}-localqueue"
    given = {_QUEUE: queue, _PRIORITY: wish.priority}
    return {key: value for key, value in given.items() if value}


def _pod(wish: JobRequest) -> Json:
    container: Json = {
        "name": CONTAINER,
        "image": wish.image,
        "imagePullPolicy": wish.pull_policy,
        "command": [*wish.command.split(), wish.entry_script, *wish.script_args],
        "env": [{"name": name, "value": value} for name, value in wish.environment.items()],
        "resources": _resources(wish.instance_type),
    }
    pod: Json = {"affinity": {"nodeAffinity": _affinity(wish)}, "containers": [container]}
    if wish.service_account:
        pod["serviceAccountName"] = wish.service_account
    if wish.priority_class:
        pod["priorityClassName"] = wish.priority_class
    mounts = {one.name: one.mount_path for one in wish.volumes}
    mounts |= {one.name: one.mount_path for one in wish.claims}
    if mounts:
        pod["volumes"] = [
            *({"name": one.name, "hostPath": {"path": one.host_path}} for one in wish.volumes),
            *(
                {"name": one.name, "persistentVolumeClaim": {"claimName": one.name}}
                for one in wish.claims
            ),
        ]
        container["volumeMounts"] = [
            {"name": name, "mountPath": path} for name, path in mounts.items()
        ]
    return pod


def _resources(instance_type: str) -> Json:
    """All devices of a node of that type: a rank has its node for itself."""
    equipment = equipment_of(instance_type)
    if equipment is None:
        return {}
    counts = {name: getattr(equipment, field) for field, name in _DEVICES.items()}
    devices = {name: str(count) for name, count in counts.items() if count}
    return {"limits": devices, "requests": devices}


def _affinity(wish: JobRequest) -> Json:
    names = Labels()
    kind = wish.instance_type.removeprefix("ml.")
    healthy: Mapping[str, Iterable[str]] = {names.node_health_status: (HealthStatus.SCHEDULABLE,)}
    passed: Mapping[str, Iterable[str]] = {
        names.deep_health_check_status: (DeepCheckStatus.PASSED,)
    }
    required = {
        **(wish.required or healthy),
        _INSTANCE_TYPE: dict.fromkeys((wish.instance_type, kind, f"ml.{kind}")),
    }
    preferred = wish.preferred or ({} if wish.required else passed)
    weights = wish.weights or (_WEIGHT,) * len(preferred)
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
