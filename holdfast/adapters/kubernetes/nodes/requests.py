"""What people want of the nodes of a cluster, written down for the controller to take up."""

from holdfast.adapters.kubernetes.client.api import Api, Json
from holdfast.adapters.kubernetes.client.values import compact_json
from holdfast.model.names import HOLD, REQUEST
from holdfast.model.requests import Request


def ask(api: Api, node: str, request: Request) -> None:
    """Record a request; an earlier one of the node that was not taken up is dropped.

    Raises:
        BackendError: it could not be recorded.

    """
    _annotate(api, node, {REQUEST: compact_json(request)})


def hold(api: Api, node: str, why: str) -> None:
    """Let no repair of a node begin; without a reason, let it again.

    Raises:
        BackendError: it could not be recorded.

    """
    _annotate(api, node, {HOLD: why or None})


def _annotate(api: Api, node: str, annotations: dict[str, str | None]) -> None:
    body: Json = {"metadata": {"annotations": annotations}}
    api.patch(f"/api/v1/nodes/{node}", body)
