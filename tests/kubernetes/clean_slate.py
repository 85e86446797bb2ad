"""Puts a shared cluster back into the state that it had before a test."""

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from tests.engines.api_connection import ApiConnection, Refused
from tests.engines.control_plane import ControlPlane

DISCOVERY = "application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io"
METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
NOW = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
TIMEOUT_S = 180

# The cluster itself writes these, at any time.
NOT_OURS = {"apiservices", "endpoints", "endpointslices", "flowschemas", "ipaddresses"}
IDENTITY = "apiserver.kubernetes.io/identity"
NOT_OURS |= {"prioritylevelconfigurations", "servicecidrs"}


@dataclass(frozen=True)
class Thing:
    """An object of any kind, told from a later one of the same name by its uid."""

    path: str
    uid: str
    namespace: str
    """In which it is, or which it is; empty for what is in none."""

    is_namespace: bool = field(compare=False)
    is_dying: bool = field(compare=False)
    awaits_restart: bool = field(compare=False)
    """By finalizers."""


class CleanSlate:
    """What there is now; ``restore`` deletes what came later."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        with plane.connect() as api:
            self._kept = set(_things(api))

    def restore(self) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        with self._plane.connect() as api:
            while left := set(_things(api)) - self._kept:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"still there: {', '.join(thing.path for thing in left)}")
                full = {thing.namespace for thing in left if not thing.is_namespace}
                for thing in left:
                    with suppress(Refused):  # it is gone, or has changed: the next round tells
                        remove(api, thing, is_full=thing.namespace in full)


def remove(api: ApiConnection, thing: Thing, *, is_full: bool) -> None:
    if thing.is_dying and thing.is_namespace:
        if not is_full:  # else what is in it could not be changed any more
            namespace = api.request("GET", thing.path)
            namespace["spec"]["finalizers"] = []
            api.request("PUT", f"{thing.path}/finalize", namespace)
    elif thing.is_dying and thing.awaits_restart:
        api.request("PATCH", thing.path, {"metadata": {"finalizers": None}})
    else:  # perhaps once more, now without time to end
        api.request("DELETE", thing.path, NOW)


def _things(api: ApiConnection) -> Iterator[Thing]:
    for root, plural in _kinds(api):
        for item in items(api, f"{root}/{plural}"):
            meta = item["metadata"]
            if IDENTITY in meta.get("labels", ()):
                continue
            namespace = meta.get("namespace", "")
            folder = f"{root}/namespaces/{namespace}" if namespace else root
            is_namespace = plural == "namespaces"
            yield Thing(
                path=f"{folder}/{plural}/{meta['name']}",
                uid=meta["uid"],
                namespace=meta["name"] if is_namespace else namespace,
                is_namespace=is_namespace,
                is_dying="deletionTimestamp" in meta,
                awaits_restart=bool(meta.get("finalizers")),
            )


def items(api: ApiConnection, path: str) -> list[dict[str, Any]]:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return api.request("GET", path, accept=METADATA)["items"] or []
        except Refused as refused:
            if refused.status == HTTPStatus.NOT_FOUND:  # its definition has just been deleted
                return []
            if refused.status != HTTPStatus.TOO_MANY_REQUESTS or time.monotonic() > deadline:
                raise
        time.sleep(0.05)  # its definition is new


def _kinds(api: ApiConnection) -> Iterator[tuple[str, str]]:
    """Kinds whose objects can be listed and deleted: address and plural."""
    for root in ("/api", "/apis"):
        for group in api.request("GET", root, accept=DISCOVERY)["items"]:
            name, version = group["metadata"].get("name"), group["versions"][0]
            parts = [root, name, version["version"]] if name else [root, version["version"]]
            for kind in version["resources"]:
                plural = kind["resource"]
                if {"list", "delete"} <= set(kind["verbs"]) and plural not in NOT_OURS:
                    yield "/".join(parts), plural
