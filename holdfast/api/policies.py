"""Scheduler configurations and compute quotas: what their operations share."""

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from holdfast.api.call import Call
from holdfast.api.clusters import Cluster
from holdfast.api.paging import page
from holdfast.api.problems import Conflict, ResourceNotFound, ValidationException
from holdfast.api.sagemaker_model import Json
from holdfast.model.sagemaker import ClusterStatus
from holdfast.model.team_queues import Policy, PolicyStatus
from holdfast.ports.team_queues import PolicyRecords

_ID_BYTES: Final = 6
"""Half the number of characters of an ID."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyType:
    """One of both types of policies, as the API names it."""

    name: str
    """Prefix of its members, e.g. ``ComputeQuota``."""

    arn_part: str
    noun: str
    owns: Callable[[Policy], bool]
    """Whether a policy is of this type."""

    members: Sequence[str]
    """Members of requests that descriptions return."""

    def arn(self, call: Call, policy_id: str) -> str:
        """ARN of a policy."""
        place = call.place
        return f"arn:aws:sagemaker:{place.region}:{place.account}:{self.arn_part}/{policy_id}"

    def requested(self, request: Json) -> Json:
        """Members of a request that descriptions return."""
        return {key: request[key] for key in (*self.members, "Description") if key in request}


def require_records(call: Call) -> PolicyRecords:
    """Store of policies.

    Raises:
        ValidationException: the server has no Kubernetes cluster.

    """
    policies = call.creation.policies if call.creation is not None else None
    if policies is None:
        raise ValidationException(
            "Scheduler configurations and compute quotas need Kueue on Kubernetes; serve the "
            "cluster with --platform kubernetes, or use associations and priorities of Slurm"
        )
    return policies


def create(
    call: Call,
    kind: PolicyType,
    content: Json,
    check: Callable[[Policy, Sequence[Policy]], None],
) -> Json:
    """Store a new policy.

    Args:
        call: call of the operation.
        kind: type of the policy.
        content: fields of ``Policy`` with its content.
        check: raises if the policy cannot exist beside the others of its type and cluster.

    Returns:
        Response of the operation.

    """
    records, request = require_records(call), call.request
    cluster = _cluster_of(call, request["ClusterArn"])
    person = call.principal.person
    policy = Policy(
        id=secrets.token_hex(_ID_BYTES),
        name=request["Name"],
        cluster=cluster.name,
        cluster_id=cluster.id,
        created_at=call.now,
        created_by=person,
        modified_at=call.now,
        modified_by=person,
        requested=kind.requested(request),
        **content,
    )

    def check_all(others: Sequence[Policy]) -> None:
        same = [one for one in others if kind.owns(one) and one.cluster_id == cluster.id]
        for one in same:
            if one.name == policy.name:
                raise Conflict(f"{kind.noun} {policy.name} already exists; choose another name")
        check(policy, same)

    records.create(policy, check_all, call.requested(f"Create{kind.name}"))
    call.require_creation().wake(policy.cluster)
    return {f"{kind.name}Arn": kind.arn(call, policy.id), f"{kind.name}Id": policy.id}


def update(call: Call, kind: PolicyType, make: Callable[[Policy], Policy]) -> Json:
    """Store a changed policy with the next version.

    Args:
        call: call of the operation.
        kind: type of the policy.
        make: returns the policy with its new content.

    """
    request = call.request
    found = named(call, kind)

    def changed(policy: Policy) -> Policy:
        if policy.is_going:
            raise Conflict(f"{kind.noun} {policy.name} is being deleted")
        if request["TargetVersion"] != policy.version:
            raise Conflict(
                f"TargetVersion: expected {policy.version}, the present version of "
                f"{policy.name}, got {request['TargetVersion']}; describe it and try again"
            )
        is_new = policy.status in (PolicyStatus.CREATING, PolicyStatus.CREATE_FAILED)
        after = make(policy)
        return replace(
            after,
            version=policy.version + 1,
            status=PolicyStatus.CREATING if is_new else PolicyStatus.UPDATING,
            failure="",
            modified_at=call.now,
            modified_by=call.principal.person,
            requested={**policy.requested, **kind.requested(request)},
        )

    after = _change(call, kind, found, changed, "Update")
    return {
        f"{kind.name}Arn": kind.arn(call, after.id),
        f"{kind.name}Version": after.version,
    }


def delete(call: Call, kind: PolicyType) -> Json:
    """Mark a policy for deletion; idempotent until it is gone."""
    _change(
        call,
        kind,
        named(call, kind),
        lambda policy: replace(policy, status=PolicyStatus.DELETING, failure=""),
        "Delete",
    )
    return {}


def describe(call: Call, kind: PolicyType) -> Json:
    """Description of a policy."""
    policy = named(call, kind)
    version = call.request.get(f"{kind.name}Version", policy.version)
    if version != policy.version:
        raise ResourceNotFound(
            f"{kind.noun} {policy.name} has the version {policy.version}; earlier ones are not kept"
        )
    return {
        **policy.requested,
        **_summary(call, kind, policy),
        "FailureReason": policy.failure or None,
        "CreatedBy": _person(call, policy.created_by),
        "LastModifiedBy": _person(call, policy.modified_by),
    }


def list_all(call: Call, kind: PolicyType, more: Callable[[Policy], Json]) -> Json:
    """List of policies; newest first, unless the request has another order.

    Args:
        call: call of the operation.
        kind: type of the policies.
        more: further members of the summary of a policy.

    """
    request = call.request
    keys: dict[str, Callable[[Policy], Any]] = {
        "Name": lambda one: one.name,
        "CreationTime": lambda one: one.created_at,
        "Status": lambda one: one.status.value,
        "ClusterArn": lambda one: call.place.arn(one.cluster_id),
    }
    key = keys[request.get("SortBy", "CreationTime")]
    shown, token = page(
        [one for one in _visible(call, kind) if _matches(call, one)],
        request,
        key=lambda one: (key(one), one.id),
        descending=request.get("SortOrder", "Descending") == "Descending",
    )
    summaries = [{**_summary(call, kind, one), **more(one)} for one in shown]
    return {f"{kind.name}Summaries": summaries, "NextToken": token}


def named(call: Call, kind: PolicyType) -> Policy:
    """Policy that a request names.

    Raises:
        ResourceNotFound: there is none with that ID on the clusters of the caller.

    """
    policy_id = call.request[f"{kind.name}Id"]
    for one in _visible(call, kind):
        if one.id == policy_id:
            return one
    raise ResourceNotFound(f"{kind.noun} with id {policy_id} not found")


def refuse_policies(call: Call, cluster: Cluster) -> None:
    """Refuse to delete a cluster that has policies: nobody could remove their queues then.

    Raises:
        Conflict: it has policies.

    """
    policies = call.creation.policies if call.creation is not None else None
    left = [one for one in policies.all() if one.cluster_id == cluster.id] if policies else []
    if left:
        raise Conflict(
            f"Cluster {cluster.name} has scheduler configurations or compute quotas: "
            f"{', '.join(one.name for one in left)}; delete them first"
        )


def _visible(call: Call, kind: PolicyType) -> Iterable[Policy]:
    ids = {one.id for one in call.clusters}
    return [one for one in require_records(call).all() if kind.owns(one) and one.cluster_id in ids]


def _matches(call: Call, policy: Policy) -> bool:
    request = call.request
    after, before = request.get("CreatedAfter"), request.get("CreatedBefore")
    arn = call.place.arn(policy.cluster_id)
    return (
        request.get("NameContains", "") in policy.name
        and request.get("ClusterArn", arn) == arn
        and request.get("Status", policy.status) == policy.status
        and (after is None or policy.created_at > after)
        and (before is None or policy.created_at < before)
    )


def _change(
    call: Call, kind: PolicyType, policy: Policy, make: Callable[[Policy], Policy], verb: str
) -> Policy:
    requested = call.requested(f"{verb}{kind.name}")
    after = require_records(call).change(policy.id, make, requested)
    if after is None:
        raise ResourceNotFound(f"{kind.noun} with id {policy.id} not found")
    call.require_creation().wake(after.cluster)
    return after


def _cluster_of(call: Call, arn: str) -> Cluster:
    for one in call.clusters:
        if call.place.arn(one.id) == arn:
            desired = one.desired()
            if desired is not None and desired.status is ClusterStatus.DELETING:
                raise Conflict(f"Cluster {one.name} is being deleted")
            return one
    raise ResourceNotFound(f"Cluster with ARN {arn} not found")


def _summary(call: Call, kind: PolicyType, policy: Policy) -> Json:
    return {
        f"{kind.name}Arn": kind.arn(call, policy.id),
        f"{kind.name}Id": policy.id,
        f"{kind.name}Version": policy.version,
        "Name": policy.name,
        "ClusterArn": call.place.arn(policy.cluster_id),
        "Status": policy.status,
        "CreationTime": policy.created_at,
        "LastModifiedTime": policy.modified_at,
    }


def _person(call: Call, person: str) -> Json:
    return {"IamIdentity": {"Arn": call.place.user_arn(person)}}
