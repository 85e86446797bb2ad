"""HyperPod's ``HyperPodPyTorchJob``, whose pods Holdfast itself creates: see ``pod_operator``."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.kubernetes.client.values import format_time, parse_time
from holdfast.adapters.kubernetes.jobs.conditions import (
    SUSPENDED,
    changed_at,
    condition_of,
    ending_of,
    with_failure,
)
from holdfast.adapters.kubernetes.jobs.job_kind import RunPolicyKind
from holdfast.adapters.kubernetes.jobs.objects import (
    QUEUE,
    JobState,
    PodRank,
    described,
    group_of,
)
from holdfast.kit.rejections import Rejection, excerpt
from holdfast.model.names import HYPERPOD_JOB, LABEL_PREFIX, NODE_RANK, Labels, PodPhase

NEVER: Final = "Never"
"""Restart policy of all pods: a launcher restarts ranks in its pod, and Holdfast the whole job."""

TIMES: Final = ("lastProbeTime", "lastTransitionTime")
"""Time fields of a condition."""

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_HOSTNAME_CHARS: Final = 63  # RFC 1123


@dataclass(frozen=True, slots=True, kw_only=True)
class HyperPodJob(JobState):
    """State of a ``HyperPodPyTorchJob``, with the whole object for its operator."""

    whole: Json = field(compare=False)
    rejection: Rejection | None = None
    """Field that prevents it from running; None if it can run."""

    @property
    def spec(self) -> Json:
        """``spec`` of the object."""
        return self.whole.get("spec") or {}

    @property
    def run_policy(self) -> Json:
        """``spec.runPolicy`` of the object."""
        return self.spec.get("runPolicy") or {}

    @property
    def shown(self) -> Json:
        """``status`` of the object."""
        return self.whole.get("status") or {}

    @property
    def places(self) -> Sequence[tuple[Json, int]]:
        """Replica spec and index in it of each node rank."""
        return [(one, index) for one in _replicas(self.spec) for index in range(_size(one))]

    def pod_name(self, rank: int) -> str:
        """Return the name of the pod of a node rank, as HyperPod's training operator names it."""
        replica, index = self.places[rank]
        return f"{self.name}-{replica.get('name')}-{index}"


class HyperPodJobs(RunPolicyKind):
    """See ``JobKind``. Node ranks are counted through all replica specs, spares included.

    Auto-resume is always on. The operator reads the attempt from the record of the job, so the
    object needs no patch for it.
    """

    kind: Final = "HyperPodPyTorchJob"
    api_version: Final = f"{LABEL_PREFIX}/v1"
    plural: Final = "hyperpodpytorchjobs"
    pod_selector: Final = HYPERPOD_JOB

    def trimmed(self, job: Json, labels: Labels) -> HyperPodJob:
        """See ``JobKind.trimmed``."""
        spec, status = job.get("spec") or {}, job.get("status") or {}
        fields = described(self, job, labels)
        return HyperPodJob(
            **{**fields, **_requested(spec.get("runPolicy") or {}, fields), "queue": None},
            started_at=changed_at(job, SUSPENDED) or parse_time(status.get("startTime")),
            is_suspended=(spec.get("runPolicy") or {}).get("suspend") is True,
            is_stop_seen=condition_of(job, SUSPENDED) is not None,
            ending=ending_of(job, PodPhase.SUCCEEDED.value),
            groups=tuple(
                group_of(_size(one), one.get("template") or {}, NEVER) for one in _replicas(spec)
            ),
            whole=job,
            rejection=next(_rejections(job), None),
        )

    def member(self, pod: Json) -> PodRank | None:
        """See ``JobKind.member``."""
        labels: Mapping[str, str] = pod["metadata"].get("labels") or {}
        job, rank = labels.get(HYPERPOD_JOB), str(labels.get(NODE_RANK))
        if not job or not (rank.isascii() and rank.isdecimal()):
            return None
        return PodRank(job=job, rank=int(rank), container="")

    def attempt_patch(
        self,
        job: Json,  # noqa: ARG002 - the operator reads the record
        annotations: dict[str, str],  # noqa: ARG002
        environment: dict[str, str],  # noqa: ARG002
    ) -> Json:
        """See ``JobKind.attempt_patch``."""
        return {}

    def failed(self, job: Json, reason: str, message: str, now: datetime) -> Json:
        """See ``JobKind.failed``."""
        conditions = with_failure(job, reason, message, now, times=TIMES)
        return {"status": {"conditions": conditions, "completionTime": format_time(now)}}


def _requested(policy: Json, annotated: Mapping[str, object]) -> dict[str, object]:
    """Return the settings that other kinds have in annotations; a run policy goes before them."""
    total, rules = policy.get("jobMaxRetryCount"), policy.get("logMonitoringConfiguration")
    full = (policy.get("restartPolicy") or {}).get("maxFullJobRestarts", total)
    keep_pods = annotated["keep_pods"]
    return {
        "auto_resume": "true",
        "max_retries": annotated["max_retries"] if total is None else str(total),
        "max_app_retries": annotated["max_app_retries"] if full is None else str(full),
        "max_all_retries": total,
        "log_rules": json.dumps(rules) if rules else annotated["log_rules"],
        "keep_pods": "true" if keep_pods is None else keep_pods,
    }


def _rejections(job: Json) -> Iterator[Rejection]:
    """Yield the fields that prevent a job from running."""
    spec, metadata = job.get("spec") or {}, job["metadata"]
    fixed = "no value: the number of nodes is fixed; use spares"
    if spec.get("elasticPolicy"):
        yield Rejection(key="spec.elasticPolicy", value="an object", expected=fixed)
    mode = (spec.get("runPolicy") or {}).get("workloadMode")
    if mode:
        yield Rejection(key="spec.runPolicy.workloadMode", value=excerpt(mode), expected=fixed)
    for index, replica in enumerate(_replicas(spec)):
        key, most = f"spec.replicaSpecs[{index}]", replica.get("maxReplicas")
        if most is not None and most != (replica.get("replicas") or 0):
            yield Rejection(key=f"{key}.maxReplicas", value=str(most), expected=fixed)
        name = f"{metadata['name']}-{replica.get('name')}-{_size(replica)}"
        if len(name) > _HOSTNAME_CHARS or not _NAME.fullmatch(name):
            expected = f"a name with which {name} is a host name of at most {_HOSTNAME_CHARS} chars"
            yield Rejection(key=f"{key}.name", value=str(replica.get("name")), expected=expected)
    if not any(_size(one) for one in _replicas(spec)):
        yield Rejection(key="spec.replicaSpecs", value="0 replicas", expected="1 replica or more")
    queue = (metadata.get("labels") or {}).get(QUEUE)
    if queue is not None:
        expected = "no queue: Kueue does not admit this kind; use PyTorchJob"
        yield Rejection(key=f"label {QUEUE}", value=excerpt(queue), expected=expected)


def _replicas(spec: Json) -> Sequence[Json]:
    return spec.get("replicaSpecs") or ()


def _size(replica: Json) -> int:
    """Return the number of pods of a replica spec, spares included."""
    return (replica.get("replicas") or 0) + (replica.get("spares") or 0)
