"""``JobSet``, a group of indexed Jobs, as the JobSet controller operates it."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.kubernetes.client.values import format_time
from holdfast.adapters.kubernetes.jobs.conditions import (
    FAILED,
    SUSPENDED,
    changed_at,
    condition_of,
    conditions_of,
    ending_of,
    with_failure,
)
from holdfast.adapters.kubernetes.jobs.indexed_job import INDEX, INDEXED, SET
from holdfast.adapters.kubernetes.jobs.job_kind import JobKind
from holdfast.adapters.kubernetes.jobs.objects import JobState, PodRank, described, group_of
from holdfast.adapters.kubernetes.jobs.templates import with_attempt_metadata
from holdfast.model.jobs import JobRecord
from holdfast.model.names import Labels

_UID: Final = "jobset.sigs.k8s.io/jobset-uid"
_JOB: Final = "jobset.sigs.k8s.io/job-global-index"
_JOBS: Final = "jobset.sigs.k8s.io/global-replicas"
_RESTARTED: Final = "HoldfastRestarted"
"""Condition of a set whose restart counter Holdfast incremented; only Holdfast reads it."""


class JobSetPods(JobKind):
    """See ``JobKind``: the part of a kind of which a JobSet owns the pods.

    If Jobs have several pods each, ranks run across the Jobs: all pods with index 0 come first.
    Containers are immutable, so the attempt reaches them only as an annotation.
    """

    pod_selector: Final = SET

    def member(self, pod: Json) -> PodRank | None:
        """See ``JobKind.member``."""
        labels: Mapping[str, str] = pod["metadata"].get("labels") or {}
        name, uid = labels.get(SET), labels.get(_UID)
        numbers = [labels.get(key, "") for key in (INDEX, _JOBS, _JOB)]
        if not name or not uid or not all(number.isdecimal() for number in numbers):
            return None
        index, jobs, job = map(int, numbers)
        return PodRank(job=name, rank=index * jobs + job, container="", owner=uid)

    def attempt_patch(
        self,
        job: Json,
        annotations: dict[str, str],
        environment: dict[str, str],  # noqa: ARG002 - containers are immutable
    ) -> Json:
        """See ``JobKind.attempt_patch``."""
        attempt_patch = [_patched(replicated, annotations) for replicated in _replicated(job)]
        return {"spec": {"replicatedJobs": attempt_patch}} if attempt_patch else {}

    def renewed(self, job: Json, record: JobRecord) -> Json:
        """See ``JobKind.renewed``.

        The JobSet controller recreates Jobs whose restart number is below that of the set, even
        Jobs that have ended. Its own restart limit uses another counter. A condition records the
        attempt, so that a controller that takes over during a restart does not repeat it.
        """
        attempt = _last_error(record)
        before = condition_of(job, _RESTARTED)
        if before is not None and before.get("message") == attempt:
            return {}
        mark = {
            "type": _RESTARTED,
            "status": "True",
            "reason": f"Attempt{record.attempt}",
            "message": attempt,
            "lastTransitionTime": format_time(record.phase_since),
        }
        others = [one for one in conditions_of(job) if one.get("type") != _RESTARTED]
        restarts = ((job.get("status") or {}).get("restarts") or 0) + 1
        return {"status": {"restarts": restarts, "conditions": [*others, mark]}}


class JobSets(JobSetPods):
    """See ``JobKind``."""

    kind: Final = "JobSet"
    api_version: Final = "jobset.x-k8s.io/v1alpha2"
    plural: Final = "jobsets"

    def trimmed(self, job: Json, labels: Labels) -> JobState:
        """See ``JobKind.trimmed``."""
        return JobState(
            **described(self, job, labels),
            started_at=changed_at(job, SUSPENDED),  # a new set has no time of its start
            is_suspended=(job.get("spec") or {}).get("suspend") is True,
            is_stop_seen=condition_of(job, SUSPENDED) is not None,
            ending=ending_of(job, "Completed"),
            groups=tuple(
                group_of(
                    replicated.get("replicas", 1) * _job_of(replicated).get("parallelism", 1),
                    _job_of(replicated).get("template") or {},
                )
                for replicated in _replicated(job)
            ),
            obstacle=_obstacle(job),
        )

    def failed(self, job: Json, reason: str, message: str, now: datetime) -> Json:
        """See ``JobKind.failed``."""
        conditions = with_failure(job, reason, message, now)
        return {"status": {"conditions": conditions, "terminalState": FAILED}}


def _last_error(record: JobRecord) -> str:
    """Key of a restart: equal from every controller, and never used again by another job."""
    over = f" after {record.attempts[-1].stopped_at.isoformat()}" if record.attempts else ""
    return f"attempt {record.attempt}{over}"


def _replicated(job: Json) -> Sequence[Json]:
    return (job.get("spec") or {}).get("replicatedJobs") or ()


def _job_of(replicated: Json) -> Json:
    """Return the ``spec`` of a replicated job's Jobs."""
    return (replicated.get("template") or {}).get("spec") or {}


def _patched(replicated: Json, annotations: dict[str, str]) -> Json:
    """Return the whole replicated job, since a merge patch replaces lists as a whole."""
    template, spec = replicated.get("template") or {}, _job_of(replicated)
    spec = {**spec, "template": with_attempt_metadata(spec.get("template") or {}, annotations, {})}
    return {**replicated, "template": {**template, "spec": spec}}


def _obstacle(job: Json) -> str | None:
    for replicated in _replicated(job):
        spec = _job_of(replicated)
        counts = {spec.get(key, 1) for key in ("completions", "parallelism")}
        if spec.get("completionMode", INDEXED) != INDEXED or len(counts) > 1:
            return "Jobs of completionMode Indexed, with as many completions as parallelism"
    return None
