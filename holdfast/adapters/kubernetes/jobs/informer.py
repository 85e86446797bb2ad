"""Informer: cache of the jobs of one kind and of their pods."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.kubernetes.client.reflector import Reflector
from holdfast.adapters.kubernetes.jobs.job_kind import JobKind
from holdfast.adapters.kubernetes.jobs.objects import JobState, PodState, pod_state
from holdfast.adapters.kubernetes.jobs.pods import FinalPodStates, RankAssigner
from holdfast.adapters.kubernetes.nodes.cache import STALE
from holdfast.kit.units import format_duration
from holdfast.model.errors import BackendError
from holdfast.model.names import Labels

_PODS: Final = "/api/v1/pods"


class JobInformer:
    """Caches one kind from ``start`` to ``stop``. A kind that is not installed has no jobs.

    Args:
        api: client of the API server.
        kind: kind of jobs.
        labels: of the cluster.
        final_states: store that records the final states of pods.
        changed: called from any thread after any change.
        body: informer of the kind that has the pods of this one, if it has none itself.

    """

    def __init__(
        self,
        api: Api,
        kind: JobKind,
        labels: Labels,
        final_states: FinalPodStates,
        changed: Callable[[], None],
        body: "JobInformer | None" = None,
    ) -> None:
        self.kind = kind
        self._final_states = final_states
        self._body = body
        self._numbers = RankAssigner()
        self._jobs = Reflector(
            api,
            f"/apis/{kind.api_version}/{kind.plural}",
            trim=lambda job: kind.trimmed(job, labels),
            changed=changed,
        )
        self._reflectors: list[Reflector[JobState] | Reflector[PodState | None]] = [self._jobs]
        if body is None:
            self._pods = Reflector(
                api,
                _PODS,
                trim=self._trimmed,
                changed=changed,
                params={"labelSelector": kind.pod_selector},
            )
            self._reflectors.append(self._pods)

    def start(self) -> None:
        """Start the reflectors; returns at once."""
        for reflector in self._reflectors:
            reflector.start()

    def stop(self) -> None:
        """Stop the threads."""
        for reflector in self._reflectors:
            reflector.stop()

    @property
    def error(self) -> str:
        """Why the cache is out of date; empty if it is current, or the kind is not installed."""
        if self._jobs.is_missing:
            return ""
        return "; ".join(one.error for one in self._reflectors if one.error)

    def jobs(self) -> Mapping[str, JobState]:
        """Return jobs by ``namespace/name``; none until jobs and pods were both read.

        Raises:
            BackendError: the cache is too old.

        """
        if self._jobs.is_missing or not all(one.synced for one in self._reflectors):
            return {}
        for reflector in self._reflectors:
            if reflector.error and reflector.age > STALE:
                raise BackendError(
                    f"no update of {self.kind.plural} was received for "
                    f"{format_duration(reflector.age)}: {reflector.error}"
                )
        jobs = self._jobs.objects()
        return jobs if self._body is None else dict(_with_bodies(jobs, self._body.jobs()))

    def pods(self) -> Mapping[str, list[PodState]]:
        """Return pods by ``namespace/name`` of their job."""
        if self._body is not None:
            return self._body.pods()
        found: dict[str, list[PodState]] = {}
        for pod in self._pods.objects().values():
            if pod is not None:
                found.setdefault(f"{pod.namespace}/{pod.member.job}", []).append(pod)
        return self._numbers.given(found)

    def learn(self, job: Json) -> None:
        """Put an object that the API server returned for a write into the cache."""
        self._jobs.learn(job)

    def learn_pod(self, pod: Json) -> None:
        """Put a pod that the API server returned for a write into the cache."""
        self._pods.learn(pod)

    def _trimmed(self, pod: Json) -> PodState | None:
        member = self.kind.member(pod)
        if member is None:
            return None
        state = pod_state(pod, member)
        self._final_states.note(state)
        return state


def _with_bodies(
    jobs: Mapping[str, JobState], bodies: Mapping[str, JobState]
) -> Iterator[tuple[str, JobState]]:
    """Yield the jobs whose body object exists, with the state of that object."""
    for name, job in jobs.items():
        body = bodies.get(name)
        if body is not None and body.controller is not None and body.controller.uid == job.uid:
            yield name, job.with_body(body)
