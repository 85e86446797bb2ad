"""Pages of clusters: they are read and changed with the operations of the API."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from holdfast.api.audit import AuditedRequest
from holdfast.api.console_http import Refused, json_response, read_body
from holdfast.api.console_sessions import ConsoleSession
from holdfast.api.console_source import Json
from holdfast.api.group_requests import resized
from holdfast.api.identity import Principal
from holdfast.api.operation_calls import OperationCalls
from holdfast.api.problems import BODY_LIMIT
from holdfast.kit.serial import from_plain

CHANGES: Final = ("CreateCluster", "UpdateCluster", "UpdateClusterSoftware", "DeleteCluster")
"""Operations that a page may request."""

EVENTS: Final = 100
"""Maximum number of events of a cluster that its page shows, newest first."""

NODES: Final = 1000
"""Maximum number of nodes of a cluster that its page lists; it is read again every few seconds."""

_MEMBERS: Final = {
    "ListClusters": "ClusterSummaries",
    "ListClusterNodes": "ClusterNodeSummaries",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Size:
    """Requested size of an instance group."""

    cluster: str
    group: str
    count: int


class ClusterViews:
    """Views on clusters; all of them raise ``Refused``, ``ApiProblem`` and ``BackendError``."""

    def __init__(self, operations: OperationCalls) -> None:
        self._operations = operations

    async def listed(self, _request: Request, session: ConsoleSession) -> Response:
        """All clusters with their instance groups, and whether more can be created."""
        return json_response(await run_in_threadpool(self._list, session.principal))

    async def details(self, request: Request, session: ConsoleSession) -> Response:
        """A cluster with its nodes and newest events."""
        name = request.query_params.get("name", "")
        return json_response(await run_in_threadpool(self._describe, name, session.principal))

    async def change(
        self, request: Request, session: ConsoleSession, audited: AuditedRequest
    ) -> Response:
        """Perform one of ``CHANGES``, as the API does."""
        content = await read_body(request, BODY_LIMIT)
        name = content.get("operation")
        if name not in CHANGES:
            raise Refused(400, f"operation: expected one of {', '.join(CHANGES)}")
        audited.operation = name
        answer = await run_in_threadpool(
            self._operations.call, name, content.get("request"), session.principal, audited
        )
        return json_response(answer, status=202)

    async def scale(
        self, request: Request, session: ConsoleSession, audited: AuditedRequest
    ) -> Response:
        """Change the number of nodes of an instance group; its other settings stay."""
        content = await read_body(request)
        try:
            resize = from_plain(_Size, content)
        except ValueError:
            raise Refused(400, "expected cluster, group and count") from None
        audited.request = content
        answer = await run_in_threadpool(self._scale, resize, session.principal, audited)
        return json_response(answer, status=202)

    def _scale(self, resize: _Size, principal: Principal, audited: AuditedRequest) -> Json:
        principal.permit("UpdateCluster")
        request = {"ClusterName": resize.cluster}
        cluster = self._operations.call("DescribeCluster", request, principal)
        for one in cluster["InstanceGroups"]:
            if one["InstanceGroupName"] == resize.group:
                change = {**request, "InstanceGroups": [resized(one, resize.count)]}
                return self._operations.call("UpdateCluster", change, principal, audited)
        raise Refused(404, f"{resize.cluster} has no instance group {resize.group}")

    def _list(self, principal: Principal) -> Json:
        created = self._operations.created(principal)
        names = [one["ClusterName"] for one in self._all("ListClusters", {}, principal)]
        described = [
            self._operations.call("DescribeCluster", {"ClusterName": name}, principal)
            for name in names
        ]
        return {
            "can_create": self._operations.can_create,
            "clusters": [{**one, "is_created": one["ClusterName"] in created} for one in described],
        }

    def _describe(self, name: str, principal: Principal) -> Json:
        request = {"ClusterName": name}
        cluster = self._operations.call("DescribeCluster", request, principal)
        nodes = list(islice(self._all("ListClusterNodes", request, principal), NODES))
        newest = {**request, "SortOrder": "Descending", "MaxResults": EVENTS}
        return {
            **cluster,
            "is_created": cluster["ClusterName"] in self._operations.created(principal),
            "nodes": nodes,
            "events": self._operations.call("ListClusterEvents", newest, principal)["Events"],
        }

    def _all(self, operation: str, request: Json, principal: Principal) -> Iterator[Json]:
        """Yield the items of all pages."""
        token: dict[str, Any] = {}
        while True:
            answer = self._operations.call(operation, {**request, **token}, principal)
            yield from answer[_MEMBERS[operation]]
            if not answer.get("NextToken"):
                return
            token = {"NextToken": answer["NextToken"]}
