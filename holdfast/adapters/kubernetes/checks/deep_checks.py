"""Deep health checks: Kubernetes Jobs that are pinned to their node."""

import math
import secrets
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from holdfast.adapters.kubernetes.checks.check_ends import CheckEnd, check_end
from holdfast.adapters.kubernetes.checks.check_jobs import (
    LABELS,
    CheckJob,
    PairIds,
    check_job,
    job_name,
    job_object,
    jobs_of,
    pair_ids,
    pair_objects,
    token_of,
)
from holdfast.adapters.kubernetes.checks.check_pods import LONGEST, CheckPod, CheckPods
from holdfast.adapters.kubernetes.checks.check_state import NO_CHECK, CheckState
from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.errors import AlreadyExists, Json, NotFound
from holdfast.adapters.kubernetes.client.reflector import Reflector
from holdfast.adapters.kubernetes.client.values import EPOCH
from holdfast.adapters.kubernetes.settings import CheckSettings
from holdfast.kit.units import one_line
from holdfast.model.deep_checks import Outcome
from holdfast.model.errors import BackendError
from holdfast.model.events import CallFailed
from holdfast.model.names import DeepCheck
from holdfast.model.nodes import CheckResult, NodeRecord, PairOutcome, Phase
from holdfast.ports.events import EventSink

_TOKEN_BYTES: Final = 32

AGAIN: Final = timedelta(minutes=1)
"""Delay before an inconclusive check is repeated, and before the Events of one are read again."""

BEGINS: Final = timedelta(minutes=5)
"""Time for a check to begin, before it is reported that it has not, and for a test between nodes,
before it ends without a verdict: images of several GB are pulled within minutes."""


class DeepChecks:
    """Starts checks and reads their results; methods with API calls raise ``BackendError``."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        settings: CheckSettings,
        changed: Callable[[], None],
        events: EventSink,
        *,
        again: timedelta = AGAIN,
        begins: timedelta = BEGINS,
    ) -> None:
        self._api = api
        self._again_s = again.total_seconds()
        self._begins = begins
        self._settings = settings
        self._events = events
        self._namespace = namespace
        self._folder = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        self._ends: dict[str, CheckEnd] = {}
        """Ends by UID of the Job."""
        self._refused: dict[str, str] = {}
        """Why Jobs could not be created, by name."""
        self._waits_since: dict[str, float] = {}
        """By UID of Jobs whose check has not begun; infinite once that is reported."""
        selector = ",".join(f"{key}={value}" for key, value in LABELS.items())
        self._reflector = Reflector(
            api,
            self._folder,
            trim=check_job,
            changed=changed,
            params={"labelSelector": selector},
        )
        self._pods = CheckPods(api, namespace, changed, warn_every=again)
        self._now = EPOCH

    @property
    def reflectors(self) -> tuple[Reflector[CheckJob], Reflector[CheckPod]]:
        """Reflectors of the Jobs and of their pods; their owner starts and stops them."""
        return self._reflector, self._pods.reflector

    def refresh(self, now: datetime) -> None:
        """Update the states of the pods; ``now`` is the present time."""
        self._now = now
        jobs = self._reflector.objects().values()
        self._pods.refresh([job for job in jobs if job.passed is None], now)

    def state(self, node: str, record: NodeRecord) -> CheckState:
        """Return the state of the check, or test between nodes, in a node's record."""
        if record.phase is not Phase.CHECKING:
            return NO_CHECK
        is_alone = record.pairing is None
        return CheckState(
            result=self._result(node, record.phase_since.isoformat()) if is_alone else None,
            began_at=self._began_at(node, record),
            pending=self._why_pending(node, record),
        )

    def _began_at(self, node: str, record: NodeRecord) -> datetime | None:
        """Return when all pods of the check, or of the test, have begun; None if they have not."""
        jobs = [self._find(name) for name in jobs_of(node, record)]
        began = [None if job is None else self._pods.began_at(job) for job in jobs]
        known = [at for at in began if at is not None]
        return max(known, default=None) if len(known) == len(began) else None

    def _why_pending(self, node: str, record: NodeRecord) -> str:
        """Return why that check has not begun, or could not be run; empty otherwise."""
        return next(filter(None, map(self._pending, jobs_of(node, record))), "")

    def _pending(self, name: str) -> str:
        job = self._find(name)
        if job is None:
            why = self._refused.get(name)
            return f"its Job was not created ({why})" if why else "its Job was not created yet"
        if not self._is_over(job):
            return self._pods.pending(job)
        return f"it could not be run ({self._how(job)})" if self._is_inconclusive(job) else ""

    def begin(self, node: str, check_id: str, kinds: tuple[DeepCheck, ...] = ()) -> None:
        """Start a check unless it exists; restarts an inconclusive one after a delay."""
        job = self._find(job_name(node, check_id))
        if job is None:
            self._create(job_object(node, check_id, self._settings, kinds))
        elif not self._is_over(job):
            self._report_waiting(node, job)
        elif self._is_inconclusive(job) and self._is_long_ago(self._end_of(job)):
            self._delete(job)  # created again in the next round

    def _report_waiting(self, node: str, job: CheckJob) -> None:
        """Report once why a check has not begun for a while."""
        why, now = self._pods.pending(job), time.monotonic()
        if not why:
            self._waits_since.pop(job.uid, None)
        elif now - self._waits_since.setdefault(job.uid, now) >= self._begins.total_seconds():
            self._waits_since[job.uid] = math.inf
            what = f"the deep health check of {node}"
            self._events.emit(CallFailed(what=what, error=f"it has not begun: {why}"))

    def start_pair(self, ids: PairIds, address: str) -> None:
        """Start a test between two nodes unless it exists.

        If an earlier call was interrupted between its two Jobs, the first Job has the token.
        """
        if self._find(ids.measures) is not None:
            return
        new, _ = pair_objects(ids, address, secrets.token_hex(_TOKEN_BYTES), self._settings)
        listens = self._create(new)
        if listens is None:
            listens = self._api.get(f"{self._folder}/{ids.listens}")
        self._create(pair_objects(ids, address, token_of(listens), self._settings)[1])

    def pair_outcome(self, node: str, record: NodeRecord) -> PairOutcome | None:
        """Return the outcome of the pair test in a node's record; None while it runs."""
        ids = pair_ids(node, record.pairing)
        if ids is None:
            return None
        job = self._find(ids.measures)
        if job is None or not self._is_over(job):
            return self._never_begun(node, record)
        end = self._end_of(job)
        result = end.result
        passed: bool | None = self._has_passed(job)
        if end.status not in (0, 1) or result.outcome in (Outcome.UNKNOWN, Outcome.SKIPPED):
            passed = None
        return PairOutcome(
            partner=ids.partner,
            passed=passed,
            ended_at=job.ended_at or end.at,
            detail="" if passed else result.summary or job.message or "its pod was lost",
            measured=result.measured,
            bounds=result.bounds,
        )

    def _never_begun(self, node: str, record: NodeRecord) -> PairOutcome | None:
        """Return that a test has no verdict if it has not begun in time; None before."""
        pairing, why = record.pairing, self._why_pending(node, record)
        if pairing is None or pairing.began_at is None or not why:
            return None
        if self._now - pairing.began_at < self._begins:
            return None
        detail = f"it did not begin: {why}"
        return PairOutcome(partner=pairing.partner, passed=None, ended_at=self._now, detail=detail)

    def _create(self, new: Json) -> Json | None:
        """Create a Job; returns None if it exists already."""
        if not self._settings.image:
            raise BackendError("deep health checks are not configured; set kubernetes.check.image")
        try:
            created = self._api.create(self._folder, new, repeatable=True)
        except AlreadyExists:
            return None
        except BackendError as error:
            self._refused[new["metadata"]["name"]] = one_line(str(error), LONGEST)
            raise
        self._refused.pop(new["metadata"]["name"], None)
        self._reflector.learn(created)
        return created

    def _result(self, node: str, check_id: str) -> CheckResult | None:
        """Return the result of a check; None while it runs or an inconclusive one is repeated."""
        job = self._find(job_name(node, check_id))
        if job is None or not self._is_over(job) or self._is_inconclusive(job):
            return None
        end = self._end_of(job)
        result, passed = end.result, self._has_passed(job)
        return CheckResult(
            passed=passed,
            ended_at=job.ended_at or end.at,
            detail="" if passed else result.summary or job.message,
            measured=result.measured,
            bounds=result.bounds,
            kinds=result.kinds,
        )

    def end_others(self, waited_for: Collection[str]) -> None:
        """Delete running Jobs that no record refers to any more; new checks have other names."""
        jobs = self._reflector.objects().values()
        present = {job.uid for job in jobs}
        self._ends = {uid: end for uid, end in self._ends.items() if uid in present}
        self._waits_since = {uid: at for uid, at in self._waits_since.items() if uid in present}
        self._refused = {name: why for name, why in self._refused.items() if name in waited_for}
        for job in jobs:
            if job.passed is None and job.name not in waited_for:
                self._delete(job)

    def _delete(self, job: CheckJob) -> None:
        with suppress(NotFound):
            path = f"{self._folder}/{job.name}"
            self._api.delete(path, uid=job.uid, propagation="Background")

    def _find(self, job: str) -> CheckJob | None:
        return self._reflector.objects().get(f"{self._namespace}/{job}")

    def _is_inconclusive(self, job: CheckJob) -> bool:
        """Whether a check of one node ended inconclusively; reports that once."""
        if job.passed or not self._is_over(job):
            return False
        is_new = job.uid not in self._ends
        end = self._end_of(job)
        if is_new and end.is_no_verdict:
            why = f"{self._how(job)}; retrying in a minute"
            self._events.emit(CallFailed(what=f"the check by the Job {job.name}", error=why))
        return end.is_no_verdict

    def _is_over(self, job: CheckJob) -> bool:
        """Whether a check has ended.

        Its Job may not show that: kube-controller-manager is unavailable, or a container that an
        admission webhook has added still runs.
        """
        return (job.passed is not None and job.ended_at is not None) or self._pods.has_ended(job)

    def _has_passed(self, job: CheckJob) -> bool:
        """Whether a check that is over has passed; other containers of its pod do not count."""
        status = self._end_of(job).status
        return bool(job.passed) if status is None else status == 0

    def _how(self, job: CheckJob) -> str:
        end = self._end_of(job)
        how = "its pod was lost" if end.status is None else f"exited with {end.status}"
        return f"{how}: {end.result.summary or job.message}"

    def _is_long_ago(self, end: CheckEnd) -> bool:
        return time.monotonic() >= end.noticed_at + self._again_s

    def _end_of(self, job: CheckJob) -> CheckEnd:
        """Return the end of a check that is over, which only its pod records."""
        if job.uid not in self._ends:
            params = {"labelSelector": f"batch.kubernetes.io/job-name={job.name}"}
            pods = self._api.list(f"/api/v1/namespaces/{self._namespace}/pods", params)
            self._ends[job.uid] = check_end(pods, job.uid, self._now, time.monotonic())
        return self._ends[job.uid]
