"""Operator of ``HyperPodPyTorchJob``: creates and deletes its pods, and writes its status."""

import secrets
import threading
from collections.abc import Iterable
from datetime import datetime
from typing import Final, Protocol

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.errors import AlreadyExists, Conflict, NotFound
from holdfast.adapters.kubernetes.jobs.hyperpod_job import HyperPodJob
from holdfast.adapters.kubernetes.jobs.hyperpod_pods import pod_of, secret_of, service_of
from holdfast.adapters.kubernetes.jobs.hyperpod_status import pod_group, status_of
from holdfast.adapters.kubernetes.jobs.informer import JobInformer
from holdfast.adapters.kubernetes.jobs.objects import JobState, PodState
from holdfast.adapters.kubernetes.jobs.requests import JobRequests
from holdfast.adapters.kubernetes.nodes.dependencies import Dependencies
from holdfast.decisions.pod_group import INVALID, GroupPlan, plan_pods
from holdfast.engine.repeats import RepeatLimiter
from holdfast.model.errors import BackendError
from holdfast.model.events import CallFailed, JobInputRejected
from holdfast.model.jobs import JobRecord

RETRY_S: Final = 5.0
"""Time after a failed call until the next round, unless something changes before."""

_CORE: Final = "/api/v1/namespaces"


class KnownJob(Protocol):
    """Job as the backend last read it."""

    @property
    def state(self) -> JobState:
        """State of the object."""
        ...

    @property
    def pods(self) -> list[PodState]:
        """All current pods of the job."""
        ...

    @property
    def requests(self) -> JobRequests:
        """Parsed settings of the job, with its record."""
        ...

    @property
    def follower(self) -> JobInformer:
        """Cache that the object is from."""
        ...

    @property
    def is_known(self) -> bool:
        """Whether the state is current."""
        ...


class PodOperator:
    """Brings the pods of all jobs to what ``plan_pods`` returns; keeps no state.

    Names of pods follow from the job and the node rank, so a pod is never created twice, by no
    controller, and not before an earlier pod of its name is gone.
    """

    def __init__(self, api: Api, dependencies: Dependencies) -> None:
        self._api = api
        self._dependencies = dependencies
        self._repeats = RepeatLimiter(dependencies.events)
        self._retry: threading.Timer | None = None

    def step(self, jobs: Iterable[KnownJob]) -> None:
        """Act for each job once; a job whose calls fail does not prevent the others."""
        now = self._dependencies.clock.now()
        for job in jobs:
            state = job.state
            if not isinstance(state, HyperPodJob) or state.is_leaving or not job.is_known:
                continue
            try:
                self._operate(job, state, now)
            except (NotFound, Conflict):
                self._wake_later()  # the job or a pod has changed: the next round reads it
            except BackendError as error:
                what = f"operating {state.key}"
                self._repeats.emit(CallFailed(what=what, error=str(error)), now)
                self._wake_later()

    def _operate(self, job: KnownJob, state: HyperPodJob, now: datetime) -> None:
        record = job.requests.record
        plan = plan_pods(pod_group(state, job.pods, record), now)
        if plan.removes_job:
            self._api.delete(state.path, uid=state.uid, propagation="Background")
            return
        for pod in job.pods:
            if pod.uid in plan.delete:
                self._delete(pod)
        self._show(job, state, plan, record, now)
        if plan.create:  # last: a quota may refuse pods, and the status is written nevertheless
            self._create(job.follower, state, plan.create, record)

    def _delete(self, pod: PodState) -> None:
        try:
            self._api.delete(pod.path, uid=pod.uid)
        except (NotFound, Conflict):
            return  # already deleted, or another pod has its name

    def _create(
        self,
        follower: JobInformer,
        state: HyperPodJob,
        ranks: Iterable[int],
        record: JobRecord | None,
    ) -> None:
        if state.ranks > 1:
            self._ensure(f"{_CORE}/{state.namespace}/services", service_of(state))
            key = secrets.token_hex(32)
            self._ensure(f"{_CORE}/{state.namespace}/secrets", secret_of(state, key))
        for rank in ranks:
            try:
                follower.learn_pod(
                    self._api.create(
                        f"{_CORE}/{state.namespace}/pods",
                        pod_of(state, rank, record),
                        repeatable=True,
                    )
                )
            except AlreadyExists:  # its predecessor terminates, or it is not in the cache yet
                self._wake_later()

    def _ensure(self, collection: str, body: dict[str, object]) -> None:
        try:
            self._api.create(collection, body, repeatable=True)
        except AlreadyExists:
            return

    def _show(
        self,
        job: KnownJob,
        state: HyperPodJob,
        plan: GroupPlan,
        record: JobRecord | None,
        now: datetime,
    ) -> None:
        status = status_of(state, plan, job.pods, record, now)
        if {**state.shown, **status} == state.shown:
            return
        version = {"resourceVersion": state.resource_version}
        patch = {"metadata": version, "status": status}
        job.follower.learn(self._api.patch(f"{state.path}/status", patch))
        self._dependencies.changed()
        rejected = state.rejection
        if plan.reason == INVALID and rejected is not None:
            self._dependencies.events.emit(
                JobInputRejected(
                    job=state.key,
                    key=rejected.key,
                    value=rejected.value,
                    expected=rejected.expected,
                )
            )

    def _wake_later(self) -> None:
        if self._retry is None or not self._retry.is_alive():
            self._retry = threading.Timer(RETRY_S, self._dependencies.changed)
            self._retry.daemon = True
            self._retry.start()
