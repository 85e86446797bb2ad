"""Reservations of nodes: for jobs that are resumed, and for the spare pools."""

import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final, Protocol

from holdfast.adapters.slurm.commands.job_text import BatchJob, Reservation, joined
from holdfast.adapters.slurm.commands.jobs import JobCommands
from holdfast.adapters.slurm.nodes.node_state import NodeState
from holdfast.model.errors import BackendError

JOB: Final = "HOLDFAST_"
SPARE: Final = "HOT_SPARE_"
"""Name prefix of a spare pool's reservation; its second part is as in Slurm's own nonstop
plugin."""

NEXT: Final = "NEXT_SPARE_"
"""Name prefix of a reservation for nodes that come back and are missing in the spare pool. Slurm
takes only idle nodes into a pool, and pending jobs would get these first."""

_OWNER: Final = "root"
_DURATION: Final = timedelta(minutes=30)
"""Duration of all reservations but the spare pools; renewed at half of that time. If no controller
is left, Slurm ends them."""

_FRESH_S: Final = 1.0
"""Maximum age in seconds of reservations that a round uses."""


class ReservableNodes(Protocol):
    """Node states that reservations need."""

    def node_state(self, node: str) -> NodeState:
        """Return the current state of a node."""
        ...

    def idle_nodes(self) -> frozenset[str]:
        """Return nodes without work, awake or asleep, whatever is planned for them."""
        ...

    def returning_nodes(self) -> frozenset[str]:
        """Return nodes that are out of service until they are repaired."""
        ...


class Reservations:
    """Reservations of one cluster; call ``refresh`` before each use.

    They are read from slurmctld at most once a second, although rounds may follow more closely.
    """

    def __init__(
        self, slurm: JobCommands, nodes: ReservableNodes, spares: Mapping[str, int]
    ) -> None:
        self._slurm = slurm
        self._nodes = nodes
        self._spares = spares
        self._all: dict[str, Reservation] = {}
        self._partitions: dict[str, frozenset[str]] = {}
        self._read_at = float("-inf")
        self._refused: dict[str, list[str]] = {}

    def refresh(self) -> None:
        """Read the reservations from Slurm, if the last read is older than a second."""
        if time.monotonic() > self._read_at + _FRESH_S:
            self._read()

    def _read(self) -> None:
        self._all, self._partitions = self._slurm.reservations(), {}
        self._read_at = time.monotonic()

    @property
    def jobs(self) -> frozenset[str]:
        """Return the jobs that have a reservation."""
        return frozenset(name.removeprefix(JOB) for name in self._all if name.startswith(JOB))

    def of(self, job: str) -> tuple[str, ...]:
        """Return the nodes that are reserved for a job."""
        existing = self._all.get(JOB + job)
        return () if existing is None else existing.nodes

    def free(self, partition: str) -> tuple[str, ...]:
        """Return nodes that a job of a partition could use: spare, future spare and idle nodes."""
        spares = (*self._spare_nodes(partition), *self._back(partition))
        return tuple(name for name in (*spares, *self._idle(partition)) if self._is_good(name))

    def make(self, job: BatchJob, had: Iterable[str]) -> str:
        """Reserve nodes for a job that is resumed.

        If too few nodes are good, nodes that come back are reserved as well: other pending jobs
        would get them first. The job may use other nodes besides.

        Args:
            job: the job.
            had: nodes that it had; those that are good are reserved again.

        Returns:
            The name of the reservation; empty if there is no node to reserve.

        """
        name, needed = JOB + job.id, max(job.wants, len(job.nodes))
        candidates = dict.fromkeys((*had, *self.of(job.id)))
        chosen = [node for node in candidates if self._is_good(node)][:needed]
        if len(chosen) < needed and not job.pinned:
            more = (node for node in self.free(job.partition) if node not in chosen)
            chosen += [node for node, _ in zip(more, range(needed - len(chosen)), strict=False)]
        if len(chosen) < needed and not job.pinned:
            own = (name, NEXT + job.partition)
            back = (node for node in self.of(job.id) if self._is_open(node))  # no report yet
            chosen += sorted(self._returning(job.partition, *own).union(back).difference(chosen))
        if not chosen:
            return ""
        if name not in self._all:
            self._slurm.reserve(name, chosen, job.user, _DURATION)
        elif set(self._all[name].nodes) != set(chosen):
            self._slurm.update_reservation(name, f"nodes={joined(chosen)}")
        self._all[name] = Reservation(name=name, nodes=tuple(chosen), ends_at=None)
        self._give(job.partition, chosen)
        return name

    def renew(self, job: str, now: datetime) -> None:
        """Extend the reservation of a job, if that is due."""
        self._renew(self._all[JOB + job], now)

    def _renew(self, existing: Reservation, now: datetime) -> None:
        if existing.ends_at is not None and existing.ends_at < now + _DURATION / 2:
            minutes = _DURATION.total_seconds() / 60
            self._slurm.update_reservation(existing.name, f"endtime=now+{minutes:.0f}minutes")
            self._read_at = float("-inf")  # the cached end time is outdated

    def end(self, job: str, holder: BatchJob | None) -> None:
        """Delete the reservation of a job. A job that runs in it keeps running."""
        name = JOB + job
        if holder is not None and holder.reservation == name and not holder.is_over:
            self._slurm.update_job(job, "reservationname=")
        self._slurm.end_reservation(name)
        self._all.pop(name, None)

    def keep_spares(self) -> None:
        """Resize the spare pools to their configured sizes, as far as nodes are idle or are back.

        Raises:
            BackendError: Slurm refuses, for example because a job got a node first.

        """
        for partition, count in self._spares.items():
            self._keep_pool(partition, count)
        for name in [one for one in self._all if one.startswith((SPARE, NEXT))]:
            if name.removeprefix(SPARE).removeprefix(NEXT) not in self._spares:
                self._slurm.end_reservation(name)
                del self._all[name]

    def _keep_pool(self, partition: str, count: int) -> None:
        has = len(self._spare_nodes(partition))
        is_short = has < count
        idle = self._idle(partition) if is_short else []
        awake = [node for node in idle if not self._sleeps(node)]
        back = self._back(partition) if is_short else []
        if not self._take_back(partition, awake, back, min(count, has + len(awake) + len(back))):
            size = min(count, max(has, min(count - len(back), has + len(awake))))
            if size not in (0, has):
                self._ask(partition, size)
            if size != has:
                self._read()

    def _take_back(self, partition: str, awake: list[str], back: list[str], size: int) -> bool:
        """Resize the spare pool to include nodes that have returned; False if it stays as it is.

        Slurm 22.05 does not move a node from one reservation to another. There, returned nodes stay
        in theirs, and resumed jobs use them from there. Without a reservation, even for
        milliseconds, a pending job could get them.
        """
        if not back or self._refused.get(partition) == awake + back:
            return False
        try:
            self._ask(partition, size)
        except BackendError:
            self._refused[partition] = awake + back
            return False
        self._read()
        return True

    def _ask(self, partition: str, size: int) -> None:
        if SPARE + partition in self._all:
            self._slurm.update_reservation(SPARE + partition, f"nodecnt={size}")
        else:
            self._slurm.keep_spares(SPARE + partition, partition, size)

    def keep_next(self, now: datetime) -> None:
        """Reserve the nodes that come back, while a spare pool is too small."""
        for partition, count in self._spares.items():
            self._keep_next(partition, now, count - len(self._spare_nodes(partition)))

    def _keep_next(self, partition: str, now: datetime, missing: int) -> None:
        name = NEXT + partition
        existing = self._all.get(name)
        had = frozenset() if existing is None else frozenset(existing.nodes)
        desired = self._next(partition, had, missing) if missing > 0 else frozenset()
        if existing is None and desired:
            self._slurm.reserve(name, sorted(desired), _OWNER, _DURATION)
        elif existing is not None and not desired:
            self._slurm.end_reservation(name)
        elif existing is not None and had != desired:
            self._slurm.update_reservation(name, f"nodes={joined(sorted(desired))}")
        elif existing is not None:
            self._renew(existing, now)
        if had != desired:
            self._read()

    def _next(self, partition: str, had: Iterable[str], missing: int) -> frozenset[str]:
        back = self._back(partition)
        if len(back) >= missing:
            return frozenset(back[:missing])
        there = (node for node in self._unused(had) if self._nodes.node_state(node).facts)
        return self._returning(partition).union(there)

    def _back(self, partition: str) -> list[str]:
        """Return nodes that were reserved while away and can now be taken into the spare pool."""
        existing = self._all.get(NEXT + partition)
        nodes = () if existing is None else existing.nodes
        free = self._nodes.idle_nodes()
        return [node for node in self._unused(nodes) if node in free and not self._sleeps(node)]

    def _unused(self, nodes: Iterable[str]) -> list[str]:
        """Return those of the nodes that are not reserved for jobs, which have priority."""
        given = [one.nodes for name, one in self._all.items() if name.startswith(JOB)]
        return [node for node in nodes if not any(node in existing for existing in given)]

    def _give(self, partition: str, used: Iterable[str]) -> None:
        """Release spare nodes that jobs were given; unused ones are taken back at once."""
        name = SPARE + partition
        spares = self._all.get(name)
        if spares is not None and set(spares.nodes) & set(used):
            self._slurm.end_reservation(name)
            del self._all[name]
            left = len(set(spares.nodes) - set(used))
            if left:
                self._slurm.keep_spares(name, partition, left)
            self._read()

    def _spare_nodes(self, partition: str) -> tuple[str, ...]:
        spares = self._all.get(SPARE + partition)
        return () if spares is None else spares.nodes

    def _idle(self, partition: str) -> list[str]:
        """Return idle nodes that are in no reservation; nodes asleep come last."""
        idle = self._nodes.idle_nodes().difference(*self._reserved_nodes())
        nodes = idle & self._members(partition) if idle else idle
        return sorted(nodes, key=lambda node: (self._sleeps(node), node))

    def _reserved_nodes(self, *besides: str) -> Iterator[tuple[str, ...]]:
        """Yield the nodes of each active reservation except ``besides``."""
        for one in self._all.values():
            if one.is_active and one.name not in besides:
                yield one.nodes

    def _returning(self, partition: str, *own: str) -> frozenset[str]:
        """Return nodes of a partition that are coming back and in no reservation except ``own``."""
        names = self._nodes.returning_nodes().difference(*self._reserved_nodes(*own))
        return names & self._members(partition) if names else names

    def _members(self, partition: str) -> frozenset[str]:
        if partition not in self._partitions:
            self._partitions[partition] = self._slurm.partition_nodes(partition)
        return self._partitions[partition]

    def _sleeps(self, node: str) -> bool:
        facts = self._nodes.node_state(node).facts
        return facts is not None and facts.is_asleep

    def _is_open(self, node: str) -> bool:
        facts = self._nodes.node_state(node).facts
        return facts is not None and not facts.is_closed

    def _is_good(self, node: str) -> bool:
        return self._nodes.node_state(node).is_good
