"""Traps in the pods of a job, whatever its kind: pure."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.kubernetes.jobs.anatomy import Part, texts
from holdfast.adapters.kubernetes.jobs.trap import Line, Patient, Severity
from holdfast.kit.units import format_duration
from holdfast.model.names import HealthStatus

REPAIR: Final = timedelta(minutes=30)
"""How long a replacement may take; HyperPod's take 20 to 30 minutes, and it advises ranks to wait
for each other as long."""

LONG_GRACE: Final = timedelta(minutes=5)
"""A stop that may take longer than that holds up every restart."""

_RENDEZVOUS: Final = timedelta(minutes=10)
"""torchrun's default, of ``timeout`` as well as of ``join_timeout``."""

_TIMEOUTS: Final = re.compile(r"\b(?:join_)?timeout=(\d{1,9})\b")
_TORCHRUN: Final = re.compile(r"\btorchrun\b|\btorch\.distributed\.(?:run|launch)\b")
_RENDEZVOUS_VARIABLE: Final = "PET_RDZV_CONF"
_PASSING: Final = frozenset(("emptyDir", "hostPath"))
_NO_STORAGE: Final = frozenset(("configMap", "secret", "downwardAPI", "projected", "image"))
_WAIT: Final = "timeout={0:.0f},join_timeout={0:.0f}".format(REPAIR.total_seconds())


def node_selector(patient: Patient) -> Iterator[Line]:
    """Pods that may go to nodes that take no work."""
    label = patient.labels.node_health_status
    for pods in patient.parts.pods:
        spec = pods.spec
        said = (spec.content.get("nodeSelector") or {}).get(label)
        if said == HealthStatus.SCHEDULABLE or _has_affinity(spec, label):
            continue
        severity = Severity.ERROR if said or _tolerates_all(spec) else Severity.WARNING
        why = f"{said}: no node that takes work has it" if said else "pods may go to a faulty node"
        path = f'{spec.path}.nodeSelector["{label}"]'
        yield Line(severity, path, HealthStatus.SCHEDULABLE.value, why)


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


def rendezvous(patient: Patient) -> Iterator[Line]:
    """Ranks that do not wait for each other as long as a repair may take."""
    elastic = patient.parts.elastic
    given = [
        f"{one.get('key')}={one.get('value')}" for one in elastic.content.get("rdzvConf") or ()
    ]
    for pods in patient.parts.pods:
        for container in pods.containers:
            said = [*texts(container.content.get("command")), *texts(container.content.get("args"))]
            if not (elastic.content or any(map(_TORCHRUN.search, said))):
                continue
            variables = container.content.get("env") or ()
            conf = [str(e.get("value")) for e in variables if e.get("name") == _RENDEZVOUS_VARIABLE]
            longest = _timeout((*said, *conf, *given))
            if longest < REPAIR:
                why = (
                    f"ranks wait {format_duration(longest)} for each other, a repair may take "
                    f"{format_duration(REPAIR)}: those that start first give up"
                )
                value = f'{{name: {_RENDEZVOUS_VARIABLE}, value: "{_WAIT}"}}'
                yield Line(Severity.WARNING, f"{container.path}.env[]", value, why)


def _timeout(said: tuple[str, ...]) -> timedelta:
    seconds = [int(number) for text in said for number in _TIMEOUTS.findall(text)]
    return timedelta(seconds=max(seconds)) if seconds else _RENDEZVOUS


def checkpoints(patient: Patient) -> Iterator[Line]:
    """Pods without a volume that outlives them."""
    volumes = [
        (pods, one) for pods in patient.parts.pods for one in pods.spec.content.get("volumes") or ()
    ]
    if not patient.parts.pods or any(_outlives(one) for _, one in volumes):
        return
    path = f"{patient.parts.pods[-1].spec.path}.volumes[]"
    value = "{name: checkpoints, persistentVolumeClaim: {claimName: CLAIM}}"
    why = "no volume outlives a pod: each restart begins anew, unless an object store is used"
    for pods, one in volumes:
        kind = next((kind for kind in _PASSING if kind in one), "")
        if kind and not _is_scratch(one):
            path, name = f"{pods.spec.path}.volumes[]", one.get("name")
            why = (
                f"volume {name!r} is an {kind}: it goes with the pod"
                if kind == "emptyDir"
                else f"volume {name!r} is a {kind}: another node has another, unless it is shared"
            )
            break
    yield Line(Severity.WARNING, path, value, why)


def _outlives(volume: Json) -> bool:
    return any(key not in ("name", *_PASSING, *_NO_STORAGE) for key in volume)


def _is_scratch(volume: Json) -> bool:
    """Shared memory, as ranks on one node need it."""
    return (volume.get("emptyDir") or {}).get("medium") == "Memory"


def grace(patient: Patient) -> Iterator[Line]:
    """Pods that are given no time to end, or too much."""
    for pods in patient.parts.pods:
        said: Any = pods.spec.content.get("terminationGracePeriodSeconds")
        path = f"{pods.spec.path}.terminationGracePeriodSeconds"
        if said == 0:
            why = "0: pods are forgotten while their processes may still run and write"
            yield Line(Severity.ERROR, path, 30, why)
        elif said is not None and timedelta(seconds=said) > LONG_GRACE:
            took = format_duration(timedelta(seconds=said))
            why = f"a stop may take {took}, and every restart waits for it"
            yield Line(Severity.WARNING, path, int(LONG_GRACE.total_seconds()), why)
