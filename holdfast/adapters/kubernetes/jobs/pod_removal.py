"""Deletion of the pods of a job that stops."""

from collections.abc import Iterable
from typing import Final

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.errors import Conflict, NotFound
from holdfast.adapters.kubernetes.jobs.objects import PodState
from holdfast.adapters.kubernetes.nodes.cluster import KubernetesCluster
from holdfast.adapters.kubernetes.nodes.drain import evict

_KILL_GRACE_S: Final = 1
"""Grace period that makes a kubelet send SIGKILL to a terminating pod. With 0 the pod's object
would be deleted while its processes may still run."""


class PodRemoval:
    """Deletes pods; those that cannot run any more without a grace period."""

    def __init__(self, api: Api, cluster: KubernetesCluster) -> None:
        """``cluster`` has the nodes of the pods."""
        self._api = api
        self._cluster = cluster

    def exchange(self, pods: Iterable[PodState]) -> None:
        """Evict pods, and delete those that cannot run any more: their operator replaces them.

        The Eviction API marks a pod as disrupted, so that a Job need not count it as failed.

        Raises:
            BackendError: a pod could not be evicted, for example because of a disruption budget.

        """
        remaining = list(pods)
        for pod in remaining:
            if not pod.is_terminating and not pod.has_ended:
                evict(self._api, pod)
        self.delete(pod for pod in remaining if pod.is_terminating or pod.has_ended)

    def delete(self, pods: Iterable[PodState]) -> None:
        """Delete pods; those that terminate and still run are left to their kubelet.

        Raises:
            BackendError: a pod could not be deleted.

        """
        for pod in pods:
            is_removable = pod.is_terminating and (pod.has_ended or self.is_stuck(pod))
            if pod.is_terminating and not is_removable:
                continue
            try:
                self._api.delete(pod.path, uid=pod.uid, grace=0 if is_removable else None)
            except (NotFound, Conflict):
                continue  # already deleted, or another pod has its name

    def kill(self, pods: Iterable[PodState], *, is_overdue: bool) -> None:
        """Delete pods, and shorten the grace period of those that terminate and still run.

        Args:
            pods: remaining pods of the job.
            is_overdue: whether pods are deleted, too, that their operator has not deleted. Those of
                a ``Job`` that is not seen as suspended count for its ``backoffLimit``.

        Raises:
            BackendError: a pod could not be deleted.

        """
        remaining = list(pods)
        for pod in remaining:
            if pod.is_terminating and (pod.grace_s or 0) > _KILL_GRACE_S and not pod.has_ended:
                self._shorten(pod)
        self.delete(pod for pod in remaining if pod.is_terminating or pod.has_ended or is_overdue)

    def _shorten(self, pod: PodState) -> None:
        if self.is_stuck(pod):
            return
        try:
            self._api.delete(pod.path, uid=pod.uid, grace=_KILL_GRACE_S)
        except (NotFound, Conflict):
            return  # already deleted, or another pod has its name

    def delete_ended(self, pods: Iterable[PodState]) -> None:
        """Delete terminating pods that have ended on cordoned nodes.

        Raises:
            BackendError: a pod could not be deleted.

        """
        ended = [pod for pod in pods if pod.is_terminating and pod.has_ended]
        nodes = {pod.uid: self._cluster.find(pod.node) for pod in ended}
        cordoned = {uid for uid, node in nodes.items() if node and node.is_unschedulable}
        self.delete(pod for pod in ended if pod.uid in cordoned)

    def is_stuck(self, pod: PodState) -> bool:
        """Whether a terminating pod can no longer run: its machine is off, deleted or replaced."""
        if not pod.is_terminating:
            return False
        node = self._cluster.find(pod.node) if pod.node else None
        if node is None:
            return bool(pod.node)
        return node.is_off or node.created_at > pod.created_at
