"""Cache of nodes, and the only writer of Node objects."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from holdfast.adapters.kubernetes.client.api import Api, Patch
from holdfast.adapters.kubernetes.client.errors import Conflict, Json, NotFound
from holdfast.adapters.kubernetes.client.reflector import Reflector
from holdfast.adapters.kubernetes.client.values import compact_json
from holdfast.adapters.kubernetes.nodes.agent_condition import (
    agent_condition_patch,
    is_condition_outdated,
)
from holdfast.adapters.kubernetes.nodes.encoding import (
    ParsedAnnotations,
    differs_from_record,
    node_patch,
    parse_annotations,
)
from holdfast.adapters.kubernetes.nodes.node import Conventions, NodeState, trimmed
from holdfast.adapters.kubernetes.nodes.views import is_managed, record_of
from holdfast.decisions.succession import LeavingNode
from holdfast.kit.units import format_duration
from holdfast.model.errors import BackendError
from holdfast.model.nodes import NodeRecord, NodeView, Phase

NODES: Final = "/api/v1/nodes"

STALE: Final = timedelta(minutes=3)
"""Maximum age of the cache; the API server sends an event or a bookmark every minute."""

_LOOKUP_TTL_S: Final = 5.0
"""Time for which a node that the selector excludes is not read again."""

_MAX_ATTEMPTS: Final = 5
"""Attempts to patch a node before it is left for the next round."""


@dataclass(slots=True)
class CachedNode:
    """A cached node with its parsed annotations."""

    state: NodeState
    parsed: ParsedAnnotations
    first_seen: datetime
    is_managed: bool
    has_drifted: bool
    """Its labels, taints or annotations differ from its record."""

    is_condition_outdated: bool
    """Its condition ``AgentSilent`` differs from its record."""

    needs_no_correction: bool
    """Drift correction can skip the node until it changes."""

    view: NodeView | None = None
    """View of the last snapshot, while it may be reused."""

    def record(self, leaving: LeavingNode | None) -> NodeRecord:
        """Return its record; of a node that returned under its name, the record it left with."""
        if self.parsed.record is None and leaving is not None:
            return leaving.record
        return record_of(self.state, self.parsed, self.first_seen)


class NodeCache:
    """Cache of all nodes that the selector matches. Reading costs no API calls."""

    def __init__(
        self, api: Api, conventions: Conventions, selector: str, changed: Callable[[], None]
    ) -> None:
        self._api = api
        self._conventions = conventions
        self._nodes: dict[str, CachedNode] = {}
        self._looked_up: dict[str, tuple[float, NodeState]] = {}
        self._written: dict[str, str] = {}  # records since they were read
        self._reflector = Reflector(
            api,
            NODES,
            trim=lambda node: trimmed(node, conventions),
            changed=changed,
            params={"labelSelector": selector} if selector else None,
        )

    @property
    def reflector(self) -> Reflector[NodeState]:
        """Reflector that fills the cache; its owner starts and stops it."""
        return self._reflector

    def read(self, now: datetime, retired: Iterable[str]) -> Mapping[str, CachedNode]:
        """Return all nodes by name; only changed ones are parsed again.

        Args:
            now: the present time.
            retired: uids of nodes to exclude.

        Raises:
            BackendError: the cache is stale.

        """
        self._check_age()
        self._written.clear()
        excluded = frozenset(retired)
        states = self._reflector.objects()
        for removed in self._nodes.keys() - states.keys():
            del self._nodes[removed]
        for name, state in states.items():
            cached = self._nodes.get(name)
            if cached is not None and cached.state is state:
                continue
            if cached is not None and cached.state == state:
                cached.state = state  # only the resource version changed
            else:
                self._nodes[name] = self._parsed(state, cached, now)
        if not excluded:
            return self._nodes
        return {
            name: cached for name, cached in self._nodes.items() if cached.state.uid not in excluded
        }

    def state(self, node: str) -> NodeState | None:
        """Return the cached node; None if there is none of that name."""
        return self._reflector.objects().get(node)

    def look_up(self, node: str) -> NodeState | None:
        """Return a node as read at most 5 s ago; None if there is none of that name."""
        known = self._looked_up.get(node)
        if known is not None and time.monotonic() - known[0] < _LOOKUP_TTL_S:
            return known[1]
        try:
            state = trimmed(self._api.get(f"{NODES}/{node}"), self._conventions)
        except NotFound:
            self._looked_up.pop(node, None)
            return None
        self._looked_up[node] = (time.monotonic(), state)
        return state

    def write(
        self, node: str, now: datetime, patch: Callable[[NodeState, ParsedAnnotations], Json | None]
    ) -> None:
        """Patch a node; retries with the current object after a conflict.

        Args:
            node: its name.
            now: the present time.
            patch: returns the patch for the current state and annotations; None if none is needed.

        Raises:
            NotFound: the node does not exist, or was replaced by another of the same name.
            BackendError: it could not be written.

        """
        path = f"{NODES}/{node}"
        for _ in range(_MAX_ATTEMPTS):
            state = self._current(node)
            body = patch(state, parse_annotations(state, self._conventions, now))
            if body is None:
                return
            try:
                self._reflector.learn(self._api.patch(path, body))
                return
            except Conflict:
                self._reflector.learn(self._api.get(path))
        raise BackendError(f"{path}: not written after {_MAX_ATTEMPTS} conflicting changes")

    def write_record(self, node: str, record: NodeRecord, now: datetime) -> None:
        """Write a record that was decided from the last ``read``.

        Raises:
            NotFound: as ``write``.
            BackendError: as ``write``, or another controller has written the record since.

        """

        def patch(state: NodeState, parsed: ParsedAnnotations) -> Json | None:
            self.check_unchanged(node)
            return node_patch(state, parsed, record, self._conventions)

        self.write(node, now, patch)
        self._written[node] = compact_json(record)

    def check_unchanged(self, node: str) -> None:
        """Check that nobody has written the record of a node since it was read or written here.

        A controller whose leadership ends while it waits for the machine's provider must not undo
        what the next one has decided.

        Raises:
            BackendError: the record is another one.

        """
        state, cached = self.state(node), self._nodes.get(node)
        if state is None or cached is None:
            return
        if state.record != self._written.get(node, cached.state.record):
            raise BackendError(f"node {node}: its record has changed since it was read")

    def write_condition(self, node: str, now: datetime) -> None:
        """Update the ``AgentSilent`` condition of a node from its record."""
        state = self._current(node)
        record = parse_annotations(state, self._conventions, now).record
        patch = None if record is None else agent_condition_patch(state, record, now)
        if patch is not None:
            path = f"{NODES}/{node}/status"
            self._reflector.learn(self._api.patch(path, patch, Patch.STRATEGIC))

    def remove(self, node: str, uid: str) -> None:
        """Delete a Node object if it still has that UID."""
        try:
            self._api.delete(f"{NODES}/{node}", uid=uid)
        except (NotFound, Conflict):
            return

    def _current(self, node: str) -> NodeState:
        state = self.state(node)
        cached = self._nodes.get(node)
        if state is None or (cached is not None and cached.state.uid != state.uid):
            what = "no longer exists" if state is None else "was recreated"
            raise NotFound(
                f"node {node} {what}", status=404, reason="NotFound", message="", after=None
            )
        return state

    def _parsed(self, state: NodeState, before: CachedNode | None, now: datetime) -> CachedNode:
        is_same = before is not None and before.state.uid == state.uid
        parsed = parse_annotations(state, self._conventions, now)
        has_drifted = differs_from_record(state, parsed, self._conventions)
        is_wrong = is_condition_outdated(state, parsed.record)
        is_released = parsed.record is not None and parsed.record.phase is Phase.SCHEDULABLE
        is_new = state.replaces is not None or not is_released
        return CachedNode(
            state=state,
            parsed=parsed,
            first_seen=before.first_seen if before is not None and is_same else now,
            is_managed=is_managed(state, parsed),
            has_drifted=has_drifted,
            is_condition_outdated=is_wrong,
            needs_no_correction=not (has_drifted or is_wrong or is_new or parsed.rejected),
        )

    def _check_age(self) -> None:
        reflector = self._reflector
        if reflector.age > STALE:
            raise BackendError(
                f"no response from the API server for {format_duration(reflector.age)}: "
                f"{reflector.error}"
            )
