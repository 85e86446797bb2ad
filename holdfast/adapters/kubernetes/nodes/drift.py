"""Drift correction before each round of the leader: needs no decision."""

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Final

from holdfast.adapters.kubernetes.checks.check_jobs import jobs_of
from holdfast.adapters.kubernetes.checks.deep_checks import DeepChecks
from holdfast.adapters.kubernetes.client.errors import Json, NotFound
from holdfast.adapters.kubernetes.nodes.cache import CachedNode, NodeCache
from holdfast.adapters.kubernetes.nodes.encoding import ParsedAnnotations, node_patch
from holdfast.adapters.kubernetes.nodes.node import Conventions, NodeState, arrivals
from holdfast.adapters.kubernetes.nodes.state import ClusterMemory, Memory
from holdfast.decisions.succession import LeavingNode, successors
from holdfast.kit.rejections import Rejection
from holdfast.model.errors import BackendError
from holdfast.model.events import CallFailed, InputRejected, NodesWithoutGroup
from holdfast.model.names import REPLACES, Condition
from holdfast.model.nodes import Phase
from holdfast.ports.events import EventSink

_AGAIN_S: Final = 5.0
"""Minimum time between two corrections of the same object, to avoid a fight with another writer."""

_AT_ONCE: Final = 100
"""Nodes corrected before one round; the others follow before the next."""


class DriftCorrection:
    """Corrects labels, taints and conditions, matches replacements, deletes what is obsolete.

    Failures are reported as events and retried later; they do not stop the round.
    """

    def __init__(
        self,
        nodes: NodeCache,
        memory: ClusterMemory,
        checks: DeepChecks,
        conventions: Conventions,
        events: EventSink,
    ) -> None:
        self._nodes = nodes
        self._memory = memory
        self._checks = checks
        self._conventions = conventions
        self._events = events
        self._done_at: dict[str, float] = {}
        self._reported: set[tuple[str, Rejection]] = set()
        self._groupless: set[str] = set()

    def run(self, cached_nodes: Mapping[str, CachedNode], memory: Memory, now: datetime) -> None:
        """Correct all drift.

        Args:
            cached_nodes: all nodes, retired ones left out.
            memory: what is remembered about the cluster.
            now: the present time.

        """
        limit = time.monotonic() - _AGAIN_S
        self._done_at = {what: at for what, at in self._done_at.items() if at > limit}
        leaving = dict(memory.leaving)
        for name in [
            name for name in leaving if name in cached_nodes and _stays(cached_nodes[name])
        ]:
            del leaving[name]
            self._try(
                f"deleting the record of the replaced node {name}",
                partial(self._memory.forget_leaving, name),
            )
        self._report_groupless(cached_nodes)
        cached_nodes = {
            name: cached for name, cached in cached_nodes.items() if not cached.needs_no_correction
        }
        self._reject(cached_nodes, memory)
        self._adopt(cached_nodes, leaving, now)
        drifted = [
            name
            for name, cached in cached_nodes.items()
            if cached.has_drifted and cached.is_managed
        ]
        for name in drifted[:_AT_ONCE]:
            self._try(
                f"correcting the labels and taints of {name}", partial(self._correct, name, now)
            )
        wrong = [name for name, cached in cached_nodes.items() if cached.is_condition_outdated]
        for name in wrong[:_AT_ONCE]:
            what = f"setting the condition {Condition.AGENT_SILENT} of {name}"
            self._try(what, partial(self._nodes.write_condition, name, now))
        for name, uid in memory.retired.items():
            self._try(f"removing {name}", partial(self._clear, name, uid))
        waited_for = {
            job
            for name, cached in cached_nodes.items()
            if cached.parsed.record is not None
            for job in jobs_of(name, cached.parsed.record)
        }
        self._try("ending checks", partial(self._checks.end_others, waited_for))

    def _report_groupless(self, cached_nodes: Mapping[str, CachedNode]) -> None:
        """Report which nodes belong to no group, once for each node."""
        found = {
            name
            for name, cached in cached_nodes.items()
            if cached.is_managed and not cached.state.group
        }
        if found - self._groupless:
            self._events.emit(NodesWithoutGroup(nodes=tuple(sorted(found))))
        self._groupless = found

    def _correct(self, node: str, now: datetime) -> None:
        def patch(state: NodeState, parsed: ParsedAnnotations) -> Json | None:
            if parsed.record is None:
                return None
            return node_patch(state, parsed, parsed.record, self._conventions)

        self._nodes.write(node, now, patch)

    def _adopt(
        self,
        cached_nodes: Mapping[str, CachedNode],
        leaving: Mapping[str, LeavingNode],
        now: datetime,
    ) -> None:
        """Record on each new node which node it replaces; once only."""
        states = [cached.state for cached in cached_nodes.values()]
        for new, old in successors(arrivals(states), leaving).items():
            adopt = partial(self._nodes.write, new, now, partial(_replacing, old))
            self._try(f"recording that {new} replaces {old}", adopt)

    def _clear(self, node: str, uid: str) -> None:
        state = self._nodes.state(node)
        if state is not None and state.uid == uid:
            self._nodes.remove(node, uid)
        else:
            self._memory.forget_retired(node)

    def _reject(self, cached_nodes: Mapping[str, CachedNode], memory: Memory) -> None:
        """Report each invalid value once, until it is removed."""
        found = {
            (name, one) for name, cached in cached_nodes.items() for one in cached.parsed.rejected
        }
        found |= {("", one) for one in memory.rejected}
        for name, one in sorted(found - self._reported, key=lambda item: (item[0], item[1].key)):
            self._events.emit(
                InputRejected(node=name, key=one.key, value=one.value, expected=one.expected)
            )
        self._reported = found

    def _try(self, what: str, act: Callable[[], None]) -> None:
        if what in self._done_at:
            return
        try:
            act()
        except NotFound:
            return  # nodes that are gone need no report
        except BackendError as error:
            self._events.emit(CallFailed(what=what, error=str(error)))
        self._done_at[what] = time.monotonic()


def _stays(cached: CachedNode) -> bool:
    """Whether the record of a node has no replacement in progress."""
    return cached.parsed.record is not None and cached.parsed.record.phase is not Phase.REPLACING


def _replacing(old: str, state: NodeState, _word: ParsedAnnotations) -> Json | None:
    """Return the patch that records on a node that it replaces ``old``."""
    if state.replaces is not None or state.record is not None:
        return None
    version = str(state.resource_version)
    return {"metadata": {"resourceVersion": version, "annotations": {REPLACES: old}}}
