"""Requests of users, written to Node annotations for the controller."""

from holdfast.adapters.kubernetes.client.api import Api, Json
from holdfast.adapters.kubernetes.client.values import compact_json
from holdfast.model.names import HOLD, REQUEST
from holdfast.model.requests import Request


def put_request(api: Api, node: str, request: Request) -> None:
    """Record a request; it replaces an earlier one that the controller has not handled yet.

    Raises:
        BackendError: it could not be recorded.

    """
    _annotate(api, node, {REQUEST: compact_json(request)})


def hold(api: Api, node: str, why: str) -> None:
    """Pause repairs of a node, or resume them if ``why`` is empty.

    Raises:
        BackendError: it could not be recorded.

    """
    _annotate(api, node, {HOLD: why or None})


def _annotate(api: Api, node: str, annotations: dict[str, str | None]) -> None:
    body: Json = {"metadata": {"annotations": annotations}}
    api.patch(f"/api/v1/nodes/{node}", body)
