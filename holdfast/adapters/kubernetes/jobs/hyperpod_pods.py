"""Objects that Holdfast creates for a ``HyperPodPyTorchJob``: pods, Service, Secret. Pure."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.kubernetes.jobs.hyperpod_job import NEVER, HyperPodJob
from holdfast.adapters.kubernetes.jobs.records import attempt_metadata
from holdfast.model.jobs import LAUNCH_KEY_VARIABLE, JobRecord
from holdfast.model.names import HYPERPOD_JOB, NODE_RANK

PORT: Final = 29400
"""TCP port at which the launchers of a job meet: torchrun's default."""

_KEY: Final = "launch-key"
_UID_CHARS: Final = 8
_NAME_CHARS: Final = 45


def shared_name(job: HyperPodJob) -> str:
    """Return the name of the Service and of the Secret of a job.

    It contains a part of the UID, so that a new job never uses those of a deleted job of its name.
    """
    return f"hp-{job.name[:_NAME_CHARS]}-{job.uid[:_UID_CHARS]}"


def master_address(job: HyperPodJob) -> str:
    """Return the host name of the pod with node rank 0; empty if the job has a single pod."""
    return f"{job.pod_name(0)}.{shared_name(job)}" if job.ranks > 1 else ""


def service_of(job: HyperPodJob) -> Json:
    """Return the headless Service, by which the pods of a job find the first one."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": shared_name(job), **_owned(job)},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {HYPERPOD_JOB: job.name},
        },
    }


def secret_of(job: HyperPodJob, launch_key: str) -> Json:
    """Return the Secret with the key that the launchers of a job share."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": shared_name(job), **_owned(job)},
        "immutable": True,
        "stringData": {_KEY: launch_key},
    }


def pod_of(job: HyperPodJob, rank: int, record: JobRecord | None) -> Json:
    """Return the pod of a node rank for the present attempt."""
    replica, _ = job.places[rank]
    template = replica.get("template") or {}
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    labels = {HYPERPOD_JOB: job.name, NODE_RANK: str(rank)}
    annotations, variables = _attempt(record)
    added = [*_variables(job, rank), *_plain(variables)]
    name = job.pod_name(rank)
    owned = _owned(job)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **owned,
            "name": name,
            "labels": {**(metadata.get("labels") or {}), **labels},
            "annotations": {**(metadata.get("annotations") or {}), **annotations},
        },
        "spec": {
            **spec,
            "restartPolicy": NEVER,
            "hostname": name,
            **({"subdomain": shared_name(job)} if job.ranks > 1 else {}),
            "containers": [_with_variables(one, added) for one in spec.get("containers") or ()],
        },
    }


def _owned(job: HyperPodJob) -> Json:
    owner = {
        "apiVersion": job.api_version,
        "kind": job.kind,
        "name": job.name,
        "uid": job.uid,
        "controller": True,
    }
    return {"namespace": job.namespace, "ownerReferences": [owner]}


def _attempt(record: JobRecord | None) -> tuple[dict[str, str], dict[str, str]]:
    """Return the annotations and variables of a restarted attempt; none for the first."""
    if record is None or record.attempt < 2:
        return {}, {}
    return attempt_metadata(record, is_queued=False)


def _variables(job: HyperPodJob, rank: int) -> Iterator[Json]:
    """Yield what launchers read: options of torchrun, and budgets of ``holdfast launch``."""
    policy = job.run_policy
    restarts = policy.get("restartPolicy") or {}
    found = {
        "PET_NPROC_PER_NODE": job.spec.get("nprocPerNode") or "auto",
        "PET_MAX_RESTARTS": restarts.get("numRestartBeforeFullJobRestart"),
        "PET_RESTART_PERIOD": restarts.get("evalPeriodSeconds"),
        "PET_MAX_TOTAL_RESTARTS": policy.get("jobMaxRetryCount"),
        "PET_MAX_JOB_RESTARTS": restarts.get("maxFullJobRestarts"),
        "PET_OFFENDER_FAILURES": restarts.get("maxNumRepeatOffendersToAvoid"),
    }
    if job.ranks > 1:
        least = sum(one.get("replicas") or 0 for one in job.spec.get("replicaSpecs") or ())
        found |= {
            "PET_NNODES": f"{least}:{job.ranks}" if least < job.ranks else str(least),
            "PET_NODE_RANK": rank,
            "PET_MASTER_ADDR": master_address(job),
            "PET_MASTER_PORT": PORT,
        }
        key = {"secretKeyRef": {"name": shared_name(job), "key": _KEY}}
        yield {"name": LAUNCH_KEY_VARIABLE, "valueFrom": key}
    yield from _plain({name: value for name, value in found.items() if value is not None})


def _plain(variables: dict[str, Any]) -> Iterator[Json]:
    return ({"name": name, "value": str(value)} for name, value in variables.items())


def _with_variables(container: Json, added: Sequence[Json]) -> Json:
    """Return a container with these variables; those that the job sets itself stay."""
    own = container.get("env") or []
    names = {one.get("name") for one in own}
    return {**container, "env": [*(one for one in added if one["name"] not in names), *own]}
