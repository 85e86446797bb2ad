"""Annotations and environment variables in the pod templates of jobs."""

from holdfast.adapters.kubernetes.client.errors import Json


def template_patch(
    template: Json, annotations: dict[str, str], environment: dict[str, str]
) -> Json:
    """Return the merge patch that gives pods of a template these annotations and variables.

    Args:
        template: the whole ``PodTemplateSpec``.
        annotations: annotations of the pods.
        environment: variables of all their containers; empty if containers must not change.

    """
    patch: Json = {"metadata": {"annotations": dict(annotations)}}
    containers = (template.get("spec") or {}).get("containers") or []
    if environment and containers:  # a merge patch replaces lists as a whole
        patch["spec"] = {"containers": [_patched(one, environment) for one in containers]}
    return patch


def with_attempt_metadata(
    template: Json, annotations: dict[str, str], environment: dict[str, str]
) -> Json:
    """Return the whole template with these annotations and variables."""
    patch = template_patch(template, annotations, environment)
    metadata = template.get("metadata") or {}
    marked = {**(metadata.get("annotations") or {}), **annotations}
    return {
        **template,
        "metadata": {**metadata, "annotations": marked},
        "spec": {**(template.get("spec") or {}), **patch.get("spec", {})},
    }


def _patched(container: Json, environment: dict[str, str]) -> Json:
    others = [one for one in container.get("env") or () if one.get("name") not in environment]
    added = [{"name": name, "value": value} for name, value in environment.items()]
    return {**container, "env": [*others, *added]}
