"""Definitions of the kinds of jobs, for API servers without the operators that bring them."""

from typing import Any, Final

from holdfast.adapters.kubernetes.jobs.job_kind import JobKind

DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def definition(kind: JobKind) -> dict[str, Any]:
    """A kind whose objects may have anything in them, and have a status of their own."""
    group, _, version = kind.api_version.rpartition("/")
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {"name": version, "served": True, "storage": True, "subresources": {"status": {}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{kind.plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind.kind, "plural": kind.plural},
            "versions": [{**served, "schema": {"openAPIV3Schema": schema}}],
        },
    }
