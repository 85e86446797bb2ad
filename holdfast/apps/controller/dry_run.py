"""Dry run of a controller: logs planned actions and changes nothing."""

from collections.abc import Iterator

from holdfast.decisions.policy import RemediationPolicy
from holdfast.decisions.remediation import decide
from holdfast.engine.node_events import event_of
from holdfast.engine.wording import log_line
from holdfast.model.actions import Plan
from holdfast.model.events import BreakerClosed, BreakerTripped, RepairDeferred
from holdfast.model.nodes import ClusterView, Pool
from holdfast.ports.clock import Clock
from holdfast.ports.cluster import ClusterBackend


class DryRun:
    """Reads the cluster and plans the next actions.

    As nothing is changed, the same actions stay planned.
    """

    def __init__(self, cluster: ClusterBackend, policy: RemediationPolicy, clock: Clock) -> None:
        self._cluster = cluster
        self._policy = policy
        self._clock = clock
        self._reported: frozenset[str] = frozenset()
        self._peer_pools: frozenset[Pool] = frozenset()

    def new_lines(self) -> Iterator[str]:
        """Yield the planned actions that the previous call did not yield.

        Raises:
            BackendError: the cluster cannot be read.

        """
        view = self._cluster.snapshot(self._peer_pools)
        plan = decide(view, self._policy, self._clock.now())
        self._peer_pools = plan.peer_pools
        lines = list(_lines(view, plan))
        yield from (line for line in lines if line not in self._reported)
        self._reported = frozenset(lines)


def _lines(view: ClusterView, plan: Plan) -> Iterator[str]:
    nodes = {node.name: node for node in view.nodes}
    if plan.trip is not None:
        yield log_line(BreakerTripped(reason=plan.trip.reason))
    if plan.close is not None:
        yield log_line(BreakerClosed(reason=plan.close.reason))
    for action in plan.actions:
        event = event_of(action, nodes[action.node])
        if event is not None:
            yield log_line(event)
    for item in plan.deferred:
        yield log_line(RepairDeferred(node=item.node, why=item.why))
