"""The traps that keep a job from resuming, each with the line to change: pure."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.kubernetes.client.values import Rejection
from holdfast.adapters.kubernetes.jobs.anatomy import anatomy_of
from holdfast.adapters.kubernetes.jobs.indexed_job import INDEXED
from holdfast.adapters.kubernetes.jobs.objects import JobState
from holdfast.adapters.kubernetes.jobs.pod_traps import (
    checkpoints,
    grace,
    node_selector,
    rendezvous,
)
from holdfast.adapters.kubernetes.jobs.requests import MAX_RETRIES, Wishes
from holdfast.adapters.kubernetes.jobs.trap import Finding, Line, Patient, Severity, Trap
from holdfast.kit.units import format_duration
from holdfast.model.names import JOB_RECORD, Labels, PodPhase

EVIDENCE_KEPT: Final = timedelta(hours=1)
"""A job whose object goes sooner after its end can hardly be looked at."""

NO_LIMIT: Final = 2**31 - 1
"""The largest ``backoffLimit``."""

_JOB_BACKOFF: Final = 6  # Kubernetes' default
_KUBEFLOW: Final = frozenset(("PyTorchJob", "MPIJob"))
_MODES: Final = {"Job": "NonIndexed", "JobSet": INDEXED}
"""The ``completionMode`` where it is not written."""

_BATCH: Final = frozenset(_MODES)


def traps_of(
    state: JobState, wishes: Wishes, labels: Labels, kind: str, whole: Json
) -> list[Finding]:
    """All traps that a job is in, the worst first.

    Args:
        state: what the controller reads of it.
        wishes: what the controller makes of its annotations.
        labels: of the cluster.
        kind: of the object that has the pods: the job, or what was made for it.
        whole: that object, or what somebody means to submit.

    Raises:
        ValueError: the object is not what its kind says.

    """
    parts = anatomy_of(kind, whole)
    patient = Patient(kind=kind, state=state, wishes=wishes, parts=parts, labels=labels)
    is_its_own = kind == state.kind
    found = [
        Finding(
            trap=trap.name,
            severity=line.severity,
            why=line.why,
            path=line.path if is_its_own or line.path.startswith("metadata") else _made(line.path),
            value=line.value,
        )
        for trap in TRAPS
        if not trap.kinds or kind in trap.kinds
        for line in trap.look(patient)
    ]
    return sorted(found, key=lambda one: list(Severity).index(one.severity))


def _made(path: str) -> str:
    """Where a TrainJob's runtime has what its trainer makes a JobSet of."""
    return f"runtime: spec.template.{path}"


def _annotation(key: str) -> str:
    return f'metadata.annotations["{key}"]'


def _not_asked(patient: Patient) -> Iterator[Line]:
    said, key = patient.state.auto_resume, patient.labels.enable_job_auto_resume
    if said is None or said.strip().lower() == "false":
        yield Line(Severity.ERROR, _annotation(key), "true", "nobody restarts a job without it")


def _unusable(patient: Patient) -> Iterator[Line]:
    obstacle, switch = _cannot_restart(patient), patient.labels.enable_job_auto_resume
    for one in patient.wishes.rejected:
        if one is not obstacle:
            is_grave = one.key in (switch, JOB_RECORD)
            severity = Severity.ERROR if is_grave else Severity.WARNING
            path = _annotation(one.key.partition("[")[0])  # without what is within its value
            why = f"{one.key} is {one.value!r}: expected {one.expected}"
            yield Line(severity, path, "true" if one.key == switch else None, why)


def _cannot_restart(patient: Patient) -> Rejection | None:
    """What stands against a job that rightly asks to be restarted."""
    is_on = (patient.state.auto_resume or "").strip().lower() == "true"
    key = patient.labels.enable_job_auto_resume
    rejected = patient.wishes.rejected if is_on else ()
    return next((one for one in rejected if one.key == key), None)


def _obstacle(patient: Patient) -> Iterator[Line]:
    obstacle = _cannot_restart(patient)
    if obstacle is None:
        return
    why = f"it cannot be restarted as a whole: expected {obstacle.expected}"
    for pods in patient.parts.pods if patient.kind in _BATCH else ():
        maker = pods.maker
        indexed = maker.content.get("completionMode", _MODES[patient.kind])
        counts = [maker.content.get(key, 1) for key in ("completions", "parallelism")]
        if indexed != INDEXED:
            yield Line(Severity.ERROR, f"{maker.path}.completionMode", INDEXED, why)
        if counts[0] != counts[1]:
            yield Line(Severity.ERROR, f"{maker.path}.completions", counts[1], why)
        if indexed != INDEXED or counts[0] != counts[1]:
            return
    yield Line(Severity.ERROR, _annotation(obstacle.key), None, why)


def _retries(patient: Patient) -> Iterator[Line]:
    path = _annotation(patient.labels.job_max_retry_count)
    if patient.state.max_retries is None:
        why = f"without it, the job survives {MAX_RETRIES} failure of its nodes and no more"
        yield Line(Severity.NOTE, path, "10", why)
    elif not patient.wishes.max_retries:
        yield Line(Severity.WARNING, path, "10", "0 lets no failure of a node be survived")


def _restart_policy(patient: Patient) -> Iterator[Line]:
    for pods in patient.parts.pods:
        policy = pods.maker.content.get("restartPolicy", "OnFailure")
        if policy == "OnFailure":
            continue
        why = "the operator fails the job for good at the first rank that fails"
        if policy == "Always":
            why = "ranks that are done are started again, so that the job never ends"
        yield Line(
            Severity.ERROR, f"{pods.maker.path}.restartPolicy", "OnFailure", f"{policy}: {why}"
        )


def _run_backoff(patient: Patient) -> Iterator[Line]:
    policy = patient.parts.policy
    limit = policy.content.get("backoffLimit")
    if limit is not None:
        severity = Severity.WARNING if limit else Severity.ERROR
        why = (
            f"{limit}: the operator counts restarts of containers by itself, and fails the job for "
            "good, whatever retries are left"
        )
        yield Line(severity, f"{policy.path}.backoffLimit", None, why)


def _job_backoff(patient: Patient) -> Iterator[Line]:
    restarts = 1 + patient.wishes.max_retries + patient.wishes.max_app_retries
    own = _own_restarts(patient)
    if own >= restarts:
        return
    for pods in patient.parts.pods:
        limit = pods.maker.content.get("backoffLimit", _JOB_BACKOFF)
        if limit >= pods.ranks * restarts:
            continue
        ends = "one crash of all ranks ends" if limit < pods.ranks else "some restarts end"
        if own:
            ends = f"its failurePolicy restarts it for that {own} times at most, and then ends"
        why = (
            f"{limit}: every pod that fails counts, {pods.ranks} at a time; {ends} the job for good"
        )
        severity = Severity.ERROR if limit < pods.ranks and not own else Severity.WARNING
        yield Line(severity, f"{pods.maker.path}.backoffLimit", NO_LIMIT, why)


def _own_restarts(patient: Patient) -> int:
    """How often a JobSet is restarted by its own controller, instead of failing with a Job."""
    own: int = patient.parts.policy.at("failurePolicy").content.get("maxRestarts") or 0
    return own


def _index_limits(patient: Patient) -> Iterator[Line]:
    for pods in patient.parts.pods:
        if pods.maker.content.get("backoffLimitPerIndex") is not None:
            why = "a rank that has failed so often is given up, and the others wait for it for ever"
            yield Line(Severity.ERROR, f"{pods.maker.path}.backoffLimitPerIndex", None, why)
        rules = (pods.maker.content.get("podFailurePolicy") or {}).get("rules") or ()
        fails = any(rule.get("action") in ("FailJob", "FailIndex") for rule in rules)
        if fails and not _own_restarts(patient):
            why = "its rules fail the job for good before it can be restarted"
            yield Line(Severity.WARNING, f"{pods.maker.path}.podFailurePolicy", None, why)


def _launcher_backoff(patient: Patient) -> Iterator[Line]:
    policy = patient.parts.policy
    limit = policy.content.get("backoffLimit", _JOB_BACKOFF)
    needed = 1 + patient.wishes.max_retries + patient.wishes.max_app_retries
    if limit < needed:
        why = f"{limit}: every failure of the launcher counts; then the job has failed for good"
        yield Line(Severity.WARNING, f"{policy.path}.backoffLimit", needed, why)


def _driver_backoff(patient: Patient) -> Iterator[Line]:
    policy, needed = patient.parts.policy, patient.wishes.max_app_retries
    limit = policy.content.get("backoffLimit", 0)
    if limit < needed:
        why = f"{limit}: what its driver fails of is restarted by the operator alone, so often"
        yield Line(Severity.WARNING, f"{policy.path}.backoffLimit", needed, why)


def _clean_pods(patient: Patient) -> Iterator[Line]:
    policy = patient.parts.policy
    said = policy.content.get("cleanPodPolicy") or "None"
    if said == "None":
        why = f"{said}: ranks that still run when the job has ended go on, and hold their devices"
        yield Line(Severity.WARNING, f"{policy.path}.cleanPodPolicy", PodPhase.RUNNING, why)


def _ttl(patient: Patient) -> Iterator[Line]:
    policy = patient.parts.policy
    said = policy.content.get("ttlSecondsAfterFinished")
    if said is not None and timedelta(seconds=said) < EVIDENCE_KEPT:
        took = format_duration(timedelta(seconds=said))
        why = f"{took} after its end the job is gone, with all that is known of its attempts"
        value = int(timedelta(days=1).total_seconds())
        yield Line(Severity.NOTE, f"{policy.path}.ttlSecondsAfterFinished", value, why)


TRAPS: Final = (
    Trap("not-asked", _not_asked),
    Trap("unusable-annotation", _unusable),
    Trap("cannot-restart", _obstacle),
    Trap("no-retries", _retries),
    Trap("restart-policy", _restart_policy, frozenset(("PyTorchJob",))),
    Trap("backoff-limit", _run_backoff, frozenset(("PyTorchJob",))),
    Trap("backoff-limit", _launcher_backoff, frozenset(("MPIJob",))),
    Trap("backoff-limit", _job_backoff, _BATCH),
    Trap("backoff-limit", _driver_backoff, frozenset(("RayJob",))),
    Trap("index-limit", _index_limits, _BATCH),
    Trap("clean-pod-policy", _clean_pods, _KUBEFLOW),
    Trap("node-selector", node_selector),
    Trap("rendezvous-timeout", rendezvous),
    Trap("checkpoint-volume", checkpoints),
    Trap("grace-period", grace),
    Trap("time-to-live", _ttl, _KUBEFLOW | _BATCH),
)
"""One row for each trap of each kind; a name means the same in all of them."""
