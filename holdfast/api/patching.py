"""``AutoPatchConfig``: newer images are installed when nodes are idle."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from holdfast.api.deployments import deployment_rejections, requested_deployment
from holdfast.api.problems import ValidationException
from holdfast.api.sagemaker_model import Json
from holdfast.model.clusters import DesiredGroup
from holdfast.model.deployments import Patching, PatchingStrategy

KEY: Final = "AutoPatchConfig"

_STRATEGIES: Final = tuple(PatchingStrategy)


def patching_rejections(group: Json) -> Iterator[str]:
    """Problems of the ``AutoPatchConfig`` of a group that the model does not detect."""
    config = group.get(KEY)
    if config is None:
        return
    if config["PatchingStrategy"] not in _STRATEGIES:
        yield (
            f"{KEY}.PatchingStrategy: {config['PatchingStrategy']} is not supported: it drains "
            f"nodes; expected {' or '.join(_STRATEGIES)}, or set ScheduledUpdateConfig, whose "
            "updates drain nodes by the policy of the controller"
        )
    if "ImageId" in group:
        yield (
            f"{KEY}: ImageId is {group['ImageId']} and fixed, so that no patch follows; omit "
            "ImageId, and set the image in [ec2] of the configuration of the server"
        )
    for problem in deployment_rejections(config.get("DeploymentConfig", {})):
        yield f"{KEY}.{problem}"


def requested_patching(group: Json, now: datetime) -> Patching | None:
    """Automatic patching of a valid group; None without it.

    Raises:
        ValidationException: the requested time has passed.

    """
    config = group.get(KEY)
    if config is None:
        return None
    at = config.get("PatchSchedule", {}).get("NextPatchDate")
    if at is not None and at <= now:
        raise ValidationException(
            f"InstanceGroups: {group['InstanceGroupName']}: {KEY}.PatchSchedule.NextPatchDate: "
            f"{at:%Y-%m-%dT%H:%M:%SZ} has passed, it is {now:%Y-%m-%dT%H:%M:%SZ}"
        )
    deployment = config.get("DeploymentConfig", {})
    window = config.get("IdleWaitWindowInSeconds")
    patching = Patching(
        strategy=PatchingStrategy(config["PatchingStrategy"]),
        deployment=requested_deployment(deployment),
        next_at=at,
        config=deployment,
    )
    if window is None:
        return patching
    return replace(patching, idle_window=timedelta(seconds=window))


def changed_patching(before: Patching | None, after: Patching | None) -> Patching | None:
    """Updated patching: a known patch stays known, at its time unless the update sets another."""
    if before is None or after is None:
        return after
    return replace(
        after, image=before.image, tried=before.tried, next_at=after.next_at or before.next_at
    )


def described_patching(group: DesiredGroup) -> Json | None:
    """``AutoPatchConfig`` of ``DescribeCluster``; None without it."""
    patching = group.patching
    if patching is None:
        return None
    schedule = None if patching.next_at is None else {"NextPatchDate": patching.next_at}
    return {
        "PatchingStrategy": patching.strategy,
        "CurrentPatchSchedule": schedule,
        "DesiredPatchSchedule": schedule,
        "DeploymentConfig": dict(patching.config) or None,
        "IdleWaitWindowInSeconds": round(patching.idle_window.total_seconds()),
    }


def image_status(group: DesiredGroup) -> str | None:
    """``ImageVersionStatus`` of a group; None if it is not patched."""
    if group.patching is None or not group.made_of.image:
        return None
    return "UpdateAvailable" if group.patching.image else "UpToDate"
