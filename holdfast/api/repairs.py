"""Operations that request repairs and checks: they only record the request."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from holdfast.api.call import Call
from holdfast.api.clusters import Cluster, Node
from holdfast.api.problems import ResourceNotFound, ValidationException
from holdfast.api.sagemaker_model import Json
from holdfast.model.errors import BackendError
from holdfast.model.names import BatchResponse, DeepCheck
from holdfast.model.requests import Verb


def reboot_nodes(call: Call) -> Json:
    """See ``BatchRebootClusterNodes``."""
    return _requested(call, Verb.REBOOT)


def replace_nodes(call: Call) -> Json:
    """See ``BatchReplaceClusterNodes``."""
    return _requested(call, Verb.REPLACE)


def start_health_check(call: Call) -> Json:
    """See ``StartClusterHealthCheck``.

    A node that is named twice gets the checks of both entries. Nodes that cannot be checked now
    are skipped, unless none can.
    """
    cluster = call.cluster()
    nodes = cluster.nodes()
    chosen: defaultdict[str, set[str]] = defaultdict(set)
    for configuration in call.request["DeepHealthCheckConfigurations"]:
        for one in _members(nodes, configuration):
            chosen[one.name] |= set(configuration["DeepHealthChecks"])
    rejection = [
        cluster.submit(
            name,
            Verb.DEEP_CHECK,
            call.principal.person,
            [kind for kind in DeepCheck if kind in kinds],
        )
        for name, kinds in chosen.items()
    ]
    if all(rejection):
        raise ValidationException("; ".join(rejection))
    return {"ClusterArn": call.place.arn(cluster.id)}


def _members(nodes: Sequence[Node], configuration: Json) -> Iterator[Node]:
    group = configuration["InstanceGroupName"]
    members = {one.instance_id: one for one in nodes if one.group == group}
    if not members:
        raise ResourceNotFound(f"Instance group {group} not found")
    for node_id in configuration.get("InstanceIds", members):
        if node_id not in members:
            raise ResourceNotFound(f"Instance with id {node_id} not found in group {group}")
        yield members[node_id]


def _requested(call: Call, verb: Verb) -> Json:
    request = call.request
    ids, names = request.get("NodeIds", ()), request.get("NodeLogicalIds", ())
    if not ids and not names:
        raise ValidationException("NodeIds or NodeLogicalIds must be given")
    cluster = call.cluster()
    nodes = cluster.nodes()
    by_id = {one.instance_id: one.name for one in nodes}
    by_name = {name: one.name for one in nodes for name in (one.name, one.known_as)}
    done, refused = _each(call, cluster, verb, {one: by_id.get(one) for one in ids})
    named, unnamed = _each(call, cluster, verb, {one: by_name.get(one) for one in names})
    return {
        BatchResponse.SUCCESSFUL: done,
        BatchResponse.FAILED: [{"NodeId": one, **why} for one, why in refused],
        "SuccessfulNodeLogicalIds": named if names else None,
        "FailedNodeLogicalIds": [{"NodeLogicalId": one, **why} for one, why in unnamed]
        if names
        else None,
    }


def _each(
    call: Call, cluster: Cluster, verb: Verb, names: dict[str, str | None]
) -> tuple[list[str], list[tuple[str, Json]]]:
    """Nodes to request the action for, and the reasons why others are refused."""
    done: list[str] = []
    refused: list[tuple[str, Json]] = []
    for given, name in names.items():
        if name is None:
            refused.append((given, _why("InstanceIdNotFound", f"{given} is not in the cluster")))
            continue
        try:
            rejection = cluster.submit(name, verb, call.principal.person)
        except BackendError as error:
            refused.append((given, _why("InternalServerError", str(error))))
            continue
        if rejection:
            refused.append((given, _why("InvalidInstanceStatus", rejection)))
        else:
            done.append(given)
    return done, refused


def _why(code: str, message: str) -> Json:
    return {"ErrorCode": code, "Message": message}
