"""The operations of Amazon EKS that connect clients with the Kubernetes cluster."""

import base64
import json
import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Final
from urllib.parse import unquote

from holdfast.api.call import AwsLocation
from holdfast.api.identity import Keyring, Principal, Role
from holdfast.api.kubernetes_cluster import KubernetesCluster, groups_of
from holdfast.api.problems import AccessDenied, ApiProblem, ResourceNotFound, UnknownOperation
from holdfast.api.protocol import ApiResponse
from holdfast.api.sagemaker_model import AwsModel, Json
from holdfast.api.signature import SignedRequest, verified
from holdfast.ports.clock import Clock

SIGNING_NAME: Final = "eks"
_ENTRIES: Final = "access-entries"
_SUPPORTED: Final = "ListClusters, DescribeCluster, ListAccessEntries, DescribeAccessEntry"
_NOT_FOUND: Final = "ResourceNotFoundException"
_SHOWN: Final = 200


class EksProtocol:
    """Handles requests in AWS's REST protocol; thread-safe."""

    def __init__(
        self,
        keys: Keyring,
        place: AwsLocation,
        cluster: KubernetesCluster | None,
        clock: Clock,
    ) -> None:
        self._keys = keys
        self._place = place
        self._cluster = cluster
        self._clock = clock
        self._model = AwsModel(SIGNING_NAME)

    def answer(self, request: SignedRequest) -> ApiResponse:
        """Handle a request."""
        try:
            return _response(200, self._carried_out(request))
        except ApiProblem as problem:
            return _refusal(problem)

    def _carried_out(self, request: SignedRequest) -> Json:
        now = self._clock.now()
        found = verified(request, self._keys.secrets, self._place.region, SIGNING_NAME, now)
        caller = self._keys.owner(found.key_id, now)
        operation, response = self._result(request, caller)
        return self._model.write(operation, response)

    def _result(self, request: SignedRequest, caller: Principal) -> tuple[str, Json]:
        """Name of the operation, and its response."""
        match (request.method, [unquote(one) for one in request.path.split("/")[1:]]):
            case "GET", ["clusters"]:
                caller.permit("eks:ListClusters")
                shown = self._cluster
                is_visible = shown is not None and caller.may_use(shown.name)
                return "ListClusters", {"clusters": [shown.name] if shown and is_visible else []}
            case "GET", ["clusters", name]:
                caller.permit("eks:DescribeCluster")
                return "DescribeCluster", {"cluster": self._described(self._named(name, caller))}
            case "GET", ["clusters", name, entries] if entries == _ENTRIES:
                caller.permit("eks:ListAccessEntries")
                cluster = self._named(name, caller)
                arns = {self._place.user_arn(one.person) for one in self._seen_by(caller, cluster)}
                return "ListAccessEntries", {"accessEntries": sorted(arns)}
            case "GET", ["clusters", name, entries, arn] if entries == _ENTRIES:
                caller.permit("eks:DescribeAccessEntry")
                entry = self._entry(arn, caller, self._named(name, caller))
                return "DescribeAccessEntry", {"accessEntry": entry}
        called = f"{request.method} {request.path}"[:_SHOWN]
        raise UnknownOperation(f"{called} is not supported; supported operations: {_SUPPORTED}")

    def _named(self, name: str, caller: Principal) -> KubernetesCluster:
        cluster = self._cluster
        if cluster is None or cluster.name != name or not caller.may_use(name):
            raise ResourceNotFound(f"No cluster found for name: {name[:_SHOWN]}.")
        return cluster

    def _described(self, cluster: KubernetesCluster) -> Json:
        return {
            "name": cluster.name,
            "arn": self._place.kubernetes_arn(cluster.name),
            "createdAt": cluster.created_at,
            "endpoint": cluster.endpoint,
            "status": "ACTIVE",
            "certificateAuthority": {
                "data": base64.b64encode(cluster.certificate_authority.encode()).decode()
            },
            "accessConfig": {"authenticationMode": "API"},
        }

    def _seen_by(self, caller: Principal, cluster: KubernetesCluster) -> Sequence[Principal]:
        """Owners of keys whose access a caller may see: an admin those of all keys."""
        if caller.role is not Role.ADMIN:
            return [caller]
        return [one for one in self._keys.principals if one.may_use(cluster.name)]

    def _entry(self, arn: str, caller: Principal, cluster: KubernetesCluster) -> Json:
        own = self._place.user_arn(caller.person)
        if arn != own and caller.role is not Role.ADMIN:
            raise AccessDenied(
                f"{caller.person} is not authorized to see the access entry of {arn[:_SHOWN]}; "
                f"the role is {caller.role}, and {Role.ADMIN} is needed"
            )
        owners = [caller] if arn == own else self._seen_by(caller, cluster)
        found = [one for one in owners if self._place.user_arn(one.person) == arn]
        if not found:
            raise ResourceNotFound(f"No access entry found for principal: {arn[:_SHOWN]}.")
        return self._access_entry(arn, found, cluster)

    def _access_entry(
        self, arn: str, owners: Sequence[Principal], cluster: KubernetesCluster
    ) -> Json:
        entry = f"access-entry/{cluster.name}/user/{self._place.account}"
        created: datetime = cluster.created_at
        return {
            "clusterName": cluster.name,
            "principalArn": arn,
            "kubernetesGroups": sorted({group for one in owners for group in groups_of(one)}),
            "accessEntryArn": f"arn:aws:eks:{self._place.region}:{self._place.account}:{entry}",
            "createdAt": created,
            "modifiedAt": created,
            "username": arn,
            "type": "STANDARD",
        }


def _refusal(problem: ApiProblem) -> ApiResponse:
    missing = isinstance(problem, ResourceNotFound)
    code = _NOT_FOUND if missing else problem.code
    status = 404 if missing else 403 if isinstance(problem, AccessDenied) else problem.status
    return _response(status, {"message": str(problem)}, **{"x-amzn-errortype": code})


def _response(status: int, content: Json, **headers: str) -> ApiResponse:
    return ApiResponse(
        status=status,
        headers={
            "content-type": "application/json",
            "x-amzn-requestid": str(uuid.uuid4()),
            **headers,
        },
        body=json.dumps(content).encode(),
    )
