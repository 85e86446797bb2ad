"""Pods of deep health checks: when their check began, or what they wait for."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from holdfast.adapters.kubernetes.checks.check_jobs import CONTAINER, LABELS, CheckJob
from holdfast.adapters.kubernetes.checks.check_warnings import ObjectWarnings
from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.kubernetes.client.reflector import Reflector
from holdfast.adapters.kubernetes.client.values import EPOCH, parse_time
from holdfast.kit.units import one_line
from holdfast.model.names import PodPhase

LONGEST: Final = 300
"""Maximum characters of a reason; kubelets quote whole answers of registries."""

_STARTING: Final = frozenset(("ContainerCreating", "PodInitializing"))
"""Reasons of a waiting container that do not name what it waits for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPod:
    """State of a pod that runs a check."""

    uid: str
    job_uid: str
    created_at: datetime
    """By the clock of the API server."""

    has_begun: bool
    """Whether the container of the check was started."""

    has_ended: bool
    """Whether that container, or the pod, has ended."""

    started_at: datetime | None
    """Start of that container by the clock of the node, which may be wrong."""

    cause: str
    """What the pod waits for, or why it was rejected; empty if its status does not name it."""


def check_pod(pod: Json) -> CheckPod:
    """Return the state of a pod of a check; containers that others inject do not count."""
    about, status = pod["metadata"], pod.get("status") or {}
    owners = about.get("ownerReferences") or ()
    state = _state(status.get("containerStatuses") or (), CONTAINER)
    ran = state.get("running") or state.get("terminated") or {}
    return CheckPod(
        uid=about.get("uid", ""),
        job_uid=next((one.get("uid", "") for one in owners if one.get("controller")), ""),
        created_at=parse_time(about.get("creationTimestamp")) or EPOCH,
        has_begun="running" in state or "terminated" in state,
        has_ended="terminated" in state or status.get("phase") == PodPhase.FAILED,
        started_at=parse_time(ran.get("startedAt")),
        cause=one_line(_cause(about, status), LONGEST),
    )


def _state(statuses: Iterable[Json], container: str) -> Mapping[str, Json]:
    found = (one.get("state") or {} for one in statuses if one.get("name") == container)
    state: Mapping[str, Json] = next(found, {})
    return state


def _cause(about: Json, status: Json) -> str:
    if status.get("phase") == PodPhase.FAILED:
        return _named(status)
    if about.get("deletionTimestamp"):
        return "it is being deleted"
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return _named(condition)
    return next(_waiting_containers(status), "")


def _waiting_containers(status: Json) -> Iterator[str]:
    for one in status.get("initContainerStatuses") or ():
        state = one.get("state") or {}
        if "running" in state and not one.get("started"):
            yield f"init container {one.get('name')} has not ended"
        elif _is_blocked(state):
            yield f"init container {one.get('name')}: {_named(state['waiting'])}"
    for one in status.get("containerStatuses") or ():
        state = one.get("state") or {}
        if _is_blocked(state):
            yield _named(state["waiting"])


def _is_blocked(state: Json) -> bool:
    return bool(state.get("waiting")) and state["waiting"].get("reason") not in _STARTING


def _named(problem: Json) -> str:
    parts = (str(problem.get(key) or "") for key in ("reason", "message"))
    return ": ".join(part for part in parts if part)


class CheckPods:
    """Pods of the checks of one namespace, and since when this process has known their state.

    Clocks of nodes may be wrong, and that of this machine may be set: the start of a container
    counts only if it lies between the last time at which the check was seen to wait, or the
    creation of its pod, and the first time at which it was seen to run.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        changed: Callable[[], None],
        *,
        warn_every: timedelta,
    ) -> None:
        selector = ",".join(f"{key}={value}" for key, value in LABELS.items())
        self.reflector = Reflector(
            api,
            f"/api/v1/namespaces/{namespace}/pods",
            trim=check_pod,
            changed=changed,
            params={"labelSelector": selector},
        )
        self._warnings = ObjectWarnings(api, namespace, warn_every)
        self._pods: dict[str, CheckPod] = {}
        self._waited_at: dict[str, float] = {}
        self._ran_at: dict[str, float] = {}
        self._now: datetime = EPOCH
        self._clock = 0.0

    def refresh(self, jobs: Iterable[CheckJob], now: datetime) -> None:
        """Read the cached pods of the Jobs; ``now`` is the present time."""
        self._now, self._clock = now, time.monotonic()
        pods = self.reflector.objects().values()
        self._pods = {pod.job_uid: pod for pod in sorted(pods, key=lambda one: one.created_at)}
        known = {pod.uid for pod in pods}
        self._waited_at = {uid: at for uid, at in self._waited_at.items() if uid in known}
        self._ran_at = {uid: at for uid, at in self._ran_at.items() if uid in known}
        for pod in pods:
            if pod.has_begun:
                self._ran_at.setdefault(pod.uid, self._clock)
            else:
                self._waited_at[pod.uid] = self._clock
        self._warnings.start_round(keep={*known, *(job.uid for job in jobs)})

    def began_at(self, job: CheckJob) -> datetime | None:
        """Return when the check of a Job began; None if it has not."""
        pod = self._pods.get(job.uid)
        if pod is None or pod.uid not in self._ran_at:
            return None
        seen = self._time(self._ran_at[pod.uid])
        waited_at = self._waited_at.get(pod.uid)
        earliest = pod.created_at if waited_at is None else self._time(waited_at)
        if pod.started_at is not None and earliest <= pod.started_at <= seen:
            return pod.started_at
        return seen

    def has_ended(self, job: CheckJob) -> bool:
        """Whether the pod of a Job shows that its check has ended."""
        pod = self._pods.get(job.uid)
        return pod is not None and pod.has_ended

    def pending(self, job: CheckJob) -> str:
        """Return why the check of a Job that has not ended has not begun; empty if it runs."""
        if job.is_suspended:
            return "its Job is suspended"
        pod = self._pods.get(job.uid)
        if pod is None:
            return _with_cause("its Job has no pod", self._warnings.last(job.uid))
        if pod.has_begun:
            return ""
        return _with_cause("its pod waits", pod.cause or self._warnings.last(pod.uid))

    def _time(self, at: float) -> datetime:
        return self._now - timedelta(seconds=self._clock - at)


def _with_cause(what: str, cause: str) -> str:
    return f"{what} ({cause})" if cause else what
