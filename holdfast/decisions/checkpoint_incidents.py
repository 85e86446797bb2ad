"""Incidents of checkpoints that were moved out of the way of a job. Pure."""

import hashlib
import json
import shlex
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from holdfast.kit.serial import to_plain
from holdfast.kit.units import one_line
from holdfast.model.health import Remedy
from holdfast.model.incidents import Incident
from holdfast.model.names import Reason
from holdfast.model.set_aside import SetAside

if TYPE_CHECKING:  # lists of incidents load no policy
    from holdfast.decisions.policy import RemediationPolicy

JOB_LIMIT: Final = 100
"""Maximum number of such incidents per job. The user of the job can write the files that they are
read from, and must not displace the incidents of others (``incidents_kept``)."""

_SHORT: Final = 200
_LONG: Final = 1000
_PROBLEMS: Final = 5
_ATTEMPTS: Final = 20
_LARGEST: Final = 2**53
"""Larger numbers are lost in JSON."""


def quarantine_id(one: SetAside) -> str:
    """Return the ID of the incident: the same whenever and wherever the move is read again.

    Another save of the same name, another job of the same name or number, and another directory
    have another ID.
    """
    facts = (one.job, one.path, one.name, one.saved_at, one.at)
    digest = hashlib.sha256(json.dumps(to_plain(facts)).encode()).hexdigest()[:12]
    return f"checkpoint-{digest}-{one.at:%Y%m%dT%H%M%S}.{one.at.microsecond // 1000:03d}"


def quarantine_incidents(
    job: str,
    moved: Iterable[SetAside],
    stored: Iterable[Incident],
    policy: "RemediationPolicy",
    now: datetime,
) -> tuple[Incident, ...]:
    """Return the incidents to store for a job, at most ``JOB_LIMIT`` with those stored before.

    Nothing is returned for a checkpoint that a person had moved by a selection, and for a move
    that is older than incidents are kept.

    Args:
        job: ``JobSpec.name``.
        moved: checkpoints that were moved for it, as untrusted files report them.
        stored: all incidents that are stored.
        policy: retention of incidents.
        now: the present time.

    """
    stored = tuple(stored)
    known = {one.id for one in stored}
    found: dict[str, Incident] = {}
    for one in moved:
        name = quarantine_id(one)
        if one.state and name not in known and now - one.at < policy.incident_retention:
            found[name] = _incident(name, job, _bounded(one), now)
    free = JOB_LIMIT - sum(one.job == job for one in stored)
    return tuple(found.values())[: max(0, free)]


def next_steps(one: SetAside) -> tuple[str, ...]:
    """Return what an operator does about a moved checkpoint, with commands."""
    if not one.folder:
        return (f"inspect {one.path}",)
    parent, slash, _ = one.name.rpartition("/")
    name = f"{parent}{slash}{one.path.rpartition('/')[2]}"
    command = ["holdfast", "checkpoint"]
    show = shlex.join([*command, "show", one.folder, name])
    back = shlex.join([*command, "release", one.folder, name])
    return (
        f"show details where {one.folder} is mounted: {show}",
        f"put it back if it is good: {back}",
        f"delete {one.path} if it is not needed: Holdfast deletes nothing",
    )


def _incident(name: str, job: str, one: SetAside, now: datetime) -> Incident:
    at = min(one.at, now)
    where = f" at step {one.step}" if one.step is not None else ""
    resumed = f"the job resumes from {one.resumed}" if one.resumed else "the job starts over"
    return Incident(
        id=name,
        job=job,
        checkpoint=one,
        reason=Reason.CHECKPOINT_QUARANTINED,
        remedy=Remedy.NONE,
        message=f"{one.name}{where}: {one.why}; moved to {one.path}; {resumed}",
        detected_at=at,
        quarantined_at=at,
    )


def _bounded(one: SetAside) -> SetAside:
    """Return the evidence with texts and numbers of bounded size: users can write them."""
    return replace(
        one,
        name=one_line(one.name, _SHORT),
        path=one_line(one.path, _LONG),
        why=one_line(one.why, _LONG),
        folder=one_line(one.folder, _LONG),
        state=one_line(one.state, _SHORT),
        depth=one_line(one.depth, _SHORT),
        problems=tuple(one_line(each, _SHORT) for each in one.problems[:_PROBLEMS]),
        step=_number(one.step),
        size=_number(one.size),
        job=one_line(one.job, _SHORT),
        attempt=_number(one.attempt),
        resumed=one_line(one.resumed, _SHORT),
        attempts=tuple(each for each in one.attempts[-_ATTEMPTS:] if _number(each) is not None),
    )


def _number(value: int | None) -> int | None:
    return value if value is not None and 0 <= value < _LARGEST else None
