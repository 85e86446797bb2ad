"""Ray's ``RayJob``, as the KubeRay operator 1.4 and later operates it."""

import re
from datetime import datetime
from typing import Final

from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.kubernetes.client.values import format_time, parse_time
from holdfast.adapters.kubernetes.jobs.conditions import FAILED, SUSPENDED
from holdfast.adapters.kubernetes.jobs.containers import exception_or_last_line
from holdfast.adapters.kubernetes.jobs.job_kind import JobKind
from holdfast.adapters.kubernetes.jobs.objects import BY_NAME, JobState, PodRank, described
from holdfast.adapters.kubernetes.jobs.ray_cluster import (
    POD,
    RayClusters,
    cluster_spec_patch,
    groups_of,
    obstacle_of,
)
from holdfast.model.jobs import Ending, JobPhase
from holdfast.model.names import Labels

_CLUSTERS: Final = RayClusters()
_CLUSTER: Final = re.compile(r"(?P<job>.+)-[bcdfghjklmnpqrstvwxz2456789]{5}")
"""Name of the cluster of a job: Kubernetes' random suffixes use no other characters."""

_LOG: Final = re.compile(r"exit code (-?\d{1,4})([,.] [Ll]ast available logs[^\n]{0,80}:\n)")
"""Exit code and heading of the log in the message of a failed driver."""

_COMPLETE: Final = "Complete"
_ANEW: Final = ("Retrying", "")
"""Deployment states of a job whose cluster is being replaced by its operator."""

_SUCCEEDED: Final = "SUCCEEDED"
_STOPPED: Final = "STOPPED"


class RayJobs(JobKind):
    """See ``JobKind``. Its ranks are those of its cluster; the pod that submits the job is none.

    Each start creates another cluster, so pods are matched by the name of the current cluster;
    those of the previous cluster may still exist. Only Ray reports the result of the driver, and
    driver failures count against the ``backoffLimit`` of the RayJob.
    """

    kind: Final = "RayJob"
    api_version: Final = "ray.io/v1"
    plural: Final = "rayjobs"
    pod_selector: Final = POD

    def trimmed(self, job: Json, labels: Labels) -> JobState:
        """See ``JobKind.trimmed``."""
        spec, status = job.get("spec") or {}, job.get("status") or {}
        deployment = status.get("jobDeploymentStatus") or ""
        cluster = spec.get("rayClusterSpec") or {}
        return JobState(
            **described(self, job, labels),
            started_at=parse_time(status.get("startTime")),
            is_suspended=spec.get("suspend") is True,
            is_stop_seen=deployment == SUSPENDED,
            part=status.get("rayClusterName") or "",
            is_restarting=deployment in _ANEW,
            ending=_ending(status),
            groups=groups_of(cluster),
            obstacle=_obstacle(spec) or obstacle_of(cluster),
        )

    def member(self, pod: Json) -> PodRank | None:
        """See ``JobKind.member``."""
        member = _CLUSTERS.member(pod)
        found = _CLUSTER.fullmatch(member.job) if member is not None else None
        if member is None or found is None:
            return None
        return member._replace(job=found["job"], owner=BY_NAME, part=member.job)

    def attempt_patch(
        self, job: Json, annotations: dict[str, str], environment: dict[str, str]
    ) -> Json:
        """See ``JobKind.attempt_patch``."""
        cluster = (job.get("spec") or {}).get("rayClusterSpec") or {}
        return {"spec": {"rayClusterSpec": cluster_spec_patch(cluster, annotations, environment)}}

    def failed(
        self,
        job: Json,  # noqa: ARG002 - a RayJob has no conditions to keep
        reason: str,
        message: str,
        now: datetime,
    ) -> Json:
        """See ``JobKind.failed``."""
        return {
            "status": {
                "jobDeploymentStatus": FAILED,
                "jobStatus": FAILED.upper(),
                "reason": reason,
                "message": message,
                "endTime": format_time(now),
            }
        }


def _ending(status: Json) -> Ending | None:
    deployment, outcome = status.get("jobDeploymentStatus"), status.get("jobStatus")
    if deployment not in (_COMPLETE, FAILED):
        return None
    reason = _driver_failure(str(status.get("message") or status.get("reason") or outcome))
    if outcome == _SUCCEEDED:
        return Ending(outcome=JobPhase.SUCCEEDED, reason=reason)
    is_stopped = outcome == _STOPPED
    return Ending(outcome=JobPhase.CANCELLED if is_stopped else JobPhase.FAILED, reason=reason)


def _driver_failure(message: str) -> str:
    """Return a message with the exception of the driver and its cause, without its log.

    Ray appends up to 20,000 characters of the log to the message of a job.
    """
    found = _LOG.search(message)
    if found is None:
        return message
    from holdfast.decisions.failure_signatures import cause_of  # noqa: PLC0415 - after a failure only

    exception = exception_or_last_line(message[found.end() :])
    cause = cause_of(exception, int(found[1]))
    named = f" ({cause})" if cause is not None else ""
    return f"{message[: found.start(2)]}{named}: {exception}"


def _obstacle(spec: Json) -> str | None:
    """Return what a RayJob lacks for its operator to suspend it, if anything."""
    if not spec.get("rayClusterSpec") or not spec.get("shutdownAfterJobFinishes"):
        return "a RayJob with a rayClusterSpec of its own and shutdownAfterJobFinishes: true"
    if spec.get("submissionMode") == "InteractiveMode":
        return "a RayJob of submissionMode K8sJobMode or HTTPMode"
    return None
