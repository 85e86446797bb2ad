"""Operations on scheduler configurations of clusters."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from holdfast.api import policies
from holdfast.api.call import Call
from holdfast.api.policies import PolicyType
from holdfast.api.problems import Conflict, ValidationException
from holdfast.api.sagemaker_model import Json
from holdfast.model.team_queues import Policy, SchedulerConfig

_KEY: Final = "SchedulerConfig"

SCHEDULER: Final = PolicyType(
    name="ClusterSchedulerConfig",
    arn_part="cluster-scheduler-config",
    noun="Cluster scheduler configuration",
    owns=lambda policy: policy.scheduler is not None,
    members=(_KEY,),
)


def create_scheduler_config(call: Call) -> Json:
    """See ``CreateClusterSchedulerConfig``."""
    return policies.create(call, SCHEDULER, {"scheduler": _config(call.request[_KEY])}, _only_one)


def update_scheduler_config(call: Call) -> Json:
    """See ``UpdateClusterSchedulerConfig``."""

    def changed(policy: Policy) -> Policy:
        if _KEY not in call.request:
            return policy
        return replace(policy, scheduler=_config(call.request[_KEY]))

    return policies.update(call, SCHEDULER, changed)


def delete_scheduler_config(call: Call) -> Json:
    """See ``DeleteClusterSchedulerConfig``."""
    return policies.delete(call, SCHEDULER)


def describe_scheduler_config(call: Call) -> Json:
    """See ``DescribeClusterSchedulerConfig``."""
    policy = policies.named(call, SCHEDULER)
    config = dict(policies.describe(call, SCHEDULER))
    given = config[_KEY]
    return {**config, "StatusDetails": dict.fromkeys(given, policy.status)}


def list_scheduler_configs(call: Call) -> Json:
    """See ``ListClusterSchedulerConfigs``."""
    return policies.list_all(call, SCHEDULER, lambda _: {})


def _only_one(policy: Policy, others: Sequence[Policy]) -> None:
    for one in others:
        raise Conflict(
            f"Cluster {policy.cluster} has the scheduler configuration {one.name}; update it, or "
            "delete it first"
        )


def _config(given: Json) -> SchedulerConfig:
    classes = given.get("PriorityClasses", ())
    names = [one["Name"] for one in classes]
    for name in names:
        if names.count(name) > 1:
            raise ValidationException(f"{_KEY}.PriorityClasses: {name} is duplicated")
    return SchedulerConfig(
        priorities={one["Name"]: one["Weight"] for one in classes},
        fair_share=given.get("FairShare", "Enabled") == "Enabled",
        shares_idle=given.get("IdleResourceSharing", "Disabled") == "Enabled",
    )
