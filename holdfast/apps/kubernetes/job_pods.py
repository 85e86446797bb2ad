"""Pods of the jobs of a kind."""

from collections.abc import Iterator

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.jobs.job_kind import JobKind
from holdfast.adapters.kubernetes.jobs.objects import PodState, pod_state


def pods_of(api: Api, kind: JobKind, namespace: str) -> Iterator[tuple[str, PodState]]:
    """Yield ``namespace/name`` of the job, and the state, of each pod of a kind of jobs.

    Args:
        api: the client.
        kind: kind of the jobs.
        namespace: namespace of the jobs; empty for all.

    """
    where = f"/namespaces/{namespace}" if namespace else ""
    for pod in api.list(f"/api/v1{where}/pods", {"labelSelector": kind.pod_selector}):
        member = kind.member(pod)
        if member is not None:
            yield f"{pod['metadata']['namespace']}/{member.job}", pod_state(pod, member)
