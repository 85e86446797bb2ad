"""View of the jobs of a Kubernetes cluster, for commands. Requires no running controller."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from holdfast import __version__
from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.errors import Forbidden, Json, NotFound
from holdfast.adapters.kubernetes.client.kubeconfig import find_server
from holdfast.adapters.kubernetes.client.values import EPOCH, parse_time
from holdfast.adapters.kubernetes.jobs.conditions import SUSPENDED_PHASES, WAITS
from holdfast.adapters.kubernetes.jobs.job_kind import JobKind
from holdfast.adapters.kubernetes.jobs.kinds import KINDS
from holdfast.adapters.kubernetes.jobs.objects import JobState, PodState
from holdfast.adapters.kubernetes.jobs.requests import JobRequests, requests_of
from holdfast.apps.kubernetes.job_pods import pods_of
from holdfast.apps.views.jobs import (
    JobDetails,
    JobEvent,
    JobStatus,
    RankStatus,
    UnsupportedOnPlatform,
    attempts_of,
    find_name,
)
from holdfast.apps.views.not_found import NotFound as NodeNotFound
from holdfast.model.jobs import JobPhase, JobRecord
from holdfast.model.names import JOB_RECORD, Labels
from holdfast.model.sagemaker import EventLevel

if TYPE_CHECKING:  # lists of jobs need none of them
    from holdfast.apps.kubernetes.job_steps import JobSteps, StepReader
    from holdfast.apps.views.rank_logs import LogPart, LogRequest
    from holdfast.decisions.hang_evidence import HangEvidence

UNMANAGED: Final = "unmanaged"
"""Phase of a job that does not enable auto-resume, or whose settings are invalid."""

SUSPENDED: Final = "suspended"
"""Phase of a job that another program or person has suspended."""

_DOCTOR: Final = "holdfast.apps.kubernetes.doctor"
_LOGS: Final = "holdfast.apps.kubernetes.pod_log_part"
_STEPS: Final = "holdfast.apps.kubernetes.job_steps"
_STACKS: Final = "holdfast.adapters.kubernetes.jobs.stacks"
_CORE: Final = "/api/v1"
_ATTEMPTS: Final = 20
"""Number of the last attempts whose evidence is searched."""

_PARTS: Final = 3
"""Parts of the full name of a job: kind, namespace, name."""

_NOT_ENABLED: Final = "auto-resume is not enabled: see holdfast jobs doctor"
_NOT_RECORDED: Final = "no controller has recorded all its ranks as running yet"
_DAMAGED: Final = f"its record cannot be read; remove the annotation {JOB_RECORD}"
_SUSPENDED_BY_OTHERS: Final = "suspended by another program or person"


def connect_jobs(
    kubeconfig: Path | None, context: str | None, namespace: str | None
) -> "KubernetesJobList":
    """Connect to the jobs of the cluster that kubectl would use.

    Args:
        kubeconfig: path of the kubeconfig; None for the one that kubectl would use.
        context: name of the context; None for the current context.
        namespace: namespace of the jobs; None for that of the context, empty for all.

    Raises:
        ConfigError: no cluster is configured, or it cannot be used.

    """
    server = find_server(kubeconfig, context or "")
    name = "holdfast"
    api = Api(server, user_agent=f"{name}/{__version__}", field_manager=name)
    return KubernetesJobList(api, server.namespace if namespace is None else namespace)


class KubernetesJobList:
    """The ``Jobs`` of a namespace, or of all namespaces."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self._labels = Labels()
        self._steps: StepReader | None = None
        self._listed: dict[str, tuple[JobKind, JobState]] = {}

    def close(self) -> None:
        """Close the connections."""
        if self._steps is not None:
            self._steps.close()
        self._api.close()

    def jobs(self) -> list[JobStatus]:
        """See ``Jobs.jobs``; jobs without auto-resume are left out."""
        self._listed = {
            state.key: (kind, state)
            for kind, state in self._states(self._namespace)
            if state.auto_resume is not None or state.record is not None
        }
        listed = [
            job_status(state, requests_of(state, self._labels))
            for _, state in self._listed.values()
        ]
        return sorted(listed, key=lambda job: (job.started_at, job.name))

    def describe(self, job: str) -> JobDetails:
        """See ``Jobs.describe``; includes jobs without auto-resume."""
        kind, state = self._found(job)
        status = job_status(state, requests_of(state, self._labels))
        reported = self._reported(state)
        since = status.phase_since.replace(microsecond=0)  # Events have whole seconds
        waits = [one for one in reported if one.event == WAITS and one.at >= since]
        if status.phase == JobPhase.WAITING and waits:
            why = waits[-1].message.removeprefix(f"{WAITS}: {state.key}: ")
            status = replace(status, reason=f"{status.reason}; {why}")
        pods = list(self._pods(kind, state))
        if status.phase == JobPhase.RUNNING:
            steps: JobSteps = import_module(_STEPS).read_steps(self._api, pods)
            status = steps.added_to(status)
        return JobDetails(status=status, ranks=_ranks(pods), reported=reported)

    def with_steps(self, jobs: Sequence[JobStatus], within: timedelta) -> list[JobStatus]:
        """See ``Jobs.with_steps``: from the logs of the first and the last rank of each job."""
        if not any(one.phase == JobPhase.RUNNING for one in jobs):
            return list(jobs)
        if self._steps is None:
            self._steps = import_module(_STEPS).StepReader(self._api, self._namespace)
        return self._steps.with_steps(jobs, self._listed, within)

    def whole(self, job: str) -> tuple[JobKind, Json, Json | None]:
        """Return the kind and the objects of a job: its own, and the one that has its pods instead.

        Raises:
            NotFound: no job matches, or several do.

        """
        kind, state = self._found(job)
        if kind.body is None:
            return kind, self._api.get(state.path), None
        collection = f"/apis/{kind.body.api_version}/namespaces/{state.namespace}"
        try:
            body = self._api.get(f"{collection}/{kind.body.plural}/{state.name}")
        except NotFound:
            body = None
        return kind, self._api.get(state.path), body

    def groupless_nodes(self) -> list[str]:
        """Return the managed nodes without a group label; empty if RBAC forbids listing nodes."""
        found: list[str] = import_module(_DOCTOR).groupless_nodes(self._api)
        return found

    def cancel(self, job: str, confirm: Callable[[JobStatus], None]) -> JobStatus:  # noqa: ARG002
        """See ``Jobs.cancel``: a job is cancelled by deleting it, like any other object."""
        _, state = self._found(job)
        raise UnsupportedOnPlatform(
            f"Holdfast does not cancel Kubernetes jobs; to cancel {state.key}, run: "
            f"{_cancel_command(state)}"
        )

    def read_log(self, job: str, request: "LogRequest") -> "LogPart":
        """See ``Jobs.read_log``: only the pods of the current attempt still have logs."""
        from holdfast.apps.views.rank_logs import chosen_attempt  # noqa: PLC0415 - see above

        kind, state = self._found(job)
        latest = job_status(state, requests_of(state, self._labels)).attempt
        attempt = chosen_attempt(state.key, request, state.ranks, latest)
        pods = [one for one in self._pods(kind, state) if one.member.rank == request.rank]
        if attempt != latest or not pods:
            raise NodeNotFound(
                f"the pod of rank {request.rank} in attempt {attempt} of {state.key} does not "
                "exist, and Kubernetes deletes the log with the pod; send logs to a log store to "
                "keep them"
            )
        pod = max(pods, key=lambda one: one.created_at)
        part: LogPart = import_module(_LOGS).read_pod_log(self._api, pod, request, attempt)
        return part

    def evidence(self, job: str, attempt: int | None) -> "HangEvidence":
        """See ``Jobs.evidence``: from the ConfigMap of the attempt."""
        _, state = self._found(job)
        latest = job_status(state, requests_of(state, self._labels)).attempt
        numbers = range(latest, max(0, latest - _ATTEMPTS), -1) if attempt is None else [attempt]
        stacks = import_module(_STACKS)
        for number in numbers:
            name = stacks.config_map_of(state.name, number)
            path = f"{_CORE}/namespaces/{state.namespace}/configmaps/{name}"
            try:
                found: HangEvidence = stacks.unpacked_evidence(self._api.get(path))
                return found
            except NotFound:
                continue
            except ValueError as error:
                raise NodeNotFound(
                    f"ConfigMap {name}: no valid evidence of a hang: {error}"
                ) from error
        which = "" if attempt is None else f" of attempt {attempt}"
        raise NodeNotFound(
            f"{state.key}: no evidence{which}; hangs leave some if the controller has "
            "kubernetes.capture_stacks = true"
        )

    @property
    def none_yet(self) -> str:
        """See ``Jobs.none_yet``."""
        where = f"in namespace {self._namespace}" if self._namespace else "in this cluster"
        return (
            f"No job {where} enables auto-resume with the annotation "
            f"{self._labels.enable_job_auto_resume}."
        )

    def _found(self, text: str) -> tuple[JobKind, JobState]:
        """Return a job by its name; a full name includes the namespace."""
        parts = text.split("/")
        namespace = parts[1] if len(parts) == _PARTS else self._namespace
        there = {state.key: (kind, state) for kind, state in self._states(namespace)}
        return there[find_name(text, sorted(there))]

    def _states(self, namespace: str) -> Iterator[tuple[JobKind, JobState]]:
        """Yield the jobs of all kinds that are installed and readable.

        Raises:
            Forbidden: no kind is readable.

        """
        read: dict[str, dict[str, JobState]] = {}
        forbidden: list[Forbidden] = []
        served = self._served()
        for kind in KINDS:
            if served and kind.api_version not in served:
                continue
            try:
                read[kind.plural] = dict(self._states_of(kind, namespace))
            except NotFound:
                continue
            except Forbidden as error:
                forbidden.append(error)
        if forbidden and not read:
            raise forbidden[0]
        for refusal in forbidden:
            click.echo(f"holdfast: some jobs are not shown: {refusal}", err=True)
        for kind in KINDS:
            bodies = read.get(kind.body.plural, {}) if kind.body is not None else {}
            for name, state in read.get(kind.plural, {}).items():
                yield kind, _with_bodies(state, bodies.get(name))

    def _served(self) -> frozenset[str]:
        """Return the API versions of the cluster; empty if they may not be read.

        A cluster has few kinds of jobs, and each that is missing would cost a call.
        """
        try:
            groups = self._api.get("/apis").get("groups") or ()
        except (Forbidden, NotFound):
            return frozenset()
        return frozenset(one["groupVersion"] for group in groups for one in group["versions"])

    def _states_of(self, kind: JobKind, namespace: str) -> Iterator[tuple[str, JobState]]:
        where = f"/namespaces/{namespace}" if namespace else ""
        for job in self._api.list(f"/apis/{kind.api_version}{where}/{kind.plural}"):
            state = kind.trimmed(job, self._labels)
            yield f"{state.namespace}/{state.name}", state

    def _pods(self, kind: JobKind, state: JobState) -> Iterator[PodState]:
        for _, pod in pods_of(self._api, kind, state.namespace):
            if pod.member.job == state.name and state.owns(pod):
                yield pod

    def _reported(self, state: JobState) -> tuple[JobEvent, ...]:
        path = f"{_CORE}/namespaces/{state.namespace}/events"
        found = self._api.list(path, {"fieldSelector": f"involvedObject.uid={state.uid}"})
        written = sorted(found, key=_written)  # their times are in whole seconds
        return tuple(sorted(map(reported, written), key=lambda one: one.at))


def _ranks(pods: Iterable[PodState]) -> tuple[RankStatus, ...]:
    ranks = map(_rank, pods)
    return tuple(sorted(ranks, key=lambda one: (one.rank is None, one.rank or 0, one.name)))


def _written(event: Json) -> int:
    """Return the resource version of an object, which orders the last writes of a kind."""
    version = str(event["metadata"].get("resourceVersion"))
    return int(version) if version.isdecimal() else 0


def _cancel_command(state: JobState) -> str:
    kind, namespace, name = state.key.split("/")
    return f"kubectl delete {kind} {name} --namespace {namespace}"


def job_status(state: JobState, requests: JobRequests) -> JobStatus:
    """Return the status of a job from its object."""
    record = requests.record or JobRecord(
        phase=JobPhase.STARTING, phase_since=state.started_at or state.created_at, attempt=1
    )
    phase, reason = _phase(state, requests, record)
    return JobStatus(
        name=state.key,
        is_active=phase in tuple(JobPhase) and not JobPhase(phase).is_final,
        phase=phase,
        phase_since=record.phase_since,
        reason=reason,
        started_at=state.created_at,
        nodes=state.ranks,
        attempt=record.attempt,
        placement=record.placement,
        hardware_retries=record.hardware_retries,
        max_retries=requests.max_retries,
        app_retries=record.app_retries,
        max_app_retries=requests.max_app_retries,
        grace=max((group.grace for group in state.groups), default=timedelta(0)),
        cancel_command=_cancel_command(state),
        attempts=attempts_of(record),
    )


def _with_bodies(state: JobState, body: JobState | None) -> JobState:
    """Return a job with the object that was created for it, if that exists."""
    is_its = body is not None and body.controller is not None and body.controller.uid == state.uid
    return state.with_body(body) if body is not None and is_its else state


def _phase(state: JobState, requests: JobRequests, record: JobRecord) -> tuple[str, str]:
    """Return the phase of a job and its reason."""
    if record.phase.is_final:
        return record.phase, record.reason
    if state.ending is not None:
        return state.ending.outcome, state.ending.reason
    if requests.is_damaged:
        return UNMANAGED, _DAMAGED
    if not requests.auto_resume:
        wrong = next(iter(requests.rejected), None)
        message = (
            f"{wrong.key} is {wrong.value!r}: expected {wrong.expected}" if wrong else _NOT_ENABLED
        )
        return UNMANAGED, message
    if state.is_suspended and state.queue is None and record.phase not in SUSPENDED_PHASES:
        return SUSPENDED, _SUSPENDED_BY_OTHERS
    return record.phase, record.reason if requests.record is not None else _NOT_RECORDED


def _rank(pod: PodState) -> RankStatus:
    how = ""
    if pod.evicted:
        how = f"evicted: {pod.evicted}"
    elif pod.exit is not None:
        code = pod.exit.code
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        how = f"{how} ({pod.exit.reason})" if pod.exit.reason else how
    return RankStatus(
        rank=pod.member.rank if pod.member.rank >= 0 else None,
        node=pod.node,
        name=pod.name,
        state="Terminating" if pod.is_terminating else pod.phase,
        detail=how,
    )


def reported(event: Json) -> JobEvent:
    """Return a Kubernetes Event as ``JobEvent``; ``event`` is the object of the API server."""
    series = event.get("series") or {}
    times = (
        series.get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        event["metadata"].get("creationTimestamp"),
    )
    count = series.get("count") or event.get("count") or 1
    reason, message = event.get("reason") or "", event.get("message") or ""
    again = f" (x{count})" if count > 1 else ""
    return JobEvent(
        at=next(filter(None, map(parse_time, times)), EPOCH),
        event=reason,
        level=EventLevel.WARN if event.get("type") == "Warning" else EventLevel.INFO,
        message=f"{reason}: {message}{again}",
        details={
            "type": event.get("type") or "",
            "count": count,
            "source": (event.get("source") or {}).get("component")
            or event.get("reportingComponent")
            or "",
        },
    )
