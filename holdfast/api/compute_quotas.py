"""Operations on compute quotas."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from holdfast.api import policies
from holdfast.api.call import Call
from holdfast.api.policies import PolicyType
from holdfast.api.problems import Conflict, ValidationException, refuse
from holdfast.api.sagemaker_model import Json
from holdfast.model.team_queues import ComputeQuota, InstanceAmount, Policy

_CONFIG: Final = "ComputeQuotaConfig"
_TARGET: Final = "ComputeQuotaTarget"
_STATE: Final = "ActivationState"
_DEFAULT_BORROWING: Final = 50
"""Percent; the default of SageMaker."""

_MOST_BORROWING: Final = 500

QUOTA: Final = PolicyType(
    name="ComputeQuota",
    arn_part="compute-quota",
    noun="Compute quota",
    owns=lambda policy: policy.quota is not None,
    members=(_CONFIG, _TARGET, _STATE),
)


def create_compute_quota(call: Call) -> Json:
    """See ``CreateComputeQuota``."""
    policies.require_records(call)
    return policies.create(call, QUOTA, {"quota": _quota(call.request)}, _one_for_each_team)


def update_compute_quota(call: Call) -> Json:
    """See ``UpdateComputeQuota``."""

    def changed(policy: Policy) -> Policy:
        request = {**policy.requested, **QUOTA.requested(call.request)}
        quota = _quota(request)
        if policy.quota is not None and quota.team != policy.quota.team:
            raise ValidationException(
                f"{_TARGET}.TeamName is {policy.quota.team} and cannot be changed; create another "
                "quota"
            )
        return replace(policy, quota=quota)

    return policies.update(call, QUOTA, changed)


def delete_compute_quota(call: Call) -> Json:
    """See ``DeleteComputeQuota``."""
    return policies.delete(call, QUOTA)


def describe_compute_quota(call: Call) -> Json:
    """See ``DescribeComputeQuota``."""
    return {_STATE: "Enabled", **policies.describe(call, QUOTA)}


def list_compute_quotas(call: Call) -> Json:
    """See ``ListComputeQuotas``."""
    return policies.list_all(call, QUOTA, _content)


def _content(policy: Policy) -> Json:
    found = {key: policy.requested[key] for key in QUOTA.members if key in policy.requested}
    return {_STATE: "Enabled", **found}


def _one_for_each_team(policy: Policy, others: Sequence[Policy]) -> None:
    team = policy.quota.team if policy.quota is not None else ""
    for one in others:
        if one.quota is not None and one.quota.team == team:
            raise Conflict(f"The team {team} has the compute quota {one.name}; update it")


def _quota(request: Json) -> ComputeQuota:
    config, target = request[_CONFIG], request[_TARGET]
    sharing = config.get("ResourceSharingConfig", {})
    refuse(list(_rejections(config, sharing)))
    borrows = sharing.get("Strategy", "LendAndBorrow") == "LendAndBorrow"
    percent = sharing.get("BorrowLimit", _DEFAULT_BORROWING)
    return ComputeQuota(
        team=target["TeamName"],
        weight=target.get("FairShareWeight", 0),
        amounts=_amounts(config.get("ComputeQuotaResources", ())),
        lends=sharing.get("Strategy") != "DontLend",
        borrow_percent=percent if borrows else None,
        borrow_limits=_amounts(sharing.get("AbsoluteBorrowLimits", ())),
        preempts=config.get("PreemptTeamTasks", "LowerPriority") == "LowerPriority",
        is_enabled=request.get(_STATE, "Enabled") == "Enabled",
    )


def _rejections(config: Json, sharing: Json) -> Iterator[str]:
    key = f"{_CONFIG}.ComputeQuotaResources"
    resources = config.get("ComputeQuotaResources", ())
    if not resources:
        yield f"{key}: expected the compute of one instance type or more"
    yield from _amount_rejections(key, resources)
    key = f"{_CONFIG}.ResourceSharingConfig"
    limits = sharing.get("AbsoluteBorrowLimits", ())
    yield from _amount_rejections(f"{key}.AbsoluteBorrowLimits", limits)
    percent = sharing.get("BorrowLimit", _DEFAULT_BORROWING)
    if not 1 <= percent <= _MOST_BORROWING:
        yield f"{key}.BorrowLimit: expected 1 to {_MOST_BORROWING} percent, got {percent}"
    strategy = sharing.get("Strategy", "LendAndBorrow")
    for name in ("BorrowLimit", "AbsoluteBorrowLimits"):
        if name in sharing and strategy != "LendAndBorrow":
            yield f"{key}.{name}: the Strategy is {strategy}, which does not borrow; omit it"


def _amount_rejections(key: str, amounts: Sequence[Json]) -> Iterator[str]:
    types = [one["InstanceType"] for one in amounts]
    for name in dict.fromkeys(types):
        if types.count(name) > 1:
            yield f"{key}: {name} is duplicated"
    for one in amounts:
        given = one.keys() - {"InstanceType"}
        if not given:
            yield (
                f"{key}: {one['InstanceType']}: expected Count, Accelerators, VCpu, MemoryInGiB "
                "or AcceleratorPartition"
            )
        if "Count" in given and len(given) > 1:
            yield (
                f"{key}: {one['InstanceType']}: Count is whole instances; omit "
                f"{', '.join(sorted(given - {'Count'}))}"
            )
        if {"Accelerators", "AcceleratorPartition"} <= given:
            yield f"{key}: {one['InstanceType']}: expected Accelerators or AcceleratorPartition"


def _amounts(given: Sequence[Json]) -> tuple[InstanceAmount, ...]:
    return tuple(_amount(one) for one in given)


def _amount(given: dict[str, Any]) -> InstanceAmount:
    partition = given.get("AcceleratorPartition", {})
    return InstanceAmount(
        instance_type=given["InstanceType"],
        instances=given.get("Count"),
        accelerators=given.get("Accelerators"),
        cpus=given.get("VCpu"),
        memory_gib=given.get("MemoryInGiB"),
        partition=partition.get("Type", ""),
        partitions=partition.get("Count", 0),
    )
