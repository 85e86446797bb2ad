"""Puts a shared cluster back into the state that it had before a test."""

import base64
import http.client
import json
import time
from collections.abc import Iterable, Iterator
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

STORED_AS = {"nodes": "minions", "replicationcontrollers": "controllers", "ingresses": "ingress"}
"""Plural to the word for it in the keys of etcd, where that is another."""


@dataclass(frozen=True)
class Thing:
    """An object of any kind."""

    path: str
    revision: int
    """Of etcd, by which it was last written."""

    namespace: str
    """In which it is, or which it is; empty for what is in none."""

    is_namespace: bool = field(compare=False)
    is_dying: bool = field(compare=False)
    awaits_restart: bool = field(compare=False)
    """By finalizers."""


class CleanSlate:
    """What there is now; ``restore`` deletes what came later.

    Asks etcd, in 2 ms: to list all kinds takes the API server 70 ms, and hundreds of tests begin
    and end with it.
    """

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._kept = {key: created for key, (created, _) in stored(plane).items()}

    def restore(self) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        unlisted: set[int] = set()
        while new := {r: key for r, key in self._new().items() if r not in unlisted}:
            with self._plane.connect() as api:
                left = [one for one in _things(api, new.values()) if one.revision in new]
                if time.monotonic() > deadline:
                    raise TimeoutError(f"still there: {', '.join(thing.path for thing in left)}")
                full = {thing.namespace for thing in left if not thing.is_namespace}
                for thing in left:
                    with suppress(Refused):  # it is gone, or has changed: the next round tells
                        remove(api, thing, is_full=thing.namespace in full)
            # What has changed meanwhile has another revision, and is looked for again.
            unlisted |= new.keys() - {thing.revision for thing in left}

    def _new(self) -> dict[int, str]:
        """Revision to key of what was created since, also anew under the same name.

        All but Events, which are removed here: half of what most tests leave behind.
        """
        remove_events(self._plane)
        return {
            changed: key
            for key, (created, changed) in stored(self._plane).items()
            if self._kept.get(key) != created
        }


def stored(plane: ControlPlane) -> dict[str, tuple[int, int]]:
    """Every key in etcd, in Base64, with the revisions by which it was created and last written."""
    found = _of_etcd(plane, "range", b"/registry/", b"/registry0", keys_only=True)["kvs"]
    return {one["key"]: (int(one["create_revision"]), int(one["mod_revision"])) for one in found}


def remove_events(plane: ControlPlane) -> None:
    """All of them, as if they had expired: they have neither finalizers nor dependents."""
    _of_etcd(plane, "deleterange", b"/registry/events/", b"/registry/events0")


def _of_etcd(plane: ControlPlane, call: str, first: bytes, end: bytes, **more: Any) -> Any:
    """The answer to a call about all keys from ``first`` to before ``end``."""
    keys = {"key": first, "range_end": end}
    encoded = {name: base64.b64encode(key).decode() for name, key in keys.items()}
    connection = http.client.HTTPConnection(*plane.etcd, timeout=TIMEOUT_S)
    try:
        connection.request("POST", f"/v3/kv/{call}", json.dumps({**encoded, **more}))
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


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


def _things(api: ApiConnection, keys: Iterable[str]) -> Iterator[Thing]:
    for root, plural in _kinds_of(api, keys):
        for item in items(api, f"{root}/{plural}"):
            meta = item["metadata"]
            if IDENTITY in meta.get("labels", ()):
                continue
            namespace = meta.get("namespace", "")
            folder = f"{root}/namespaces/{namespace}" if namespace else root
            is_namespace = plural == "namespaces"
            yield Thing(
                path=f"{folder}/{plural}/{meta['name']}",
                revision=int(meta["resourceVersion"]),
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


def _kinds_of(api: ApiConnection, keys: Iterable[str]) -> list[tuple[str, str]]:
    """The kinds that have keys in etcd; all of them if a key is of no known kind."""
    kinds = [(root, plural, STORED_AS.get(plural, plural)) for root, plural in _kinds(api)]
    known = {word for _, _, word in kinds} | NOT_OURS
    paths = [base64.b64decode(key).decode() for key in keys]
    words = [{*path.split("/")[2:4]} for path in paths]  # a group and its kind, or a kind alone
    are_known = all(one & known for one in words)
    found = set().union(*words)
    return [(root, plural) for root, plural, word in kinds if word in found or not are_known]


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
