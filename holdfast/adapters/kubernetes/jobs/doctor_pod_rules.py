"""Doctor rules on the pods of a job of any kind: pure."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.kubernetes.jobs.doctor_subject import JobUnderTest, violation
from holdfast.adapters.kubernetes.jobs.pod_templates import Part, texts
from holdfast.decisions.doctor import RuleSeverity, Violation
from holdfast.kit.units import format_duration
from holdfast.model.names import HealthStatus

REPAIR: Final = timedelta(minutes=30)
"""Longest time that a replacement takes. HyperPod's take 20 to 30 minutes; it advises ranks to wait
that long for each other."""

LONG_GRACE: Final = timedelta(minutes=5)
"""Longest grace period that does not delay every restart noticeably."""

_RENDEZVOUS: Final = timedelta(minutes=10)
"""Default of torchrun for ``timeout`` and ``join_timeout``."""

_TIMEOUTS: Final = re.compile(r"\b(?:join_)?timeout=(\d{1,9})\b")
_TORCHRUN: Final = re.compile(r"\btorchrun\b|\btorch\.distributed\.(?:run|launch)\b")
_RENDEZVOUS_VARIABLE: Final = "PET_RDZV_CONF"
_PASSING: Final = frozenset(("emptyDir", "hostPath"))
_NO_STORAGE: Final = frozenset(("configMap", "secret", "downwardAPI", "projected", "image"))
_WAIT: Final = "timeout={0:.0f},join_timeout={0:.0f}".format(REPAIR.total_seconds())


def node_selector(job: JobUnderTest) -> Iterator[Violation]:
    """Pods that may be scheduled on nodes that are not schedulable."""
    label = job.labels.node_health_status
    for pods in job.templates.pods:
        spec = pods.spec
        value = (spec.content.get("nodeSelector") or {}).get(label)
        if value == HealthStatus.SCHEDULABLE or _has_affinity(spec, label):
            continue
        severity = RuleSeverity.ERROR if value or _tolerates_all(spec) else RuleSeverity.WARNING
        why = (
            f"{value}: no schedulable node has this label value"
            if value
            else "pods may be scheduled on a faulty node"
        )
        path = f'{spec.path}.nodeSelector["{label}"]'
        yield violation(severity, path, HealthStatus.SCHEDULABLE.value, why)


def _has_affinity(spec: Part, label: str) -> bool:
    affinity = spec.at("affinity").at("nodeAffinity")
    required = affinity.at("requiredDuringSchedulingIgnoredDuringExecution")
    terms = required.content.get("nodeSelectorTerms") or ()
    return bool(terms) and all(
        any(
            one.get("key") == label and one.get("values") == [HealthStatus.SCHEDULABLE.value]
            for one in term.get("matchExpressions") or ()
        )
        for term in terms
    )


def _tolerates_all(spec: Part) -> bool:
    tolerations = spec.content.get("tolerations") or ()
    return any(one.get("operator") == "Exists" and not one.get("key") for one in tolerations)


def rendezvous(job: JobUnderTest) -> Iterator[Violation]:
    """Ranks whose rendezvous times out before a repair ends."""
    elastic = job.templates.elastic
    given = [
        f"{one.get('key')}={one.get('value')}" for one in elastic.content.get("rdzvConf") or ()
    ]
    for pods in job.templates.pods:
        for container in pods.containers:
            arguments = [
                *texts(container.content.get("command")),
                *texts(container.content.get("args")),
            ]
            if not (elastic.content or any(map(_TORCHRUN.search, arguments))):
                continue
            variables = container.content.get("env") or ()
            conf = [str(e.get("value")) for e in variables if e.get("name") == _RENDEZVOUS_VARIABLE]
            longest = _timeout((*arguments, *conf, *given))
            if longest < REPAIR:
                why = (
                    f"the rendezvous times out after {format_duration(longest)}, a repair may take "
                    f"{format_duration(REPAIR)}: ranks that start first fail"
                )
                value = f'{{name: {_RENDEZVOUS_VARIABLE}, value: "{_WAIT}"}}'
                yield violation(RuleSeverity.WARNING, f"{container.path}.env[]", value, why)


def _timeout(arguments: tuple[str, ...]) -> timedelta:
    seconds = [int(number) for text in arguments for number in _TIMEOUTS.findall(text)]
    return timedelta(seconds=max(seconds)) if seconds else _RENDEZVOUS


def checkpoints(job: JobUnderTest) -> Iterator[Violation]:
    """Pods without a persistent volume."""
    volumes = [
        (pods, one) for pods in job.templates.pods for one in pods.spec.content.get("volumes") or ()
    ]
    if not job.templates.pods or any(_outlives(one) for _, one in volumes):
        return
    path = f"{job.templates.pods[-1].spec.path}.volumes[]"
    value = "{name: checkpoints, persistentVolumeClaim: {claimName: CLAIM}}"
    why = "no volume outlives a pod: each restart begins at step 0, unless an object store is used"
    for pods, one in volumes:
        kind = next((kind for kind in _PASSING if kind in one), "")
        if kind and not _is_scratch(one):
            path, name = f"{pods.spec.path}.volumes[]", one.get("name")
            why = (
                f"volume {name!r} is an {kind}: it is deleted with the pod"
                if kind == "emptyDir"
                else f"volume {name!r} is a {kind}: it is local to the node, unless it is shared"
            )
            break
    yield violation(RuleSeverity.WARNING, path, value, why)


def _outlives(volume: Json) -> bool:
    return any(key not in ("name", *_PASSING, *_NO_STORAGE) for key in volume)


def _is_scratch(volume: Json) -> bool:
    """Whether a volume is shared memory, which ranks on one node need."""
    return (volume.get("emptyDir") or {}).get("medium") == "Memory"


def grace(job: JobUnderTest) -> Iterator[Violation]:
    """Pods whose grace period is zero or too long."""
    for pods in job.templates.pods:
        value: Any = pods.spec.content.get("terminationGracePeriodSeconds")
        path = f"{pods.spec.path}.terminationGracePeriodSeconds"
        if value == 0:
            why = "0: pods are removed while their processes may still run and write"
            yield violation(RuleSeverity.ERROR, path, 30, why)
        elif value is not None and timedelta(seconds=value) > LONG_GRACE:
            took = format_duration(timedelta(seconds=value))
            why = f"a stop may take {took}, which delays every restart"
            yield violation(RuleSeverity.WARNING, path, int(LONG_GRACE.total_seconds()), why)
