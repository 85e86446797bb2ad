"""Deep health checks: Jobs that are pinned to their node."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from holdfast.adapters.kubernetes.api import Api
from holdfast.adapters.kubernetes.api_errors import AlreadyExists, Json, NotFound
from holdfast.adapters.kubernetes.encoding import digest
from holdfast.adapters.kubernetes.nodes import time_of
from holdfast.adapters.kubernetes.reflector import Reflector
from holdfast.adapters.kubernetes.settings import CheckSettings
from holdfast.model.errors import BackendError
from holdfast.model.nodes import CheckResult

KEPT: Final = timedelta(days=1)
"""How long a Job that has ended remains, with the log of its pod."""

_LABELS: Final = {
    "app.kubernetes.io/managed-by": "holdfast",
    "app.kubernetes.io/component": "deep-health-check",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckJob:
    """A Job, as far as it matters."""

    name: str
    uid: str
    passed: bool | None
    """None while it runs."""

    ended_at: datetime | None
    message: str


def job_name(node: str, check_id: str) -> str:
    """The Job of one check."""
    return f"holdfast-check-{digest(node, check_id)}"


def job_object(node: str, check_id: str, settings: CheckSettings) -> Json:
    """The Job to create. It ends at the first failure: a node that fails once is not fit."""
    container: Json = {
        "name": "check",
        "image": settings.image,
        "command": list(settings.command),
        "env": [{"name": "NODE_NAME", "value": node}],
        "resources": {"limits": dict(settings.resources)},
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    pod: Json = {
        "nodeName": node,  # past the scheduler, which is not to give the node to anybody
        "tolerations": [{"operator": "Exists"}],
        "restartPolicy": "Never",
        "containers": [container],
    }
    if settings.service_account:
        pod["serviceAccountName"] = settings.service_account
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": job_name(node, check_id), "labels": _LABELS},
        "spec": {
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": int(KEPT.total_seconds()),
            "template": {"metadata": {"labels": _LABELS}, "spec": pod},
        },
    }


def check_job(job: Json) -> CheckJob:
    """Read a Job. It has one pod and no second try, so one failure is the end."""
    status = job.get("status") or {}
    conditions = [one for one in status.get("conditions") or () if one.get("status") == "True"]
    last = conditions[-1] if conditions else {}
    has_failed = bool(status.get("failed"))
    is_over = has_failed or last.get("type") == "Complete"
    return CheckJob(
        name=job["metadata"]["name"],
        uid=job["metadata"].get("uid", ""),
        passed=not has_failed if is_over else None,
        ended_at=time_of(last.get("lastTransitionTime")),
        message=last.get("message", ""),
    )


class DeepChecks:
    """Starts checks and reads how they ended; methods that call raise ``BackendError``."""

    def __init__(
        self, api: Api, namespace: str, settings: CheckSettings, changed: Callable[[], None]
    ) -> None:
        self._api = api
        self._settings = settings
        self._namespace = namespace
        self._folder = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        self._details: dict[str, str] = {}
        selector = ",".join(f"{key}={value}" for key, value in _LABELS.items())
        self._reflector = Reflector(
            api,
            self._folder,
            trim=check_job,
            changed=changed,
            params={"labelSelector": selector},
        )

    @property
    def reflector(self) -> Reflector[CheckJob]:
        """What keeps the copy up to date; its owner starts and stops it."""
        return self._reflector

    def begin(self, node: str, check_id: str) -> None:
        """Start a check, unless it was started already."""
        if not self._settings.image:
            raise BackendError("there is no deep health check: set the image of the check")
        if self._key(node, check_id) in self._reflector.objects():
            return
        try:
            new = job_object(node, check_id, self._settings)
            self._reflector.learn(self._api.create(self._folder, new, repeatable=True))
        except AlreadyExists:
            return

    def result(self, node: str, check_id: str) -> CheckResult | None:
        """How a check ended; None while it runs."""
        job = self._reflector.objects().get(self._key(node, check_id))
        if job is None or job.passed is None or job.ended_at is None:
            return None
        detail = "" if job.passed else self._detail(job)
        return CheckResult(passed=job.passed, ended_at=job.ended_at, detail=detail)

    def end_others(self, expected: Mapping[str, str]) -> None:
        """End the checks that still run though nobody waits for them.

        Args:
            expected: ``node -> check_id`` of those that are waited for.

        """
        waited_for = {job_name(node, check_id) for node, check_id in expected.items()}
        for job in self._reflector.objects().values():
            if job.passed is None and job.name not in waited_for:
                try:
                    path = f"{self._folder}/{job.name}"
                    self._api.delete(path, uid=job.uid, propagation="Background")
                except NotFound:
                    continue

    def _key(self, node: str, check_id: str) -> str:
        return f"{self._namespace}/{job_name(node, check_id)}"

    def _detail(self, job: CheckJob) -> str:
        """What the check said last, which only its pod knows."""
        if job.uid not in self._details:
            params = {"labelSelector": f"batch.kubernetes.io/job-name={job.name}"}
            pods = self._api.list(f"/api/v1/namespaces/{self._namespace}/pods", params)
            said = [_last_words(pod) for pod in pods]
            self._details[job.uid] = next(filter(None, said), job.message)
        return self._details[job.uid]


def _last_words(pod: Json) -> str:
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        ended = (container.get("state") or {}).get("terminated")
        if ended is not None:
            lines = str(ended.get("message", "")).strip().splitlines()
            return lines[-1] if lines else f"it ended with exit code {ended.get('exitCode')}"
    return ""
