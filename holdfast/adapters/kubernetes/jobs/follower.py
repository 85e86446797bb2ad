"""The jobs of one kind and their pods, as they were last read."""

from collections.abc import Callable, Mapping
from typing import Final

from holdfast.adapters.kubernetes.api import Api
from holdfast.adapters.kubernetes.api_errors import Json
from holdfast.adapters.kubernetes.copies import STALE
from holdfast.adapters.kubernetes.jobs.kinds import JobKind
from holdfast.adapters.kubernetes.jobs.objects import JobState, PodState, pod_state
from holdfast.adapters.kubernetes.jobs.pods import LastWords
from holdfast.adapters.kubernetes.reflector import Reflector
from holdfast.kit.units import format_duration
from holdfast.model.errors import BackendError
from holdfast.model.names import Labels

_PODS: Final = "/api/v1/pods"


class KindFollower:
    """Reads one kind, from ``start`` to ``stop``. A kind that is not installed has no jobs."""

    def __init__(
        self,
        api: Api,
        kind: JobKind,
        labels: Labels,
        words: LastWords,
        changed: Callable[[], None],
    ) -> None:
        self.kind = kind
        self._words = words
        self._jobs = Reflector(
            api,
            f"/apis/{kind.api_version}/{kind.plural}",
            trim=lambda job: kind.trimmed(job, labels),
            changed=changed,
        )
        self._pods = Reflector(
            api,
            _PODS,
            trim=self._trimmed,
            changed=changed,
            params={"labelSelector": kind.pod_selector},
        )

    def start(self) -> None:
        """Begin to read; returns at once."""
        self._jobs.start()
        self._pods.start()

    def stop(self) -> None:
        """End the threads."""
        self._jobs.stop()
        self._pods.stop()

    @property
    def error(self) -> str:
        """Why it is not kept up to date at the moment; empty if it is, or is not installed."""
        if self._jobs.is_missing:
            return ""
        return "; ".join(one.error for one in (self._jobs, self._pods) if one.error)

    def jobs(self) -> Mapping[str, JobState]:
        """By ``namespace/name``; none until jobs and pods were both read.

        Raises:
            BackendError: what is known is too old.

        """
        if self._jobs.is_missing or not (self._jobs.synced and self._pods.synced):
            return {}
        for reflector in (self._jobs, self._pods):
            if reflector.error and reflector.age > STALE:
                raise BackendError(
                    f"nothing was heard of {self.kind.plural} for "
                    f"{format_duration(reflector.age)}: {reflector.error}"
                )
        return self._jobs.objects()

    def pods(self) -> Mapping[str, list[PodState]]:
        """By ``namespace/name`` of their job."""
        found: dict[str, list[PodState]] = {}
        for pod in self._pods.objects().values():
            if pod is not None:
                found.setdefault(f"{pod.namespace}/{pod.member.job}", []).append(pod)
        return found

    def learn(self, job: Json) -> None:
        """Take over the API server's answer to a write."""
        self._jobs.learn(job)

    def _trimmed(self, pod: Json) -> PodState | None:
        member = self.kind.member(pod)
        if member is None:
            return None
        state = pod_state(pod, member)
        self._words.note(state)
        return state
