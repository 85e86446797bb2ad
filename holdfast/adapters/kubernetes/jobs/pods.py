"""Pods of each attempt of a job."""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final

from holdfast.adapters.kubernetes.jobs.objects import UNNUMBERED, PodState
from holdfast.model.names import PodPhase
from holdfast.model.set_aside import SetAside

_ENDED_KEPT: Final = 4096
"""Ended pods whose final state is kept, since operators delete them at once."""


class FinalPodStates:
    """Final states of pods, including pods that were deleted since."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended: OrderedDict[str, PodState] = OrderedDict()

    def note(self, pod: PodState) -> None:
        """Record a state of a pod; may be called from any thread."""
        if pod.has_ended:
            with self._lock:
                self._ended[pod.uid] = pod
                if len(self._ended) > _ENDED_KEPT:
                    self._ended.popitem(last=False)

    def of(self, pod: PodState) -> PodState:
        """Final state of a pod if it is known, else ``pod``."""
        with self._lock:
            return self._ended.get(pod.uid, pod)


class RankAssigner:
    """Assigns ranks to pods whose operator does not number them, for as long as the pods exist."""

    def __init__(self) -> None:
        self._ranks: dict[str, dict[str, int]] = {}

    def given(self, jobs: Mapping[str, list[PodState]]) -> Mapping[str, list[PodState]]:
        """Pods of all jobs with their ranks; a new pod gets the lowest free rank."""
        lacking = {
            job: pods
            for job, pods in jobs.items()
            if any(pod.member.rank == UNNUMBERED for pod in pods)
        }
        self._ranks = {job: self._of(job, pods) for job, pods in lacking.items()}
        return {**jobs, **{job: self._numbered(job, pods) for job, pods in lacking.items()}}

    def _numbered(self, job: str, pods: list[PodState]) -> list[PodState]:
        ranks = self._ranks[job]
        return [replace(pod, member=pod.member._replace(rank=ranks[pod.uid])) for pod in pods]

    def _of(self, job: str, pods: list[PodState]) -> dict[str, int]:
        before = self._ranks.get(job, {})
        ranks = {pod.uid: before.get(pod.uid, pod.member.rank) for pod in pods}
        taken = set(ranks.values())
        free = (rank for rank in count(1) if rank not in taken)
        for pod in sorted(pods, key=lambda one: (one.created_at, one.name)):
            if ranks[pod.uid] == UNNUMBERED:
                ranks[pod.uid] = next(free)
        return ranks


@dataclass(slots=True)
class _Attempt:
    number: int
    ranks: dict[int, PodState] = field(default_factory=dict)
    """The first pod of each rank that has run."""


class AttemptPods:
    """Tracks the pods of the current attempt of each job, to find lost ones.

    An operator replaces a lost pod by a new one; the other ranks then wait in vain, since the new
    pod does not join their process group.
    """

    def __init__(self, final_states: FinalPodStates) -> None:
        self._final_states = final_states
        self._attempts: dict[str, _Attempt] = {}

    def lost(self, job: str, number: int, pods: Iterable[PodState]) -> Mapping[int, PodState]:
        """Last states of the pods of the attempt that no longer exist, by rank.

        Args:
            job: uid of the job.
            number: number of the attempt.
            pods: all current pods of the job.

        """
        attempt = self._attempts.get(job)
        if attempt is None or attempt.number != number:
            attempt = self._attempts[job] = _Attempt(number)
        for pod in pods:
            if pod.phase != PodPhase.PENDING and pod.node:
                known = attempt.ranks.setdefault(pod.member.rank, pod)
                if known.uid == pod.uid:
                    attempt.ranks[pod.member.rank] = pod
        here = {pod.uid for pod in pods}
        return {
            rank: pod if pod.has_ended else self._final_states.of(pod)
            for rank, pod in attempt.ranks.items()
            if pod.uid not in here
        }

    def forget(self, job: str) -> None:
        """Remove the state of a job that has no current attempt."""
        self._attempts.pop(job, None)

    def keep(self, jobs: Iterable[str]) -> None:
        """Remove the state of all jobs but these."""
        for removed in self._attempts.keys() - set(jobs):
            del self._attempts[removed]


def moves_of(pods: Iterable[PodState]) -> tuple[SetAside, ...]:
    """Return the checkpoints that init containers of pods report as moved."""
    return tuple(one for pod in pods for one in pod.checkpoint_report.moved)
