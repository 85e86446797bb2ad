"""PrologSlurmctld check: checks all nodes on which a job is about to begin, on slurmctld's host.

It uses the state of agents and controller and, where nodes can be reached, the result of the Prolog
check on the nodes. Slurm requeues a job whose check fails, and does not hold it.
"""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

from holdfast.adapters.slurm.commands.execution import Slurm
from holdfast.adapters.slurm.nodes.munge import trust_of
from holdfast.adapters.slurm.nodes.reports import Reports
from holdfast.adapters.slurm.nodes.state import SlurmStore
from holdfast.adapters.slurm.nodes.views import known_nodes, last_response_at, node_view, record_of
from holdfast.decisions.faults import node_faults
from holdfast.decisions.policy import RemediationPolicy
from holdfast.kit.commands import run
from holdfast.model.errors import BackendError
from holdfast.model.names import Reason, SlurmReason
from holdfast.model.nodes import Phase

JOB_NODES: Final = "SLURM_JOB_NODELIST"
"""Environment variable: slurmctld sets it for PrologSlurmctld."""

_CALL: Final = timedelta(seconds=15)
_MARKED: Final = timedelta(seconds=5)
"""Time for the controller to close a node by itself: it takes a second."""

_POLL_S: Final = 0.5
_AT_ONCE: Final = 32
"""Maximum number of nodes that are checked in parallel."""

_BROKEN: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfitNode:
    """A node on which no job may begin."""

    node: str
    reason: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """How to run the Prolog check on another node."""

    through: tuple[str, ...]
    """Command before the node name, such as ``ssh``."""

    check: tuple[str, ...]
    """Command on the node."""

    limit: timedelta


class HeadProlog:
    """State of nodes that is known on slurmctld's host."""

    def __init__(self, store: SlurmStore) -> None:
        """Use the state of a controller.

        Raises:
            BackendError: the state cannot be read.

        """
        places = store.places()
        self._store = store
        conf = Path(places.conf) if places.conf else None
        self._reports = Reports(Path(places.report_dir), trust_of(conf))
        self._slurm = Slurm(conf, _CALL)

    def known(self, nodes: Sequence[str], now: datetime) -> Iterator[UnfitNode]:
        """Yield nodes with a known fault that the controller may not have handled yet."""
        self._reports.refresh(now)
        memory = self._store.read()
        found = known_nodes(self._slurm.nodes(*nodes), self._reports.received(), memory)
        for name in nodes:
            one = found.get(name)
            record = None if one is None else record_of(one, now)
            if one is None or record is None or record.phase is Phase.CHECKING:
                continue  # a deep health check has its node exclusively
            heartbeat_at = last_response_at(one, record, now)
            view = node_view(one, record, memory, heartbeat_at=heartbeat_at, jobs=(), now=now)
            for fault in node_faults(view, RemediationPolicy(), now)[:1]:
                yield UnfitNode(node=name, reason=fault.reason, why=fault.message)

    def close(self, broken: UnfitNode) -> None:
        """Ensure that a node is closed to jobs, by the controller or else by this process.

        Raises:
            BackendError: Slurm refuses, or does not respond.

        """
        deadline = time.monotonic() + _MARKED.total_seconds()
        while not self._slurm.nodes(broken.node)[broken.node].is_closed:
            if time.monotonic() > deadline:
                reason = f"{SlurmReason.HOLDFAST} {broken.reason}: {broken.why}"
                self._slurm.close_node(broken.node, reason)
            time.sleep(_POLL_S)


def found_there(nodes: Sequence[str], remote: Remote) -> Iterator[UnfitNode | str]:
    """Check nodes in parallel; yields broken nodes, and a message for each that was not checked."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield from filter(None, pool.map(partial(_found, remote), nodes))


def _found(remote: Remote, node: str) -> UnfitNode | str | None:
    argv = (*remote.through, node, *(word.replace("{node}", node) for word in remote.check))
    try:
        done = run(argv, timeout=remote.limit)
    except BackendError as error:
        return f"{node}: {error}"
    message = " ".join((done.errors or done.output).split()) or f"exited with {done.status}"
    if done.status == _BROKEN:
        return UnfitNode(node=node, reason=Reason.CHECK_FAILED, why=message)
    return f"{node}: {message}" if done.status else None
