"""``JobSet``: indexed Jobs that belong together, as the JobSet controller runs them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from holdfast.adapters.kubernetes.api_errors import Json
from holdfast.adapters.kubernetes.jobs.indexed_job import INDEX, INDEXED, SET
from holdfast.adapters.kubernetes.jobs.objects import (
    FAILED,
    QUEUE,
    JobState,
    Member,
    annotated,
    condition_of,
    ending_of,
    group_of,
    owner_of,
)
from holdfast.adapters.kubernetes.jobs.templates import stamped_template
from holdfast.adapters.kubernetes.node_mark import stamp
from holdfast.adapters.kubernetes.nodes import EPOCH, time_of
from holdfast.model.names import Labels

KIND: Final = "JobSet"

_UID: Final = "jobset.sigs.k8s.io/jobset-uid"
_JOB: Final = "jobset.sigs.k8s.io/job-global-index"
_JOBS: Final = "jobset.sigs.k8s.io/global-replicas"
_SUSPENDED: Final = "Suspended"


class JobSets:
    """See ``JobKind``.

    Pods of Jobs with several each are counted across: all with index 0 come first. Containers
    cannot be changed, so that the attempt reaches them as an annotation only.
    """

    api_version: Final = "jobset.x-k8s.io/v1alpha2"
    plural: Final = "jobsets"
    pod_selector: Final = SET

    def trimmed(self, job: Json, labels: Labels) -> JobState:
        """See ``JobKind.trimmed``."""
        metadata, spec = job["metadata"], job.get("spec") or {}
        return JobState(
            kind=KIND,
            api_version=self.api_version,
            plural=self.plural,
            namespace=metadata["namespace"],
            name=metadata["name"],
            uid=metadata["uid"],
            resource_version=metadata.get("resourceVersion", ""),
            created_at=time_of(metadata.get("creationTimestamp")) or EPOCH,
            started_at=_resumed_at(job),
            is_suspended=spec.get("suspend") is True,
            is_stop_seen=condition_of(job, _SUSPENDED) is not None,
            is_leaving=bool(metadata.get("deletionTimestamp")),
            ending=ending_of(job, "Completed"),
            groups=tuple(
                group_of(
                    replicated.get("replicas", 1) * _job_of(replicated).get("parallelism", 1),
                    _job_of(replicated).get("template") or {},
                )
                for replicated in _replicated(job)
            ),
            queue=(metadata.get("labels") or {}).get(QUEUE),
            obstacle=_obstacle(job),
            **annotated(job, labels),
        )

    def member(self, pod: Json) -> Member | None:
        """See ``JobKind.member``."""
        labels: Mapping[str, str] = pod["metadata"].get("labels") or {}
        name, uid = labels.get(SET), labels.get(_UID)
        numbers = [labels.get(key, "") for key in (INDEX, _JOBS, _JOB)]
        if not name or not uid or not all(number.isdecimal() for number in numbers):
            return None
        index, jobs, job = map(int, numbers)
        return Member(job=name, rank=index * jobs + job, container="", owner=uid)

    def suspension(self, *, is_suspended: bool) -> Json:
        """See ``JobKind.suspension``."""
        return {"spec": {"suspend": is_suspended}}

    def stamped(
        self,
        job: Json,
        annotations: dict[str, str],
        environment: dict[str, str],  # noqa: ARG002 - containers are not to be changed
    ) -> Json:
        """See ``JobKind.stamped``."""
        stamped = [_stamped(replicated, annotations) for replicated in _replicated(job)]
        return {"spec": {"replicatedJobs": stamped}} if stamped else {}

    def failed(self, job: Json, reason: str, message: str, now: datetime) -> Json:
        """See ``JobKind.failed``."""
        condition = {
            "type": FAILED,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": stamp(now),
        }
        conditions = (job.get("status") or {}).get("conditions") or ()
        kept = [one for one in conditions if one.get("type") != FAILED]
        return {"status": {"conditions": [*kept, condition], "terminalState": FAILED}}


def _replicated(job: Json) -> Sequence[Json]:
    return (job.get("spec") or {}).get("replicatedJobs") or ()


def _job_of(replicated: Json) -> Json:
    """The ``spec`` of its Jobs."""
    return (replicated.get("template") or {}).get("spec") or {}


def _stamped(replicated: Json, annotations: dict[str, str]) -> Json:
    """All of it, as a merge patch replaces a list as a whole."""
    template, spec = replicated.get("template") or {}, _job_of(replicated)
    pods = spec.get("template") or {}
    metadata = pods.get("metadata") or {}
    added = stamped_template(pods, annotations, {})["metadata"]["annotations"]
    marked = {**metadata, "annotations": {**(metadata.get("annotations") or {}), **added}}
    spec = {**spec, "template": {**pods, "metadata": marked}}
    return {**replicated, "template": {**template, "spec": spec}}


def _resumed_at(job: Json) -> datetime | None:
    """A set that was never suspended does not say since when it runs."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    found = (one for one in conditions if one.get("type") == _SUSPENDED)
    return next((time_of(one.get("lastTransitionTime")) for one in found), None)


def _obstacle(job: Json) -> str | None:
    """Jobs that others wait for do not run again, so that ranks would be missed for ever."""
    for replicated in _replicated(job):
        spec = _job_of(replicated)
        counts = {spec.get(key, 1) for key in ("completions", "parallelism")}
        if spec.get("completionMode", INDEXED) != INDEXED or len(counts) > 1:
            return "Jobs of completionMode Indexed, with as many completions as parallelism"
        if replicated.get("dependsOn"):
            return "a JobSet whose Jobs start together, without dependsOn"
    return owner_of(job)
