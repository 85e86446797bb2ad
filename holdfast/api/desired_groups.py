"""Validates the instance groups of a request and converts them to the desired groups."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from holdfast.api.autoscaling import resized
from holdfast.api.deployments import requested_schedule, schedule_rejections
from holdfast.api.kubernetes_config import config_rejections, requested_config
from holdfast.api.patching import (
    KEY,
    changed_patching,
    patching_rejections,
    requested_patching,
)
from holdfast.api.problems import ValidationException
from holdfast.api.sagemaker_model import Json
from holdfast.api.tiered_storage import mirrors_checkpoints
from holdfast.model.clusters import (
    DesiredCluster,
    DesiredGroup,
    GroupStage,
    LifecycleScripts,
    MachineGroup,
    UpdateSchedule,
)


def rejections(request: Json) -> Iterator[str]:
    """Problems that the model does not detect."""
    names = [one["InstanceGroupName"] for one in request.get("InstanceGroups", ())]
    for twice in sorted({one for one in names if names.count(one) > 1}):
        yield f"InstanceGroups: {twice} is duplicated"
    for one in request.get("InstanceGroups", ()):
        for problem in _rejections_of(one):
            yield f"InstanceGroups: {one['InstanceGroupName']}: {problem}"


def _rejections_of(group: Json) -> Iterator[str]:
    if ("InstanceType" in group) == ("InstanceRequirements" in group):
        yield "exactly one of InstanceType and InstanceRequirements must be given"
    least = group.get("MinInstanceCount", 0)
    if least > group["InstanceCount"]:
        yield f"MinInstanceCount is {least}, which exceeds InstanceCount, {group['InstanceCount']}"
    scripts = group.get("LifeCycleConfig", {})
    if ("SourceS3Uri" in scripts) != ("OnCreate" in scripts):
        yield "LifeCycleConfig requires SourceS3Uri and OnCreate"
    for name in ("SourceS3Uri", "OnCreate"):
        if not scripts.get(name, "").isprintable():
            yield f"LifeCycleConfig.{name} contains characters that are not allowed in a file name"
    entry = scripts.get("OnCreate", "")
    if entry.startswith("/") or ".." in entry.split("/"):
        yield f"LifeCycleConfig.OnCreate must be a path within SourceS3Uri, got {entry!r}"
    yield from config_rejections(group.get("KubernetesConfig", {}))
    yield from schedule_rejections(group)
    yield from patching_rejections(group)


def desired_group(
    cluster: str, uid: str, spec: Json, shared: Mapping[str, Any], now: datetime, *, repairs: bool
) -> DesiredGroup:
    """Instance group that a request describes.

    Args:
        cluster: name of the cluster.
        uid: unique ID of the cluster.
        spec: the group in the request.
        shared: settings of the whole cluster.
        now: current time.
        repairs: whether faults are repaired automatically.

    Raises:
        ValidationException: all times of its schedule, or the time of its patch, have passed.

    """
    scripts = spec.get("LifeCycleConfig", {})
    network = {"VpcConfig": shared["VpcConfig"]} if "VpcConfig" in shared else {}
    if "OverrideVpcConfig" in spec:
        network = {"VpcConfig": spec["OverrideVpcConfig"]}
    return DesiredGroup(
        made_of=MachineGroup(
            cluster=cluster,
            uid=uid,
            name=spec["InstanceGroupName"],
            instance_type=spec.get("InstanceType", ""),
            image=spec.get("ImageId", ""),
            scripts=LifecycleScripts(source=scripts["SourceS3Uri"], on_create=scripts["OnCreate"])
            if "OnCreate" in scripts
            else None,
            repairs=repairs,
            mirrors_checkpoints=mirrors_checkpoints(shared),
            deep_checks=tuple(spec.get("OnStartDeepHealthChecks", ())),
            kubernetes=requested_config(spec.get("KubernetesConfig", {})),
            spec={**network, **{key: spec[key] for key in spec if key != KEY}},
        ),
        target=spec["InstanceCount"],
        minimum=spec.get("MinInstanceCount", 0),
        schedule=requested_schedule(spec, now),
        patching=requested_patching(spec, now),
    )


def changed_group(before: DesiredGroup, after: DesiredGroup) -> DesiredGroup:
    """Updated group; its existing machines are unchanged.

    Raises:
        ValidationException: the update changes the instance type.

    """
    types = [one.made_of.instance_type for one in (before, after)]
    if types[0] != types[1]:
        raise ValidationException(
            f"InstanceGroups: {before.name}: InstanceType is {types[0]} and cannot be changed; "
            "add a group with another name"
        )
    made_of = replace(
        after.made_of,
        image=before.made_of.image,
        previous_image=before.made_of.previous_image,
        revision=before.made_of.revision,
    )
    after = resized(before, after)
    changed = replace(
        before,
        target=after.target,
        minimum=after.minimum,
        most=after.most,
        schedule=_changed_schedule(before.schedule, after.schedule),
        patching=changed_patching(before.patching, after.patching),
        failure="",  # of the state before, which must not fail the update
    )
    if made_of == before.made_of:
        return changed
    return replace(changed, made_of=made_of, stage=GroupStage.NEW, shape=None)


def _changed_schedule(
    before: UpdateSchedule | None, after: UpdateSchedule | None
) -> UpdateSchedule | None:
    """Updated schedule; a run that is due stays due unless the times change."""
    if before is None or after is None or before.expression != after.expression:
        return after
    return replace(after, next_at=before.next_at)


def node_count(clusters: Sequence[DesiredCluster]) -> int:
    """Maximum number of nodes of clusters, without groups that are being deleted."""
    return sum(one.limit for cluster in clusters for one in cluster.groups if not one.is_going)
