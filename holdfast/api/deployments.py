"""``DeploymentConfig`` and ``ScheduledUpdateConfig``: how and when software is updated."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from holdfast.api.problems import ValidationException
from holdfast.api.sagemaker_model import Json
from holdfast.decisions.scheduled_updates import next_run
from holdfast.kit.cron import CronSchedule
from holdfast.model.clusters import UpdateSchedule
from holdfast.model.deployments import BatchSize, Deployment

_KEY = "ScheduledUpdateConfig"


def deployment_rejections(config: Json) -> Iterator[str]:
    """Problems of a ``DeploymentConfig`` that the model does not detect."""
    policy = config.get("RollingUpdatePolicy", {})
    for name in ("MaximumBatchSize", "RollbackMaximumBatchSize"):
        size = policy.get(name)
        if size is not None and _size(size).is_percentage and size["Value"] > 100:
            yield (
                f"DeploymentConfig.RollingUpdatePolicy.{name}: a batch of {size['Value']} % "
                "exceeds 100 %"
            )


def alarm_rejections(config: Json, *, has_alarms: bool) -> Iterator[str]:
    """Why a server cannot observe the alarms of a ``DeploymentConfig``."""
    if config.get("AutoRollbackConfiguration") and not has_alarms:
        yield (
            "DeploymentConfig.AutoRollbackConfiguration: alarms are not supported; set "
            'alarms = "cloudwatch" in the configuration of the server, or omit the member'
        )


def requested_deployment(config: Json) -> Deployment:
    """How an update with a valid ``DeploymentConfig`` proceeds."""
    policy = config.get("RollingUpdatePolicy", {})
    sizes = [policy.get(one) for one in ("MaximumBatchSize", "RollbackMaximumBatchSize")]
    batch, rollback_batch = [None if one is None else _size(one) for one in sizes]
    return Deployment(
        batch=batch,
        rollback_batch=rollback_batch,
        bake=timedelta(seconds=config.get("WaitIntervalInSeconds", 0)),
        alarms=tuple(one["AlarmName"] for one in config.get("AutoRollbackConfiguration", ())),
    )


def schedule_rejections(group: Json) -> Iterator[str]:
    """Problems of the ``ScheduledUpdateConfig`` of a group that the model does not detect."""
    config = group.get(_KEY)
    if config is None:
        return
    try:
        CronSchedule.parse(config["ScheduleExpression"])
    except ValueError as error:
        yield f"{_KEY}.ScheduleExpression: {error}"
    for problem in deployment_rejections(config.get("DeploymentConfig", {})):
        yield f"{_KEY}.{problem}"


def requested_schedule(group: Json, now: datetime) -> UpdateSchedule | None:
    """Schedule of a valid group, with its next time; None without one.

    Raises:
        ValidationException: all its times have passed.

    """
    config = group.get(_KEY)
    if config is None:
        return None
    schedule = next_run(
        UpdateSchedule(
            expression=config["ScheduleExpression"],
            deployment=requested_deployment(config.get("DeploymentConfig", {})),
        ),
        now,
    )
    if schedule is not None and schedule.next_at is None:
        raise ValidationException(
            f"InstanceGroups: {group['InstanceGroupName']}: {_KEY}.ScheduleExpression: "
            f"{schedule.expression} has no time after now, {now:%Y-%m-%dT%H:%MZ}"
        )
    return schedule


def _size(given: Json) -> BatchSize:
    return BatchSize(value=given["Value"], is_percentage=given["Type"] == "CAPACITY_PERCENTAGE")
