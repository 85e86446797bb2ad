"""The check of PrologSlurmctld: beside slurmctld, of all nodes that a job is about to begin on.

What the agents and the controller know of them counts, and, where nodes can be reached, what the
check of the Prolog finds there. Slurm lets a job whose check fails wait for nodes again, and does
not hold it.
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
from holdfast.adapters.slurm.nodes.reports import Reports
from holdfast.adapters.slurm.nodes.state import SlurmStore
from holdfast.adapters.slurm.nodes.views import heard_at, known_nodes, node_view, record_of
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
"""For the controller to close a node by itself: it takes a second."""

_LOOK_S: Final = 0.5
_AT_ONCE: Final = 32
"""Nodes that are checked side by side."""

_BROKEN: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A node that no job is to begin on."""

    node: str
    reason: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """How the check of the Prolog is run on another node."""

    through: tuple[str, ...]
    """The command before the name of the node, such as ``ssh``."""

    check: tuple[str, ...]
    """The command there."""

    limit: timedelta


class HeadProlog:
    """What can be known of nodes beside slurmctld."""

    def __init__(self, store: SlurmStore) -> None:
        """Use what a controller keeps.

        Raises:
            BackendError: it cannot be read.

        """
        places = store.places()
        self._store = store
        self._reports = Reports(Path(places.report_dir))
        self._slurm = Slurm(Path(places.conf) if places.conf else None, _CALL)

    def known(self, nodes: Sequence[str], now: datetime) -> Iterator[Broken]:
        """Nodes of which a fault is known that the controller may not have acted on yet."""
        self._reports.look(now)
        memory = self._store.read()
        found = known_nodes(self._slurm.nodes(*nodes), self._reports.heard(), memory)
        for name in nodes:
            one = found.get(name)
            record = None if one is None else record_of(one, now)
            if one is None or record is None or record.phase is Phase.CHECKING:
                continue  # a deep health check has its node for itself
            heard = heard_at(one, record, now, None)
            view = node_view(one, record, memory, heard=heard, jobs=(), now=now)
            for fault in node_faults(view, RemediationPolicy(), now)[:1]:
                yield Broken(node=name, reason=fault.reason, why=fault.message)

    def close(self, broken: Broken) -> None:
        """See to it that the node is kept from jobs: by the controller, or else by us.

        Raises:
            BackendError: Slurm refuses, or cannot be asked.

        """
        deadline = time.monotonic() + _MARKED.total_seconds()
        while not self._slurm.nodes(broken.node)[broken.node].is_closed:
            if time.monotonic() > deadline:
                reason = f"{SlurmReason.OURS} {broken.reason}: {broken.why}"
                self._slurm.close_node(broken.node, reason)
            time.sleep(_LOOK_S)


def found_there(nodes: Sequence[str], remote: Remote) -> Iterator[Broken | str]:
    """Run the check on nodes, side by side; a text tells of one that could not be checked."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield from filter(None, pool.map(partial(_found, remote), nodes))


def _found(remote: Remote, node: str) -> Broken | str | None:
    argv = (*remote.through, node, *(word.replace("{node}", node) for word in remote.check))
    try:
        done = run(argv, timeout=remote.limit)
    except BackendError as error:
        return f"{node}: {error}"
    said = " ".join((done.errors or done.output).split()) or f"it ended with {done.status}"
    if done.status == _BROKEN:
        return Broken(node=node, reason=Reason.CHECK_FAILED, why=said)
    return f"{node}: {said}" if done.status else None
