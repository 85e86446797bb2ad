"""Jobs of deep health checks: their names, and the objects that are created. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.kubernetes.client.values import digest, parse_time
from holdfast.adapters.kubernetes.settings import CheckSettings
from holdfast.model.deep_checks import (
    KINDS_VARIABLE,
    PEER_VARIABLE,
    RESULT_VARIABLE,
    TOKEN_VARIABLE,
)
from holdfast.model.names import DeepCheck
from holdfast.model.nodes import NodeRecord, Pairing, Phase

RETENTION: Final = timedelta(days=1)
"""Retention of a Job that has ended, including the log of its pod."""

_TERMINATION_MESSAGE: Final = "/dev/termination-log"
"""Path whose content becomes part of the container's status, at most 4 KiB."""

_INDEX: Final = "JOB_COMPLETION_INDEX"
"""Variable with the role of each end of a pair test, as in the pods of an indexed Job."""

_WRITABLE: Final = {"tmp": "/tmp", "var-tmp": "/var/tmp"}  # noqa: S108 - volumes of the pod alone
"""Volumes of a restricted check; the test of the disk writes to ``/var/tmp``."""

LABELS: Final = {
    "app.kubernetes.io/managed-by": "holdfast",
    "app.kubernetes.io/component": "deep-health-check",
}
"""Labels of the Jobs and of their pods."""

CONTAINER: Final = "check"
"""Name of the container that runs the check; admission webhooks may add others to its pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckJob:
    """State of a Job that runs a check."""

    name: str
    uid: str
    passed: bool | None
    """Whether it passed; None while it runs."""

    is_suspended: bool
    """Whether its pod is not created until somebody resumes it, such as a queue."""

    ended_at: datetime | None
    message: str


class PairIds(NamedTuple):
    """Identity of one test between two nodes."""

    node: str
    """Name of the node that measures."""

    partner: str
    """Name of the node that listens."""

    test_id: str

    @property
    def listens(self) -> str:
        """Name of the Job on the node that listens."""
        return f"holdfast-pair-{digest(*self)}-0"

    @property
    def measures(self) -> str:
        """Name of the Job on the node that measures."""
        return f"holdfast-pair-{digest(*self)}-1"


def job_name(node: str, check_id: str) -> str:
    """Return the name of the Job of a check."""
    return f"holdfast-check-{digest(node, check_id)}"


def jobs_of(node: str, record: NodeRecord) -> tuple[str, ...]:
    """Return the names of the Jobs that a node's record refers to."""
    if record.phase is not Phase.CHECKING:
        return ()
    if record.pairing is None:
        return (job_name(node, record.phase_since.isoformat()),)
    ids = pair_ids(node, record.pairing)
    return (ids.listens, ids.measures) if ids is not None else ()


def pair_ids(node: str, pairing: Pairing | None) -> PairIds | None:
    """Return the identity of the running test in a node's record; None if there is none."""
    if pairing is None or pairing.began_at is None:
        return None
    return PairIds(node, pairing.partner, pairing.began_at.isoformat())


def job_object(
    node: str, check_id: str, settings: CheckSettings, kinds: tuple[DeepCheck, ...] = ()
) -> Json:
    """Return the Job of the check of one node."""
    more = {KINDS_VARIABLE: " ".join(kinds)} if kinds else {}
    return _job(job_name(node, check_id), node, settings.command, settings, more)


def pair_objects(
    ids: PairIds, address: str, token: str, settings: CheckSettings
) -> tuple[Json, Json]:
    """Return the Jobs of a test between two nodes: the listening one and the measuring one.

    Their pods use the host network, which is what the test measures and whose address is known.
    """
    both = {PEER_VARIABLE: address, TOKEN_VARIABLE: token}
    listens, measures = (
        _job(name, node, settings.pair_command, settings, {_INDEX: str(rank), **both})
        for rank, (name, node) in enumerate(((ids.listens, ids.partner), (ids.measures, ids.node)))
    )
    for job in (listens, measures):
        job["spec"]["template"]["spec"]["hostNetwork"] = True
    return listens, measures


def _job(
    name: str,
    node: str,
    command: tuple[str, ...],
    settings: CheckSettings,
    variables: Mapping[str, str],
) -> Json:
    """Return a Job that ends at the first failure: a node that fails once is unfit."""
    given = {"NODE_NAME": node, RESULT_VARIABLE: _TERMINATION_MESSAGE, **variables}
    container: Json = {
        "name": CONTAINER,
        "image": settings.image,
        "command": list(command),
        "env": [{"name": key, "value": value} for key, value in given.items()],
        "resources": {"limits": dict(settings.resources)},
        "terminationMessagePath": _TERMINATION_MESSAGE,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    pod: Json = {
        "nodeName": node,  # bypasses the scheduler, which must not use this node
        "tolerations": [{"operator": "Exists"}],
        "restartPolicy": "Never",
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    own = command[:1] == ("holdfast",)
    if own if settings.restricted is None else settings.restricted:
        _restrict(pod, container)
    if settings.service_account:
        pod["serviceAccountName"] = settings.service_account
    else:
        pod["automountServiceAccountToken"] = False
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": LABELS},
        "spec": {
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": int(RETENTION.total_seconds()),
            "template": {"metadata": {"labels": LABELS}, "spec": pod},
        },
    }


def _restrict(pod: Json, container: Json) -> None:
    """Take from a container what the checks do not need; volumes replace its writable root."""
    container["securityContext"] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    container["workingDir"] = _WRITABLE["tmp"]  # stress-ng needs a writable one
    container["volumeMounts"] = [
        {"name": name, "mountPath": path} for name, path in _WRITABLE.items()
    ]
    pod["volumes"] = [{"name": name, "emptyDir": {}} for name in _WRITABLE]


def token_of(job: Json) -> str:
    """Return the token of a test between nodes from one of its Jobs; empty without one."""
    [container] = job["spec"]["template"]["spec"]["containers"]
    return next((one["value"] for one in container["env"] if one["name"] == TOKEN_VARIABLE), "")


def check_job(job: Json) -> CheckJob:
    """Return the state of a Job. It has one pod and no retry, so one failure ends it."""
    status = job.get("status") or {}
    conditions = [one for one in status.get("conditions") or () if one.get("status") == "True"]
    last = conditions[-1] if conditions else {}
    has_failed = bool(status.get("failed"))
    is_over = has_failed or last.get("type") == "Complete"
    return CheckJob(
        name=job["metadata"]["name"],
        uid=job["metadata"].get("uid", ""),
        passed=not has_failed if is_over else None,
        is_suspended=bool((job.get("spec") or {}).get("suspend")),
        ended_at=parse_time(last.get("lastTransitionTime")),
        message=last.get("message", ""),
    )
