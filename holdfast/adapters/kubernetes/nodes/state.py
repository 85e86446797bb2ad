"""State of the whole cluster in one ConfigMap, which outlives every node."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.errors import AlreadyExists, Conflict, Json, NotFound
from holdfast.adapters.kubernetes.client.reflector import Reflector
from holdfast.adapters.kubernetes.client.values import compact_json, digest
from holdfast.decisions.succession import LeavingNode
from holdfast.kit.rejections import Rejection, excerpt
from holdfast.kit.serial import parse_value
from holdfast.model.nodes import Breaker

STATE: Final = "holdfast-state"
"""Name of the ConfigMap."""

_BREAKER: Final = "breaker"
_OFFENDER: Final = "offender."
_LEAVING: Final = "leaving."
_RETIRED: Final = "retired."


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Parsed ConfigMap. Invalid entries are left out and listed in ``rejected``."""

    data: Mapping[str, str] = field(default_factory=dict)
    version: str = field(default="", compare=False)
    breaker: Breaker = field(default_factory=Breaker)
    offenders: frozenset[str] = frozenset()
    leaving: Mapping[str, LeavingNode] = field(default_factory=dict)
    """Leaving nodes by name."""

    retired: Mapping[str, str] = field(default_factory=dict)
    """UIDs by name of replaced nodes whose Node objects still have to be deleted."""

    rejected: tuple[Rejection, ...] = ()


@lru_cache(maxsize=2048)  # more than an object of 1 MiB can hold
def _entry(kind: type[Breaker] | type[LeavingNode], text: str) -> Breaker | LeavingNode:
    """Parse an entry. Each change delivers all entries again, hundreds in a wave of repairs."""
    return parse_value(kind, text)


def memory_of(config_map: Json) -> Memory:
    """Parse a ConfigMap. Never raises."""
    data: Mapping[str, str] = config_map.get("data") or {}
    values: dict[str, Any] = {}
    rejected = []
    for key, text in data.items():
        kind = Breaker if key == _BREAKER else LeavingNode if key.startswith(_LEAVING) else None
        if kind is None:
            continue
        try:
            values[key] = _entry(kind, text)
        except ValueError:
            expected = "a value written by Holdfast; the entry is ignored"
            rejected.append(
                Rejection(key=f"{STATE}: {key}", value=excerpt(text), expected=expected)
            )
    return Memory(
        data=data,
        version=str(config_map["metadata"].get("resourceVersion", "")),
        breaker=values.pop(_BREAKER, Breaker()),
        offenders=frozenset(text for key, text in data.items() if key.startswith(_OFFENDER)),
        leaving={key.removeprefix(_LEAVING): value for key, value in values.items()},
        retired={
            key.removeprefix(_RETIRED): uid for key, uid in data.items() if key.startswith(_RETIRED)
        },
        rejected=tuple(rejected),
    )


class ClusterMemory:
    """Reads and writes the ConfigMap. Methods that write raise ``BackendError``."""

    def __init__(self, api: Api, namespace: str, changed: Callable[[], None]) -> None:
        self._api = api
        self._folder = f"/api/v1/namespaces/{namespace}/configmaps"
        self._reflector = Reflector(
            api,
            self._folder,
            trim=memory_of,
            changed=changed,
            params={"fieldSelector": f"metadata.name={STATE}"},
        )
        self._key = f"{namespace}/{STATE}"

    @property
    def reflector(self) -> Reflector[Memory]:
        """Reflector that caches the ConfigMap; its owner starts and stops it."""
        return self._reflector

    def read(self) -> Memory:
        """Return the cached state; makes no call."""
        return self._reflector.objects().get(self._key) or Memory()

    def fetch(self) -> Memory:
        """Read the state from the API server, for a process without a cache."""
        try:
            return memory_of(self._api.get(f"{self._folder}/{STATE}"))
        except NotFound:
            return Memory()

    def trip_breaker(self, reason: str, now: datetime) -> None:
        """Open the breaker; a breaker that is open, also by another process, stays unchanged."""
        while (known := self.read()).breaker.tripped_at is None:
            tripped = replace(known.breaker, tripped_at=now, reason=reason)
            try:
                self._patch({_BREAKER: compact_json(tripped)}, version=known.version)
            except Conflict:
                self._reflector.learn(self._api.get(f"{self._folder}/{STATE}"))

    def close_breaker(self, tripped_at: datetime, now: datetime) -> None:
        """Close the breaker that opened at ``tripped_at`` unless another process changed it."""
        while (known := self.read()).breaker.tripped_at == tripped_at:
            try:
                self._patch({_BREAKER: compact_json(Breaker(reset_at=now))}, version=known.version)
            except Conflict:
                self._reflector.learn(self._api.get(f"{self._folder}/{STATE}"))

    def put_breaker(self, breaker: Breaker) -> None:
        """Store the breaker."""
        self._put(_BREAKER, compact_json(breaker))

    def remember_offender(self, provider_id: str) -> None:
        """Add a machine to the list of repeat offenders."""
        self._put(_OFFENDER + digest(provider_id), provider_id)

    def put_leaving(self, node: str, leaving: LeavingNode) -> None:
        """Store a node that is leaving."""
        self._put(_LEAVING + node, compact_json(leaving))

    def forget_leaving(self, node: str) -> None:
        """Remove the entry of a node that did not leave."""
        self._put(_LEAVING + node, None)

    def put_retired(self, node: str, uid: str) -> None:
        """Record that a node has left and only its object remains, until ``forget_retired``."""
        if self.read().retired.get(node) != uid:
            self._patch({_LEAVING + node: None, _RETIRED + node: uid})

    def forget_retired(self, node: str) -> None:
        """Remove the entry of a retired node whose object is deleted, too."""
        self._put(_RETIRED + node, None)

    def _put(self, key: str, text: str | None) -> None:
        if self.read().data.get(key) != text:
            self._patch({key: text})

    def _patch(self, data: Mapping[str, str | None], *, version: str = "") -> None:
        body: Json = {"data": data}
        if version:
            body["metadata"] = {"resourceVersion": version}
        try:
            answer = self._api.patch(f"{self._folder}/{STATE}", body)
        except NotFound:
            answer = self._create(data)
        self._reflector.learn(answer)

    def _create(self, data: Mapping[str, str | None]) -> Json:
        """Create the ConfigMap; if it exists already, its entries stay."""
        new = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": STATE},
            "data": {key: text for key, text in data.items() if text is not None},
        }
        try:
            return self._api.create(self._folder, new, repeatable=True)
        except AlreadyExists:
            return self._api.patch(f"{self._folder}/{STATE}", {"data": data})
