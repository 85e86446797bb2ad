"""State of a job by the conditions that its operator or Holdfast set."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.kubernetes.client.values import format_time, parse_time
from holdfast.model.jobs import Ending, JobPhase
from holdfast.model.names import PodPhase

FAILED: Final = PodPhase.FAILED.value
"""Condition of a job that has failed permanently; spelled like the phase of a pod."""

SUSPENDED: Final = "Suspended"


WAITS: Final = "JobWaiting"
"""Reason of Kubernetes Events about a job that waits for nodes."""

SUSPENDED_PHASES: Final = frozenset((JobPhase.STOPPING, JobPhase.WAITING))
"""Phases in which Holdfast keeps a job suspended."""


def conditions_of(job: Json) -> Sequence[Json]:
    """Return all conditions of a job."""
    return (job.get("status") or {}).get("conditions") or ()


def condition_of(job: Json, kind: str) -> Json | None:
    """Return the condition of a type if it is True, else None."""
    return next(
        (c for c in conditions_of(job) if c.get("type") == kind and c.get("status") == "True"), None
    )


def changed_at(job: Json, kind: str) -> datetime | None:
    """Time of the last transition of a condition; None if there is none."""
    found = (c for c in conditions_of(job) if c.get("type") == kind)
    return next((parse_time(c.get("lastTransitionTime")) for c in found), None)


def ending_of(job: Json, succeeded: str = "") -> Ending | None:
    """How a job has ended, by its conditions; ``succeeded`` is the type that means success."""
    for kind, outcome in ((succeeded, JobPhase.SUCCEEDED), (FAILED, JobPhase.FAILED)):
        condition = condition_of(job, kind)
        if condition is not None:
            reason = str(condition.get("message") or condition.get("reason") or kind)
            return Ending(outcome=outcome, reason=reason)
    return None


def with_failure(
    job: Json,
    reason: str,
    message: str,
    now: datetime,
    *,
    kinds: Sequence[str] = (FAILED,),
    times: Sequence[str] = ("lastTransitionTime",),
) -> list[Json]:
    """Return the conditions of a job that has failed.

    Args:
        job: the whole object.
        reason: reason of the condition, in CamelCase.
        message: message of the condition.
        now: transition time, set in the fields of ``times``.
        kinds: types of the conditions by which its operator considers it failed.
        times: names of the time fields of a condition of this kind of job.

    """
    reported = {"status": "True", "reason": reason, "message": message}
    others = [one for one in conditions_of(job) if one.get("type") not in kinds]
    return [
        *others,
        *({"type": kind, **reported, **dict.fromkeys(times, format_time(now))} for kind in kinds),
    ]
