"""Which traps jobs are in: those of a cluster, and those that somebody means to submit."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.kubernetes.jobs.job_kind import JobKind
from holdfast.adapters.kubernetes.jobs.kinds import KINDS
from holdfast.adapters.kubernetes.jobs.requests import wishes_of
from holdfast.adapters.kubernetes.jobs.trap import Finding, Severity
from holdfast.adapters.kubernetes.jobs.traps import traps_of
from holdfast.adapters.kubernetes.settings import KubernetesSettings
from holdfast.model.errors import ConfigError
from holdfast.model.names import Labels

_UNKNOWN: Final = {"namespace": "default", "name": "", "uid": ""}
"""What objects get only from the API server."""

_NAMED: Final = 5
"""Nodes that a finding names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """One job, and what may keep it from resuming."""

    job: str
    traps: tuple[Finding, ...]
    """The worst first."""


def examined(
    kind: JobKind, job: Json, body: Json | None = None, groupless: Sequence[str] = ()
) -> Diagnosis:
    """Look at a job.

    Args:
        kind: of the job.
        job: the whole object, or what somebody means to submit.
        body: what was made for it and has its pods, if it has none itself.
        groupless: names of nodes of its cluster without a group label.

    Raises:
        ConfigError: the object is not what its kind says.

    """
    labels = Labels()
    try:
        state = kind.trimmed({**job, "metadata": {**_UNKNOWN, **job["metadata"]}}, labels)
        parts, whole = kind, job
        if kind.body is not None and body is not None:
            state = state.embodied(kind.body.trimmed(body, labels))
            parts, whole = kind.body, body
        traps = traps_of(state, wishes_of(state, labels), labels, parts.kind, whole)
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise ConfigError(f"invalid {kind.kind}: {error}") from error
    return Diagnosis(job=state.key, traps=(*traps, *_groupless(groupless)))


def _groupless(nodes: Sequence[str]) -> Iterator[Finding]:
    """The note on nodes without a group label, if there are any."""
    if nodes:
        named = ", ".join(nodes[:_NAMED]) + (", ..." if len(nodes) > _NAMED else "")
        yield Finding(
            trap="nodes-without-group",
            severity=Severity.NOTE,
            why=f"no group label: {named}; the replacement of one of "
            "them may be any new node without a group label",
            path="node labels",
            value=f"{KubernetesSettings().group_labels[0]}=NAME, or another one of"
            " kubernetes.group_labels",
        )


def examined_manifest(text: str, source: str) -> list[Diagnosis]:
    """Look at the jobs in a manifest, YAML or JSON, with any number of objects.

    Raises:
        ConfigError: it cannot be read, or there is no job in it; the message names ``source``.

    """
    try:
        objects = [one for document in yaml.safe_load_all(text) for one in _objects(document)]
        found = [
            examined(kind, one)
            for one in objects
            for kind in KINDS
            if (one.get("apiVersion"), one.get("kind")) == (kind.api_version, kind.kind)
        ]
    except yaml.YAMLError as error:
        raise ConfigError(f"{source}: not valid YAML: {' '.join(str(error).split())}") from error
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error
    if not found:
        known = ", ".join(f"{kind.kind} ({kind.api_version})" for kind in KINDS)
        raise ConfigError(f"{source}: holds no job that can be looked after: {known}")
    return found


def _objects(document: Any) -> Iterator[Json]:
    if not isinstance(document, dict):
        return
    items = document.get("items")
    if isinstance(items, list):
        for one in items:
            yield from _objects(one)
    else:
        yield document
