"""Diagnoses jobs of a Kubernetes cluster, and jobs in manifests before they are submitted."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.errors import Forbidden, Json
from holdfast.adapters.kubernetes.jobs.doctor_rules import diagnose_job
from holdfast.adapters.kubernetes.jobs.job_kind import JobKind
from holdfast.adapters.kubernetes.jobs.kinds import KINDS
from holdfast.adapters.kubernetes.jobs.requests import requests_of
from holdfast.adapters.kubernetes.nodes.node import Conventions, trimmed
from holdfast.adapters.kubernetes.settings import KubernetesSettings
from holdfast.decisions.doctor import Diagnostic, LineChange, RuleSeverity, Violation, diagnostic
from holdfast.model.errors import ConfigError
from holdfast.model.names import Labels

_UNKNOWN: Final = {"namespace": "default", "name": "", "uid": ""}
"""Metadata that only the API server sets."""

_NAMED: Final = 5
"""Maximum number of node names in a diagnostic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDiagnosis:
    """Diagnostics of one job."""

    job: str
    diagnostics: tuple[Diagnostic, ...]
    """Diagnostics, the worst first."""


def diagnose_object(
    kind: JobKind, job: Json, body: Json | None = None, groupless: Sequence[str] = ()
) -> JobDiagnosis:
    """Return the diagnosis of a job.

    Args:
        kind: kind of the job.
        job: the whole object, or the manifest that somebody plans to submit.
        body: the object created for the job that has its pods, if the job has none itself.
        groupless: names of the nodes of the cluster without a group label.

    Raises:
        ConfigError: the object does not have the fields of its kind.

    """
    labels = Labels()
    try:
        state = kind.trimmed({**job, "metadata": {**_UNKNOWN, **job["metadata"]}}, labels)
        parts, whole = kind, job
        if kind.body is not None and body is not None:
            state = state.with_body(kind.body.trimmed(body, labels))
            parts, whole = kind.body, body
        found = diagnose_job(state, requests_of(state, labels), labels, parts.kind, whole)
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise ConfigError(f"invalid {kind.kind}: {error}") from error
    return JobDiagnosis(job=state.key, diagnostics=(*found, *_groupless(groupless)))


def _groupless(nodes: Sequence[str]) -> Iterator[Diagnostic]:
    """Yield the note on nodes without a group label, if there are any."""
    if nodes:
        named = ", ".join(nodes[:_NAMED]) + (", ..." if len(nodes) > _NAMED else "")
        value = f"{KubernetesSettings().group_labels[0]}=NAME, or another label of"
        yield diagnostic(
            "nodes-without-group",
            Violation(
                severity=RuleSeverity.NOTE,
                found=f"no group label: {named}",
                why="any new node without a group label may replace one of these nodes",
                remedy=LineChange("node labels", f"{value} kubernetes.group_labels"),
            ),
        )


def diagnose_manifest(text: str, source: str) -> list[JobDiagnosis]:
    """Return the diagnoses of all jobs in a manifest, YAML or JSON, with any number of objects.

    Raises:
        ConfigError: the manifest is invalid or has no job; the message names ``source``.

    """
    try:
        objects = [one for document in yaml.safe_load_all(text) for one in _objects(document)]
        found = [
            diagnose_object(kind, one)
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
        raise ConfigError(f"{source}: no job of a supported kind found; supported kinds: {known}")
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


def groupless_nodes(api: Api) -> list[str]:
    """Return the managed nodes without a group label; empty if RBAC forbids listing nodes."""
    conventions = Conventions(group_labels=KubernetesSettings().group_labels)
    selector = {"labelSelector": conventions.labels.node_health_status}
    try:
        nodes = list(api.list("/api/v1/nodes", selector))
    except Forbidden:
        return []
    states = [trimmed(node, conventions) for node in nodes]
    return sorted(state.name for state in states if not state.group)
