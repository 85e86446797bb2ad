"""State of a job that restarts its ranks in rounds, see ``launch_rounds``."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from holdfast.decisions.exit_meanings import ExitMeaning
from holdfast.decisions.launch_events import Member
from holdfast.decisions.launch_inspection import Inspection, is_open
from holdfast.decisions.restart_rungs import RestartBudget, RestartHistory
from holdfast.model.jobs import LossFault

EARLIER: Final = ""
"""Stands for all launchers that an earlier coordinator may have lost."""


class Phase(StrEnum):
    """Phase of a job."""

    GATHER = "gather"
    """Waiting for enough launchers."""

    RUN = "run"
    STOP = "stop"
    """Waiting until no rank of the round is left."""

    END = "end"


class Outcome(StrEnum):
    """How a job ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    RESTART_JOB = "restart-job"
    """Its platform should restart the whole job."""

    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSettings:
    """Settings of a job."""

    nodes: int = 1
    """Nodes of a round. Launchers beyond this number are hot spares."""

    join_timeout: timedelta = timedelta(minutes=10)
    """For enough launchers to join. torchrun's ``join_timeout`` is 600 s."""

    lease: timedelta = timedelta(seconds=2)
    """For which a launcher runs ranks without a response of the coordinator."""

    fence: timedelta = timedelta(seconds=1)
    """From the loss of a launcher, when its lease has ended, until its ranks are gone: its guard
    sends them SIGKILL when the lease ends."""

    may_succeed_another: bool = False
    """Whether another coordinator may have been there before, of which no launcher that is left
    knows. Then ranks of launchers that it had lost may run until their leases have ended."""

    exchanges_suspects: bool = False
    """Whether the node of a rank that slows the others down, or that hangs in the kernel or storage
    of its node, is exchanged for a hot spare. Other hangs blame no node."""

    verifies_checkpoints: bool = False
    """Whether the checkpoints of the job are verified before ranks restart for a bad loss."""

    verify_timeout: timedelta = timedelta(minutes=10)
    """For that verification. ``holdfast checkpoint guard`` waits as long by default."""

    stops_on_permanent_cause: bool = True
    """Whether the job fails at once if a restart would fail in the same way."""

    failure_margin: timedelta = timedelta(seconds=2)
    """For ranks of another node to fail for the same cause, which shows that it is not one of the
    node."""

    start_limit: timedelta = timedelta(minutes=10)
    """After which a failure is no failure of the start, in a job that reports no steps."""

    budget: RestartBudget = field(default_factory=RestartBudget)
    can_join: bool = True
    """Whether launchers on other nodes can join."""

    @property
    def return_time(self) -> timedelta:
        """After the loss of a launcher, for it to join again and learn that the job succeeded.

        A launcher on a busy node is lost after one lease without a heartbeat. It gets three more
        to continue, or its platform to start it again.
        """
        return 3 * self.lease


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """First failure of a round."""

    launcher: str
    rank: int = -1
    """Failed rank; -1 if the whole node failed."""

    code: int = 0
    meaning: ExitMeaning = ExitMeaning.CRASH
    text: str = ""
    is_of_node: bool = False
    """Whether the node is exchanged for a hot spare, if there is one."""

    loss: LossFault | None = None
    """Bad loss that is the cause: no node is to blame then. None for other failures."""

    cause: str = ""
    """Root cause; empty if it is not known."""

    at: datetime | None = None
    """Time of the report of a failed rank."""

    is_at_start: bool = False
    """Whether no step was reported before it."""

    is_shared: bool = False
    """Whether a rank of another node has failed by itself for the same cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLosses:
    """Bad loss of a round that stops no rank, and who reported it."""

    fault: LossFault
    """Of the earliest step."""

    ranks: Mapping[int, str]
    """Launcher of each rank that reported it at that step."""

    complete_at: datetime
    """Time from which it is printed: ranks report the same step at about the same time."""

    is_complete: bool = False
    """Whether that time has passed, or the ranks end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRounds:
    """State of a job."""

    since: datetime
    """Start of the phase."""

    phase: Phase = Phase.GATHER
    round: int = 0
    """Number of the current or last round; 0 before the first of this coordinator."""

    members: Mapping[str, Member] = field(default_factory=dict)
    """Launchers that are connected, in the order in which they joined."""

    active: Mapping[str, Member] = field(default_factory=dict)
    """Launchers of the round, in the order of their node ranks."""

    alive: frozenset[str] = frozenset()
    """Launchers of the round whose ranks may be alive."""

    fences: Mapping[str, datetime] = field(default_factory=dict)
    """Time from which the ranks of a lost launcher are gone, by launcher; by ``EARLIER``, those of
    launchers that had an earlier coordinator."""

    lost: Mapping[str, datetime] = field(default_factory=dict)
    """Launchers that were lost within the last ``return_time`` and have not joined again, with the
    time of the loss. After a success, those that the coordinator still waits for; empty after any
    other end, as the platform then restarts or ends all launchers."""

    floor: int = 0
    """Highest round that a launcher has reported: the next one has a higher number."""

    succeeded: frozenset[str] = frozenset()
    failure: Failure | None = None
    """First failure of the round; None while there is none."""

    ended_by: Failure | None = None
    """Failure that ended the round before; None if there was none."""

    timed_out: Failure | None = None
    """First rank of the round in which a collective timed out; None if there is none. Another rank
    is the cause, so the ranks are inspected."""

    losses: RankLosses | None = None
    """Bad loss of the round that stops no rank; None if there is none."""

    inspection: Inspection | None = None
    """Last inspection of a suspected hang, of this round or an earlier one."""

    history: RestartHistory = RestartHistory()
    leaving: frozenset[str] = frozenset()
    """Launchers of the last round that others replace in the next one."""

    verified: int = 0
    """Number of restarts for whose ranks the checkpoints were verified last."""

    rotation: int = 0
    """Number of places by which ranks are shifted to other accelerators of their node."""

    waited_s: float = 0.0
    """Longest wait of a launcher for the memory of its accelerators, in the last stop."""

    stop_signal: int = 0
    """Signal that requested the end of the job; 0 if none did."""

    outcome: Outcome | None = None
    why: str = ""

    def awaits_checkpoints(self, settings: RoundSettings) -> bool:
        """Return whether checkpoints have to be verified before the next round."""
        is_due = self.history.loss is not None and self.verified < self.history.total
        return settings.verifies_checkpoints and self.phase is Phase.GATHER and is_due

    @property
    def awaits_lost(self) -> bool:
        """Return whether no rank is left, and lost launchers are awaited before the next round."""
        return self.phase is Phase.STOP and not self.alive

    @property
    def is_inspecting(self) -> bool:
        """Return whether the ranks of the round are inspected."""
        return is_open(self.inspection, self.round)
