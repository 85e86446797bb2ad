"""Indexed ``Job`` of Kubernetes, which its Job controller operates."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.kubernetes.client.values import format_time, parse_time
from holdfast.adapters.kubernetes.jobs.conditions import (
    FAILED,
    SUSPENDED,
    condition_of,
    ending_of,
    with_failure,
)
from holdfast.adapters.kubernetes.jobs.job_kind import JobKind
from holdfast.adapters.kubernetes.jobs.objects import JobState, PodRank, described, group_of
from holdfast.adapters.kubernetes.jobs.templates import template_patch
from holdfast.model.names import Labels

INDEX: Final = "batch.kubernetes.io/job-completion-index"

_JOB: Final = "batch.kubernetes.io/job-name"
SET: Final = "jobset.sigs.k8s.io/jobset-name"
INDEXED: Final = "Indexed"
_FAILURE: Final = ("FailureTarget", FAILED)
"""Conditions of a failed job, in the order in which the Job controller sets them."""


class IndexedJobs(JobKind):
    """See ``JobKind``. A pod's index is its rank.

    The containers of a Job are immutable, so the attempt reaches them only as an annotation;
    ``fieldRef`` exposes it as a variable. Pod failures also count against ``backoffLimit``.
    """

    kind: Final = "Job"
    api_version: Final = "batch/v1"
    plural: Final = "jobs"
    pod_selector: Final = f"{_JOB},{INDEX},!{SET}"

    def trimmed(self, job: Json, labels: Labels) -> JobState:
        """See ``JobKind.trimmed``."""
        status, spec = job.get("status") or {}, job.get("spec") or {}
        template = spec.get("template") or {}
        policy = (template.get("spec") or {}).get("restartPolicy") or ""
        return JobState(
            **described(self, job, labels),
            started_at=parse_time(status.get("startTime")),
            is_suspended=spec.get("suspend") is True,
            is_stop_seen=_is_stopped(job),
            ending=ending_of(job, "Complete"),
            groups=(group_of(spec.get("parallelism", 1), template, policy),),
            obstacle=_obstacle(spec),
            completed=_completed(status.get("completedIndexes") or ""),
        )

    def member(self, pod: Json) -> PodRank | None:
        """See ``JobKind.member``."""
        labels: Mapping[str, str] = pod["metadata"].get("labels") or {}
        job, index = labels.get(_JOB), str(labels.get(INDEX))
        if not job or not index.isdecimal():
            return None
        return PodRank(job=job, rank=int(index), container="")

    def attempt_patch(
        self,
        job: Json,
        annotations: dict[str, str],
        environment: dict[str, str],  # noqa: ARG002 - containers are immutable
    ) -> Json:
        """See ``JobKind.attempt_patch``.

        Nothing can be changed where the controller keeps the start time of a suspended Job, as
        Kubernetes before 1.35 does.
        """
        if (job.get("status") or {}).get("startTime"):
            return {}
        template = (job.get("spec") or {}).get("template") or {}
        return {"spec": {"template": template_patch(template, annotations, {})}}

    def failed(self, job: Json, reason: str, message: str, now: datetime) -> Json:
        """See ``JobKind.failed``."""
        status, times = job.get("status") or {}, ("lastProbeTime", "lastTransitionTime")
        conditions = with_failure(job, reason, message, now, kinds=_FAILURE, times=times)
        started_at = status.get("startTime") or format_time(now)
        return {"status": {"conditions": conditions, "startTime": started_at}}


def _obstacle(spec: Json) -> str | None:
    if spec.get("completionMode") != INDEXED or spec.get("completions") != spec.get("parallelism"):
        return "a Job of completionMode Indexed, with as many completions as parallelism"
    return None


def _completed(indexes: str) -> frozenset[int]:
    """Return the indexes in text such as ``0,2-4``."""
    spans = (one.partition("-") for one in indexes.split(",") if one)
    return frozenset(
        index for first, _, last in spans for index in range(int(first), int(last or first) + 1)
    )


def _is_stopped(job: Json) -> bool:
    """Whether the controller has accounted for all pods; a Job cannot be set failed before."""
    status = job.get("status") or {}
    uncounted = any((status.get("uncountedTerminatedPods") or {}).values())
    is_suspended = condition_of(job, SUSPENDED) is not None
    return is_suspended and not status.get("terminating") and not uncounted
