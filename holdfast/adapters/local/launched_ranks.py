"""Which tasks of the machines are the ranks of a job, also after an exchange of nodes."""

from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.adapters.local.machine import LocalMachine
from holdfast.adapters.local.machines import LocalMachines
from holdfast.model.jobs import JobRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchedRank:
    """Task of a rank that was launched."""

    rank: int
    node: str
    attempt: int
    """Attempt in which it was launched. Later ones that exchanged other nodes keep it."""

    task: str


class LaunchedRanks:
    """Tasks of the ranks of all jobs.

    They are kept in memory only: the machines and all that runs on them end with this process.
    """

    def __init__(self, machines: LocalMachines) -> None:
        self._machines = machines
        self._known: dict[str, list[LaunchedRank]] = {}

    def add(self, job: str, record: JobRecord, rank: int) -> str:
        """Note that a rank is launched now; returns the name of its task."""
        one = LaunchedRank(
            rank=rank,
            node=record.placement[rank],
            attempt=record.attempt,
            task=f"{job}/{record.attempt}/{rank}",
        )
        placed = [two for two in self._of_attempt(job, record) if _is_placed(two, record)]
        self._known[job] = [*placed, one]
        return one.task

    def current(self, job: str, record: JobRecord) -> list[tuple[int, LocalMachine]]:
        """Return the launched ranks of the present attempt, each with its machine."""
        found = [one for one in self._of_attempt(job, record) if _is_placed(one, record)]
        return sorted(self._on_machines(found), key=lambda one: one[0])

    def leaving(self, job: str, record: JobRecord) -> list[tuple[int, LocalMachine]]:
        """Return the ranks that still run on exchanged nodes, each with its machine."""
        found = [one for one in self._of_attempt(job, record) if not _is_placed(one, record)]
        return [
            (rank, machine)
            for rank, machine in self._on_machines(found)
            if machine.task is not None and machine.task.exit_code is None
        ]

    def _of_attempt(self, job: str, record: JobRecord) -> list[LaunchedRank]:
        """Return the ranks that were launched since all of them were last launched."""
        known = self._known.get(job, [])
        return [one for one in known if record.exchanged or one.attempt == record.attempt]

    def _on_machines(self, ranks: list[LaunchedRank]) -> Iterator[tuple[int, LocalMachine]]:
        for one in ranks:
            machine = self._machines.get(one.node)
            if machine is not None and machine.task is not None and machine.task.name == one.task:
                yield one.rank, machine


def _is_placed(one: LaunchedRank, record: JobRecord) -> bool:
    return one.rank < len(record.placement) and record.placement[one.rank] == one.node
