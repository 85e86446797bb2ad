"""Last steps and step rates of running jobs, from the logs of their pods."""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.jobs.job_kind import JobKind
from holdfast.adapters.kubernetes.jobs.objects import JobState, PodState
from holdfast.apps.kubernetes.job_pods import pods_of
from holdfast.apps.kubernetes.pod_log_part import read_pod_steps
from holdfast.apps.views.jobs import JobStatus
from holdfast.decisions.step_rate import step_rate
from holdfast.model.errors import BackendError
from holdfast.model.jobs import JobPhase
from holdfast.model.names import PodPhase

_FRESH_S: Final = 30.0
"""Seconds after which the logs of a job are read again, if the list is refreshed."""

_PARALLEL: Final = 16
"""Number of logs that are read at once; a log of 1000 lines has about 0.1 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSteps:
    """Last step and step rate of a job; None if its logs do not show them."""

    step: int | None = None
    per_second: float | None = None

    def added_to(self, status: JobStatus) -> JobStatus:
        """Return the status of the job with them."""
        return replace(status, step=self.step, steps_per_second=self.per_second)


@dataclass(slots=True)
class _Reading:
    """Reading of one attempt; ``steps`` are those of the reading before."""

    attempt: int
    began_at: float
    found: Future[JobSteps]
    steps: JobSteps | None = None

    def known(self) -> JobSteps | None:
        """Return the newest steps; None if none were read yet."""
        is_read = self.found.done() and self.found.exception() is None
        return self.found.result() if is_read else self.steps


def read_steps(api: Api, pods: Iterable[PodState]) -> JobSteps:
    """Return the steps that the logs of a job show.

    Frameworks log steps on the first rank or, like Megatron, on the last one.
    """
    running = sorted(
        (one for one in pods if one.phase == PodPhase.RUNNING), key=lambda one: one.member.rank
    )
    for pod in {one.uid: one for one in (*running[:1], *running[-1:])}.values():
        try:
            steps = read_pod_steps(api, pod)
        except BackendError:
            continue  # its node does not respond, or the user may not read logs
        if steps:
            return JobSteps(step=steps[-1][1], per_second=step_rate(steps))
    return JobSteps()


class StepReader:
    """Reads steps of many jobs in threads of its own, and keeps them for 30 s.

    Args:
        api: the client.
        namespace: namespace of the jobs; empty for all.

    """

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self._pool = ThreadPoolExecutor(_PARALLEL, thread_name_prefix="job-steps")
        self._readings: dict[str, _Reading] = {}

    def close(self) -> None:
        """Begin no further reading."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def with_steps(
        self,
        jobs: Sequence[JobStatus],
        listed: Mapping[str, tuple[JobKind, JobState]],
        within: timedelta,
    ) -> list[JobStatus]:
        """Return the jobs with the steps of those that run.

        Args:
            jobs: the jobs.
            listed: kind and state of each job by its name.
            within: time to wait for jobs that were not read before; others are read meanwhile, for
                later calls.

        """
        running = {
            one.name: one for one in jobs if one.phase == JobPhase.RUNNING and one.name in listed
        }
        self._readings = {
            name: one
            for name, one in self._readings.items()
            if name in running and one.attempt == running[name].attempt
        }
        now = time.monotonic()
        due = [name for name in running if self._is_due(name, now)]
        pods = self._pods({listed[name][0].plural: listed[name][0] for name in due})
        for name in due:
            kind, state = listed[name]
            before = self._readings.get(name)
            self._readings[name] = _Reading(
                running[name].attempt,
                now,
                self._pool.submit(self._read, state, pods[kind.plural]),
                before.known() if before is not None else None,
            )
        wait(
            [one.found for one in self._readings.values() if one.steps is None],
            within.total_seconds(),
        )
        known = {name: one.known() for name, one in self._readings.items()}
        found = {name: steps for name, steps in known.items() if steps is not None}
        return [found[one.name].added_to(one) if one.name in found else one for one in jobs]

    def _is_due(self, name: str, now: float) -> bool:
        known = self._readings.get(name)
        return known is None or (known.found.done() and now - known.began_at >= _FRESH_S)

    def _pods(
        self, kinds: Mapping[str, JobKind]
    ) -> dict[str, "Future[Mapping[str, list[PodState]]]"]:
        """Begin to list the pods of each kind once, before the logs of their jobs are read."""
        return {name: self._pool.submit(self._listed_pods, kind) for name, kind in kinds.items()}

    def _listed_pods(self, kind: JobKind) -> Mapping[str, list[PodState]]:
        found = defaultdict[str, list[PodState]](list)
        for job, pod in pods_of(self._api, kind, self._namespace):
            found[job].append(pod)
        return found

    def _read(self, state: JobState, pods: "Future[Mapping[str, list[PodState]]]") -> JobSteps:
        found = pods.result().get(f"{state.namespace}/{state.name}", ())
        return read_steps(self._api, [one for one in found if state.owns(one)])
