"""The nodes of the simulated platform."""

from collections.abc import Collection

from holdfast.adapters.sim.call_gate import CallGate
from holdfast.adapters.sim.pairs import pair_outcome, start_pair
from holdfast.adapters.sim.world import SimNode, World
from holdfast.model.actions import CloseBreaker, TripBreaker
from holdfast.model.jobs import JobPhase
from holdfast.model.names import DeepCheck
from holdfast.model.nodes import Breaker, ClusterView, NodeRecord, NodeView, Phase, Pool
from holdfast.model.requests import Request


class SimCluster:
    """A ``ClusterBackend`` over a simulated world.

    Heartbeats are kept in memory, as real backends do: a new one reports its own start for nodes
    that sent heartbeats before.
    """

    def __init__(self, world: World, gate: CallGate) -> None:
        self._world = world
        self._gate = gate

    def snapshot(self, peer_pools: Collection[Pool] = ()) -> ClusterView:  # noqa: ARG002 - knows of every node
        """See ``ClusterBackend.snapshot``."""
        with self._gate.reading():
            return cluster_view(self._world)

    def put(self, node: str, record: NodeRecord) -> None:
        """See ``ClusterBackend.put``."""
        with self._gate.writing():
            found = self._world.nodes[node]
            before, found.record = found.record, record
            self._world.observer.node_put(found, before)

    def clear_request(self, node: str, request_id: str) -> None:
        """See ``ClusterBackend.clear_request``."""
        with self._gate.writing():
            found = self._world.nodes.get(node)
            if found is not None and found.request is not None and found.request.id == request_id:
                found.request = None

    def request_check(self, node: str, request: Request) -> bool:
        """See ``ClusterBackend.request_check``."""
        with self._gate.writing():
            found = self._world.nodes.get(node)
            if found is not None and found.request is None:
                found.request = request
        return True

    def drain(self, node: str) -> None:  # noqa: ARG002 - nothing is left to do
        """See ``ClusterBackend.drain``: the job loop stops jobs on a draining node by itself."""
        with self._gate.writing():
            pass

    def start_check(self, node: str, check_id: str, kinds: tuple[DeepCheck, ...]) -> None:  # noqa: ARG002 - all are alike
        """See ``ClusterBackend.start_check``."""
        with self._gate.writing():
            self._world.start_check(self._world.nodes[node], check_id)

    def start_pair(self, node: str, partner: str, test_id: str) -> None:
        """See ``ClusterBackend.start_pair``."""
        with self._gate.writing():
            start_pair(self._world, node, partner, test_id)

    def retire(self, node: str) -> None:
        """See ``ClusterBackend.retire``."""
        with self._gate.writing():
            self._world.nodes.pop(node, None)

    def trip_breaker(self, trip: TripBreaker) -> None:
        """See ``ClusterBackend.trip_breaker``."""
        with self._gate.writing():
            if self._world.breaker.tripped_at is None:
                self._world.breaker = Breaker(tripped_at=self._world.now, reason=trip.reason)

    def close_breaker(self, close: CloseBreaker) -> None:
        """See ``ClusterBackend.close_breaker``."""
        with self._gate.writing():
            if self._world.breaker.tripped_at == close.tripped_at:
                self._world.observer.breaker_closed()
                self._world.breaker = Breaker(reset_at=self._world.now)

    def remember_offender(self, provider_id: str) -> None:
        """See ``ClusterBackend.remember_offender``."""
        with self._gate.writing():
            self._world.offenders.add(provider_id)


def cluster_view(world: World) -> ClusterView:
    """Snapshot of the world for a working backend."""
    running = _running_jobs(world)
    return ClusterView(
        nodes=tuple(
            _view(world, node, running.get(node.name, ())) for node in world.nodes.values()
        ),
        breaker=world.breaker,
        offenders=frozenset(world.offenders),
    )


def node_view(world: World, name: str) -> NodeView:
    """Snapshot of one node, as in ``cluster_view``."""
    return _view(world, world.nodes[name], _running_jobs(world).get(name, ()))


def _view(world: World, node: SimNode, running_jobs: tuple[str, ...]) -> NodeView:
    """Snapshot of a node: the last one if nothing in it has changed, which is often."""
    machine, record = node.machine, node.record
    has_scheduler = world.has_scheduler
    heartbeat_at = machine.heartbeat_at(world.now)
    answered_at = machine.answered_at(world.now) if has_scheduler else None
    check_id = record.phase_since.isoformat() if record.phase is Phase.CHECKING else None
    faults = machine.report()
    check = node.check if node.check_id == check_id else None
    pair = pair_outcome(node)
    state = (
        *(record, machine, machine.boot, machine.power, faults, heartbeat_at),
        *(answered_at, world.controller_since, node.request, running_jobs, check, pair),
    )
    if node.last_view is not None and node.last_view[0] == state:
        return node.last_view[1]
    view = NodeView(
        name=node.name,
        provider_id=machine.provider_id,
        record=record,
        boot_id=machine.boot_id,
        faults=faults,
        heartbeat_at=None if heartbeat_at is None else max(heartbeat_at, world.controller_since),
        reported_at=heartbeat_at if has_scheduler else None,
        answered_at=None if answered_at is None else max(answered_at, world.controller_since),
        is_ready=machine.is_ready if has_scheduler else None,
        powered_on=machine.powered_on,
        request=node.request,
        running_jobs=running_jobs,
        is_idle=record.phase is Phase.SCHEDULABLE and not running_jobs,
        check=check,
        pair=pair,
        replaces=node.replaces,
    )
    node.last_view = state, view
    return view


def _running_jobs(world: World) -> dict[str, tuple[str, ...]]:
    """Jobs with processes on each node, including those about to start."""
    running: dict[str, set[str]] = {}
    for name, job in world.jobs.items():
        for rank in job.living():
            running.setdefault(rank.node, set()).add(name)
        for node in job.bound.values():
            running.setdefault(node, set()).add(name)
        if job.record.phase is JobPhase.STARTING:
            for node in job.record.placement:
                running.setdefault(node, set()).add(name)
    return {node: tuple(sorted(names)) for node, names in running.items()}
