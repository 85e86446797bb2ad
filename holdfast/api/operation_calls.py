"""Validates and performs operations; the signed API and the console share it."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from holdfast.api.audit import AuditedRequest
from holdfast.api.call import AwsLocation, Call, ClusterCreation
from holdfast.api.clusters import Cluster
from holdfast.api.identity import Principal
from holdfast.api.kubernetes_cluster import KubernetesCluster
from holdfast.api.operations import OPERATIONS
from holdfast.api.problems import AccessDenied, refuse
from holdfast.api.request_fields import unsupported
from holdfast.api.sagemaker_model import Json, SageMakerModel
from holdfast.ports.clock import Clock


class OperationCalls:
    """Operations of the clusters of a server; thread-safe."""

    def __init__(
        self,
        place: AwsLocation,
        clusters: Callable[[], AbstractContextManager[Sequence[Cluster]]],
        clock: Clock,
        creation: ClusterCreation | None,
        kubernetes: KubernetesCluster | None,
    ) -> None:
        self._place = place
        self._clusters = clusters
        self._clock = clock
        self._creation = creation
        self._kubernetes = kubernetes
        self._model = SageMakerModel()

    @property
    def can_create(self) -> bool:
        """Whether this server creates clusters."""
        return self._creation is not None

    def call(
        self,
        name: str,
        document: Any,
        principal: Principal,
        audited: AuditedRequest | None = None,
        once: AbstractContextManager[None] | None = None,
    ) -> Json:
        """Perform an operation; returns its response in wire format.

        Args:
            name: one of ``OPERATIONS``.
            document: request, not validated yet.
            principal: authenticated caller.
            audited: gets the validated request; None for reads.
            once: entered while a change is performed.

        Raises:
            ApiProblem: the request is invalid, not permitted or cannot be fulfilled.
            BackendError: a backend is unavailable.

        """
        parsed = self._model.read(name, document)
        if audited is not None:
            audited.request = parsed
        _permit(principal, name, parsed)
        refuse(list(unsupported(name, parsed)))
        with once or nullcontext(), self._clusters() as clusters:
            call = Call(
                request=parsed,
                principal=principal,
                clusters=[one for one in clusters if principal.may_use(one.name)],
                place=self._place,
                now=self._clock.now(),
                creation=self._creation,
                kubernetes=self._kubernetes,
            )
            return self._model.write(name, OPERATIONS[name](call))

    def created(self, principal: Principal) -> frozenset[str]:
        """Names of the clusters that this API created, and thus can change."""
        with self._clusters() as clusters:
            return frozenset(
                one.name
                for one in clusters
                if principal.may_use(one.name) and one.desired() is not None
            )


def _permit(principal: Principal, operation: str, request: Mapping[str, Any]) -> None:
    """Authorize a call; a cluster of another name is refused before it exists.

    Raises:
        AccessDenied: the caller lacks the permission.

    """
    principal.permit(operation)
    if operation == "CreateCluster" and not principal.may_use(request["ClusterName"]):
        raise AccessDenied(
            f"{principal.person} is not authorized to create the cluster "
            f"{request['ClusterName']}; the clusters of the key do not include it"
        )
