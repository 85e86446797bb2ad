"""Doctor rules on jobs: what prevents a job from resuming, and the line to change. Pure."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Final

from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.kubernetes.jobs.doctor_pod_rules import (
    checkpoints,
    grace,
    node_selector,
    rendezvous,
)
from holdfast.adapters.kubernetes.jobs.doctor_subject import JobRule, JobUnderTest, violation
from holdfast.adapters.kubernetes.jobs.hyperpod_job import HyperPodJob
from holdfast.adapters.kubernetes.jobs.indexed_job import INDEXED
from holdfast.adapters.kubernetes.jobs.objects import JobState
from holdfast.adapters.kubernetes.jobs.pod_templates import job_templates
from holdfast.adapters.kubernetes.jobs.requests import MAX_RETRIES, JobRequests
from holdfast.decisions.doctor import (
    Diagnostic,
    LineChange,
    RuleSeverity,
    Violation,
    diagnose,
)
from holdfast.kit.rejections import Rejection
from holdfast.kit.units import format_duration
from holdfast.model.names import JOB_RECORD, Labels, PodPhase

EVIDENCE_KEPT: Final = timedelta(hours=1)
"""Shortest time that a finished job is kept, so that it can be inspected."""

NO_LIMIT: Final = 2**31 - 1
"""Largest ``backoffLimit``."""

_JOB_BACKOFF: Final = 6  # Kubernetes' default
_KUBEFLOW: Final = frozenset(("PyTorchJob", "MPIJob"))
_MODES: Final = {"Job": "NonIndexed", "JobSet": INDEXED}
"""Default ``completionMode`` by kind."""

_BATCH: Final = frozenset(_MODES)


def diagnose_job(
    state: JobState, requests: JobRequests, labels: Labels, kind: str, whole: Json
) -> list[Diagnostic]:
    """Return the diagnostics of a job, the worst first.

    Args:
        state: the job as the controller reads it.
        requests: the parsed annotations of the job.
        labels: of the cluster.
        kind: kind of the object that has the pods: the job, or the object created for it.
        whole: that object, or the manifest that somebody plans to submit.

    Raises:
        ValueError: the object does not have the fields of its kind.

    """
    templates = job_templates(kind, whole)
    job = JobUnderTest(
        kind=kind, state=state, requests=requests, templates=templates, labels=labels
    )
    found = diagnose(RULES, job)
    return found if kind == state.kind else [_in_runtime(one) for one in found]


def _in_runtime(found: Diagnostic) -> Diagnostic:
    """Return a diagnostic with the path in the TrainJob's runtime that the JobSet is made from."""
    line = found.line
    if line is None or line.path.startswith("metadata"):
        return found
    line = LineChange(f"runtime: spec.template.{line.path}", line.value)
    return replace(found, line=line, remedy=str(line))


def _annotation(key: str) -> str:
    return f'metadata.annotations["{key}"]'


def _auto_resume_off(job: JobUnderTest) -> Iterator[Violation]:
    value, key = job.state.auto_resume, job.labels.enable_job_auto_resume
    if value is None or value.strip().lower() == "false":
        yield violation(
            RuleSeverity.ERROR,
            _annotation(key),
            "true",
            "without this annotation the job is not restarted",
        )


def _unusable(job: JobUnderTest) -> Iterator[Violation]:
    obstacle, switch = _cannot_restart(job), job.labels.enable_job_auto_resume
    for one in job.requests.rejected:
        if one is not obstacle:
            is_critical = one.key in (switch, JOB_RECORD)
            severity = RuleSeverity.ERROR if is_critical else RuleSeverity.WARNING
            path = _annotation(one.key.partition("[")[0])  # without what is within its value
            why = f"{one.key} is {one.value!r}: expected {one.expected}"
            yield violation(severity, path, "true" if one.key == switch else None, why)


def _cannot_restart(job: JobUnderTest) -> Rejection | None:
    """Return why a job with auto-resume enabled cannot be restarted, if so."""
    is_on = (job.state.auto_resume or "").strip().lower() == "true"
    key = job.labels.enable_job_auto_resume
    rejected = job.requests.rejected if is_on else ()
    return next((one for one in rejected if one.key == key), None)


def _obstacle(job: JobUnderTest) -> Iterator[Violation]:
    obstacle = _cannot_restart(job)
    if obstacle is None:
        return
    why = f"the job cannot be restarted as a whole: expected {obstacle.expected}"
    for pods in job.templates.pods if job.kind in _BATCH else ():
        controller_spec = pods.controller_spec
        indexed = controller_spec.content.get("completionMode", _MODES[job.kind])
        counts = [controller_spec.content.get(key, 1) for key in ("completions", "parallelism")]
        if indexed != INDEXED:
            yield violation(
                RuleSeverity.ERROR, f"{controller_spec.path}.completionMode", INDEXED, why
            )
        if counts[0] != counts[1]:
            yield violation(
                RuleSeverity.ERROR, f"{controller_spec.path}.completions", counts[1], why
            )
        if indexed != INDEXED or counts[0] != counts[1]:
            return
    yield violation(RuleSeverity.ERROR, _annotation(obstacle.key), None, why)


def _rejected(job: JobUnderTest) -> Iterator[Violation]:
    rejection = job.state.rejection if isinstance(job.state, HyperPodJob) else None
    if rejection is not None:
        why = f"the job fails at once: {rejection.key} is {rejection.value}, expected "
        yield violation(RuleSeverity.ERROR, rejection.key, None, why + rejection.expected)


def _retries(job: JobUnderTest) -> Iterator[Violation]:
    policy, own = job.templates.policy, "jobMaxRetryCount"
    path = _annotation(job.labels.job_max_retry_count)
    if policy.content.get(own) is not None:
        path = f"{policy.path}.{own}"
    if job.state.max_retries is None:
        why = f"default: only {MAX_RETRIES} restart for failures of nodes"
        yield violation(RuleSeverity.NOTE, path, "10", why)
    elif not job.requests.max_retries:
        yield violation(
            RuleSeverity.WARNING, path, "10", "0: the job fails at the first failure of a node"
        )


def _restart_policy(job: JobUnderTest) -> Iterator[Violation]:
    for pods in job.templates.pods:
        policy = pods.controller_spec.content.get("restartPolicy", "OnFailure")
        if policy == "OnFailure":
            continue
        why = "the operator fails the job permanently when a rank fails"
        if policy == "Always":
            why = "ranks that succeeded are restarted, so that the job never ends"
        yield violation(
            RuleSeverity.ERROR,
            f"{pods.controller_spec.path}.restartPolicy",
            "OnFailure",
            f"{policy}: {why}",
        )


def _run_backoff(job: JobUnderTest) -> Iterator[Violation]:
    policy = job.templates.policy
    limit = policy.content.get("backoffLimit")
    if limit is not None:
        severity = RuleSeverity.WARNING if limit else RuleSeverity.ERROR
        why = (
            f"{limit}: the operator counts container restarts itself and fails the job permanently,"
            " whatever retries are left"
        )
        yield violation(severity, f"{policy.path}.backoffLimit", None, why)


def _job_backoff(job: JobUnderTest) -> Iterator[Violation]:
    restarts = 1 + job.requests.max_retries + job.requests.max_app_retries
    own = _own_restarts(job)
    if own >= restarts:
        return
    for pods in job.templates.pods:
        limit = pods.controller_spec.content.get("backoffLimit", _JOB_BACKOFF)
        if limit >= pods.ranks * restarts:
            continue
        ends = "one crash of all ranks ends" if limit < pods.ranks else "some restarts end"
        if own:
            ends = f"its failurePolicy restarts it for that {own} times at most, and then ends"
        why = f"{limit}: each failed pod counts, {pods.ranks} at a time; {ends} the job permanently"
        severity = RuleSeverity.ERROR if limit < pods.ranks and not own else RuleSeverity.WARNING
        yield violation(severity, f"{pods.controller_spec.path}.backoffLimit", NO_LIMIT, why)


def _own_restarts(job: JobUnderTest) -> int:
    """Number of times that the JobSet controller restarts the set before it fails with a Job."""
    own: int = job.templates.policy.at("failurePolicy").content.get("maxRestarts") or 0
    return own


def _index_limits(job: JobUnderTest) -> Iterator[Violation]:
    for pods in job.templates.pods:
        if pods.controller_spec.content.get("backoffLimitPerIndex") is not None:
            why = "a rank that fails so often is not restarted, and the others wait for it forever"
            yield violation(
                RuleSeverity.ERROR, f"{pods.controller_spec.path}.backoffLimitPerIndex", None, why
            )
        rules = (pods.controller_spec.content.get("podFailurePolicy") or {}).get("rules") or ()
        fails = any(rule.get("action") in ("FailJob", "FailIndex") for rule in rules)
        if fails and not _own_restarts(job):
            why = "its rules fail the job permanently before it can be restarted"
            yield violation(
                RuleSeverity.WARNING, f"{pods.controller_spec.path}.podFailurePolicy", None, why
            )


def _launcher_backoff(job: JobUnderTest) -> Iterator[Violation]:
    policy = job.templates.policy
    limit = policy.content.get("backoffLimit", _JOB_BACKOFF)
    needed = 1 + job.requests.max_retries + job.requests.max_app_retries
    if limit < needed:
        why = f"{limit}: every failure of the launcher counts; then the job fails permanently"
        yield violation(RuleSeverity.WARNING, f"{policy.path}.backoffLimit", needed, why)


def _driver_backoff(job: JobUnderTest) -> Iterator[Violation]:
    policy, needed = job.templates.policy, job.requests.max_app_retries
    limit = policy.content.get("backoffLimit", 0)
    if limit < needed:
        why = f"{limit}: only the operator restarts a failed driver, this many times"
        yield violation(RuleSeverity.WARNING, f"{policy.path}.backoffLimit", needed, why)


def _clean_pods(job: JobUnderTest) -> Iterator[Violation]:
    policy = job.templates.policy
    value = policy.content.get("cleanPodPolicy") or "None"
    if value == "None":
        why = f"{value}: ranks that still run when the job ends keep running and keep their devices"
        yield violation(
            RuleSeverity.WARNING, f"{policy.path}.cleanPodPolicy", PodPhase.RUNNING, why
        )


def _ttl(job: JobUnderTest) -> Iterator[Violation]:
    policy = job.templates.policy
    value = policy.content.get("ttlSecondsAfterFinished")
    if value is not None and timedelta(seconds=value) < EVIDENCE_KEPT:
        took = format_duration(timedelta(seconds=value))
        why = f"the job and the history of its attempts are deleted {took} after its end"
        value = int(timedelta(days=1).total_seconds())
        yield violation(RuleSeverity.NOTE, f"{policy.path}.ttlSecondsAfterFinished", value, why)


RULES: Final = (
    JobRule("auto-resume-off", _auto_resume_off),
    JobRule("invalid-annotation", _unusable),
    JobRule("cannot-restart", _obstacle),
    JobRule("cannot-restart", _rejected, frozenset(("HyperPodPyTorchJob",))),
    JobRule("no-retries", _retries),
    JobRule("restart-policy", _restart_policy, frozenset(("PyTorchJob",))),
    JobRule("backoff-limit", _run_backoff, frozenset(("PyTorchJob",))),
    JobRule("backoff-limit", _launcher_backoff, frozenset(("MPIJob",))),
    JobRule("backoff-limit", _job_backoff, _BATCH),
    JobRule("backoff-limit", _driver_backoff, frozenset(("RayJob",))),
    JobRule("index-limit", _index_limits, _BATCH),
    JobRule("clean-pod-policy", _clean_pods, _KUBEFLOW),
    JobRule("node-selector", node_selector),
    JobRule("rendezvous-timeout", rendezvous),
    JobRule("checkpoint-volume", checkpoints),
    JobRule("grace-period", grace),
    JobRule("time-to-live", _ttl, _KUBEFLOW | _BATCH),
)
"""One row for each rule and kind; a name means the same in all of them."""
