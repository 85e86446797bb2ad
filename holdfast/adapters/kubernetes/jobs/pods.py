"""Which pods each attempt of a job has had."""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final

from holdfast.adapters.kubernetes.jobs.objects import UNNUMBERED, PodState
from holdfast.model.names import PodPhase

_LAST_WORDS: Final = 4096
"""Pods that have ended whose last state is kept: operators delete them at once."""


class FinalPodStates:
    """How pods ended, also those that were deleted before anybody looked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended: OrderedDict[str, PodState] = OrderedDict()

    def note(self, pod: PodState) -> None:
        """Called from any thread with each state of each pod."""
        if pod.has_ended:
            with self._lock:
                self._ended[pod.uid] = pod
                if len(self._ended) > _LAST_WORDS:
                    self._ended.popitem(last=False)

    def of(self, pod: PodState) -> PodState:
        """The end of a pod if it was told, else what was known before."""
        with self._lock:
            return self._ended.get(pod.uid, pod)


class RankAssigner:
    """Gives ranks to pods that their operator does not number, and keeps them while they live."""

    def __init__(self) -> None:
        self._ranks: dict[str, dict[str, int]] = {}

    def given(self, jobs: Mapping[str, list[PodState]]) -> Mapping[str, list[PodState]]:
        """The pods of all jobs with their ranks; a new one takes the lowest that is free."""
        lacking = {
            job: pods
            for job, pods in jobs.items()
            if any(pod.member.rank == UNNUMBERED for pod in pods)
        }
        self._ranks = {job: self._of(job, pods) for job, pods in lacking.items()}
        return {**jobs, **{job: self._numbered(job, pods) for job, pods in lacking.items()}}

    def _numbered(self, job: str, pods: list[PodState]) -> list[PodState]:
        ranks = self._ranks[job]
        return [replace(pod, member=replace(pod.member, rank=ranks[pod.uid])) for pod in pods]

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
    """Remembers the pods of the present attempt of each job, to see which of them are gone.

    An operator makes another pod in place of one that was lost; the other ranks then wait for
    somebody who will never talk to them.
    """

    def __init__(self, words: FinalPodStates) -> None:
        self._words = words
        self._attempts: dict[str, _Attempt] = {}

    def lost(self, job: str, number: int, pods: Iterable[PodState]) -> Mapping[int, PodState]:
        """By rank, pods of the attempt that are there no more, as they were last.

        Args:
            job: uid of the job.
            number: of the attempt.
            pods: all that the job has now.

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
            rank: self._words.of(pod) for rank, pod in attempt.ranks.items() if pod.uid not in here
        }

    def forget(self, job: str) -> None:
        """The job has no attempt at present."""
        self._attempts.pop(job, None)

    def keep(self, jobs: Iterable[str]) -> None:
        """Forget all jobs but these."""
        for gone in self._attempts.keys() - set(jobs):
            del self._attempts[gone]
