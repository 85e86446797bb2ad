"""Creates custom resource definitions, and waits until the API server serves their kinds."""

from collections.abc import Set
from pathlib import Path
from typing import Any, Final

import yaml

from tests.engines.api_connection import ApiConnection
from tests.engines.control_plane import ControlPlane
from tests.engines.waiting import until

_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_DISCOVERY: Final = "application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io"

_VALUES: Final = ("default", "enum", "example")
"""Keys of a schema whose values are not schemas."""


def define(plane: ControlPlane, *places: Path) -> None:
    """Create the definitions in files, or in all files of folders; returns when they are served.

    Without descriptions: three quarters of a definition, and the API server ignores them.
    """
    files = [file for one in places for file in (one.glob("*.yaml") if one.is_dir() else (one,))]
    names = set()
    with plane.connect() as api:
        for file in files:
            for definition in yaml.load_all(file.read_text("utf-8"), yaml.CSafeLoader):
                if definition and definition["kind"] == "CustomResourceDefinition":
                    api.request(
                        "POST", f"{_DEFINITIONS}?fieldValidation=Strict", _short(definition)
                    )
                    names.add(definition["metadata"]["name"])
    until_defined(plane, names)


def _short(definition: dict[str, Any]) -> dict[str, Any]:
    """The definition, with schemas without descriptions."""
    versions = [
        {**one, "schema": {"openAPIV3Schema": _bare(one["schema"]["openAPIV3Schema"])}}
        for one in definition["spec"]["versions"]
    ]
    return {**definition, "spec": {**definition["spec"], "versions": versions}}


def _bare(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_bare(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {}
    for key, value in schema.items():
        if key == "properties":
            found[key] = {name: _bare(one) for name, one in value.items()}
        elif key != "description":
            found[key] = value if key in _VALUES else _bare(value)
    return found


def until_defined(plane: ControlPlane, names: Set[str]) -> None:
    """Wait until kinds are served, by names of definitions such as ``pytorchjobs.kubeflow.org``.

    Reads no definition: with their schemas they have up to a megabyte each, and ``kubectl wait``
    reads each of them twice.
    """
    with plane.connect() as api:
        until(lambda: names <= _served(api))


def _served(api: ApiConnection) -> set[str]:
    """Kinds that the API server has, with their groups."""
    return {
        f"{kind['resource']}.{group['metadata'].get('name', '')}"
        for group in api.request("GET", "/apis", accept=_DISCOVERY)["items"]
        for version in group["versions"]
        for kind in version.get("resources", ())
    }
