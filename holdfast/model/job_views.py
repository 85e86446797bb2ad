"""Jobs as the decision core sees them: snapshots, which are not stored."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from holdfast.model.jobs import (
    Ending,
    JobRecord,
    JobSpec,
    LossFault,
)
from holdfast.model.names import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class RankView:
    """Process of one node rank in the present attempt."""

    rank: int
    node: str
    exit_code: int | None = None
    """None while it runs; negative for the signal that ended it, as in ``subprocess``."""

    ended_at: datetime | None = None
    reason: str = ""
    """Reason of its end that the platform reports, such as ``OOMKilled``; empty if none."""

    is_evicted: bool = False
    """Whether a person, a scheduler or a controller removed it, so that it did not fail."""

    is_lost: bool = False
    """Whether its node was lost or has rebooted, as the platform reports, and the rank with it."""

    is_fenced: bool = False
    """Whether nothing can run on its node any more, although its end was never reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Abort:
    """Why the watchdogs of ranks have ended them."""

    text: str
    """Rank that the others waited for, and what it did, for people to read."""

    node: str = ""
    """Node of that rank; empty if none stands out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowRank:
    """The rank that the others of a running attempt wait for in each step."""

    text: str
    """Rank, node and figures, for people to read."""

    node: str = ""
    """Node of that rank; empty if it is unknown. The job itself may have named it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """One job in a snapshot."""

    spec: JobSpec
    record: JobRecord
    ranks: tuple[RankView, ...] = ()
    """Launched ranks of attempt ``record.attempt``; empty if none was."""

    leaving: tuple[RankView, ...] = ()
    """Ranks that still run on exchanged nodes, where Holdfast places the ranks that replace them.
    These are launched when none is left."""

    first_step: int | None = None
    """First step reported in the present attempt: where it resumed."""

    step: int | None = None
    """Last step reported in the present attempt; None where it reports none."""

    hung_since: datetime | None = None
    """Time since which the job makes no progress, by its own limits; None if it does."""

    hung_reason: str = Reason.JOB_HUNG
    hung_evidence: str = ""
    """Evidence of the hang, for people to read; empty if only the time is known."""

    unwatched: str = ""
    """Why a hang of the running attempt is not detected, for people to read; empty if it is."""

    suspected_hang: str = ""
    """Why the job seems to hang although no timeout has passed, for people to read; empty if it
    does not."""

    abort: "Abort | None" = None
    """Why collectives of the attempt timed out, by the ranks and their flight recorders; None if
    none did, or that is unknown."""

    straggler: SlowRank | None = None
    """Rank that the others wait for in each step; None if none is known."""

    checkpoint_notice: str = ""
    """What was found of its checkpoints as the attempt began, for people to read; empty if nothing
    is known, or if it was reported otherwise."""

    loss_fault: LossFault | None = None
    """First loss of the present attempt that is not finite, or else that spiked."""

    cancel_requested: bool = False
    ending: Ending | None = None
    """None while the ranks show the state of the job, or the job is running."""

    capacity: Mapping[str, int] | None = None
    """Nodes that the scheduler could choose once they are in service, each with the number of ranks
    that it has room for; None unless the job waits and a scheduler places it."""

    blocked_nodes: frozenset[str] = frozenset()
    """Nodes of ``capacity`` on which the scheduler places nothing at present."""

    is_stop_seen: bool = True
    """Whether no process launches ranks of a stopping attempt any more."""
