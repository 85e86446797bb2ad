"""How checks ended, as their pods record it. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from holdfast.adapters.kubernetes.checks.check_jobs import CONTAINER
from holdfast.adapters.kubernetes.checks.check_pods import check_pod
from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.telemetry.check_summary import read_summary
from holdfast.model.node_checks import CheckSummary

_NOT_RUN: Final = frozenset((2, 70, 126, 127))
"""Exit codes of a program that was called incorrectly, has a bug, or cannot be executed."""

_KILLED: Final = 128
"""Lowest exit code of a container that was killed by a signal or could not be started."""

_DISRUPTED: Final = "DisruptionTarget"
"""Condition of a pod that is ended by an eviction, a preemption or a shutdown of its node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckEnd:
    """End of a check, as read from its pod."""

    result: CheckSummary
    status: int | None
    """Exit code; None if the container of the check did not end by itself, or its pod is gone."""

    at: datetime
    """Time at which the end was read."""

    noticed_at: float
    """The same by the monotonic clock, in seconds."""

    @property
    def is_no_verdict(self) -> bool:
        """Whether the end is inconclusive: the check was killed or could not be executed."""
        return self.status is None or self.status in _NOT_RUN or self.status >= _KILLED


def check_end(pods: Iterable[Json], job_uid: str, at: datetime, noticed_at: float) -> CheckEnd:
    """Return the end of the check of a Job.

    Args:
        pods: pods that may be those of the Job; an earlier Job may have had the same name.
        job_uid: UID of the Job.
        at: the present time.
        noticed_at: the same by the monotonic clock.

    """
    lost = CheckEnd(result=CheckSummary(), status=None, at=at, noticed_at=noticed_at)
    for pod in pods:
        parsed = check_pod(pod)
        if parsed.job_uid != job_uid:
            continue
        lost = replace(lost, result=CheckSummary(summary=parsed.cause))
        for ended in _ended(pod):
            status = int(ended.get("exitCode", 0))
            if status and _is_disrupted(pod):
                return lost  # its exit code may be its reaction to SIGTERM
            result = read_summary(str(ended.get("message", "")))
            if not result.summary:
                result = replace(result, summary=f"exited with code {status}")
            return replace(lost, result=result, status=status)
    return lost


def _ended(pod: Json) -> Iterator[Json]:
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        ended = (container.get("state") or {}).get("terminated")
        if container.get("name") == CONTAINER and ended is not None:
            yield ended


def _is_disrupted(pod: Json) -> bool:
    """Whether somebody else ended a pod: it was deleted, evicted, or its node was shut down."""
    status = pod.get("status") or {}
    conditions = status.get("conditions") or ()
    return (
        bool(pod["metadata"].get("deletionTimestamp"))
        or bool(status.get("reason"))
        or any(one.get("type") == _DISRUPTED and one.get("status") == "True" for one in conditions)
    )
