"""Waiting until an API server knows kinds."""

from typing import Final

from tests.engines.api_connection import ApiConnection
from tests.engines.control_plane import ControlPlane
from tests.engines.waiting import until

_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_METADATA: Final = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
_DISCOVERY: Final = "application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io"


def until_defined(plane: ControlPlane) -> None:
    """Wait until all kinds that have a definition are served.

    Reads their names alone. Definitions with their schemas have up to a megabyte each, and
    ``kubectl wait`` reads every one of them twice.
    """
    with plane.connect() as api:
        until(lambda: _defined(api) <= _served(api))


def _defined(api: ApiConnection) -> set[str]:
    """Names of the definitions, such as ``pytorchjobs.kubeflow.org``."""
    found = api.request("GET", _DEFINITIONS, accept=_METADATA)["items"]
    return {one["metadata"]["name"] for one in found}


def _served(api: ApiConnection) -> set[str]:
    """Kinds that the API server has, with their groups."""
    return {
        f"{kind['resource']}.{group['metadata'].get('name', '')}"
        for group in api.request("GET", "/apis", accept=_DISCOVERY)["items"]
        for version in group["versions"]
        for kind in version.get("resources", ())
    }
